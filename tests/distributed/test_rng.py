"""Random states that are made alike on all ranks."""

from datetime import timedelta

import torch
import torch.distributed as dist

from accelerate.options.enums import RNGType
from accelerate.runtime.current import current
from accelerate.runtime.rng import set_seed, synchronize_rng_state, synchronize_rng_states
from tests.support.rank_pool import RankPool


def join() -> int:
    current.start(cpu=True, timeout=timedelta(seconds=20))
    return current.world.rank


def synchronized() -> list[float]:
    rank = join()
    generator = torch.Generator().manual_seed(rank)
    torch.manual_seed(100 + rank)
    sent = []
    original = dist.broadcast
    dist.broadcast = lambda *args, **kwargs: (sent.append(1), original(*args, **kwargs))
    try:
        synchronize_rng_states(["torch", RNGType.GENERATOR], generator)
    finally:
        dist.broadcast = original
    assert len(sent) == 1
    return [torch.rand(1).item(), torch.rand(1, generator=generator).item()]


def test_all_ranks_draw_as_the_main_process(rank_pool: RankPool) -> None:
    main, *others = rank_pool.run(synchronized, num_ranks=3)
    assert others == [main, main]
    torch.manual_seed(100)
    expected = [torch.rand(1).item(), torch.rand(1, generator=torch.Generator().manual_seed(0)).item()]
    assert main == expected


def one_generator_only() -> list[float]:
    rank = join()
    generator = torch.Generator().manual_seed(rank)
    torch.manual_seed(rank)
    synchronize_rng_state("generator", generator)
    return [torch.rand(1).item(), torch.rand(1, generator=generator).item()]


def test_other_generators_stay_as_they_are(rank_pool: RankPool) -> None:
    (first, shared), (second, also_shared) = rank_pool.run(one_generator_only)
    assert first != second
    assert shared == also_shared


def seeded() -> list[float]:
    join()
    set_seed(3)
    alike = torch.rand(1).item()
    set_seed(3, device_specific=True)
    return [alike, torch.rand(1).item()]


def test_device_specific_seeds_differ_by_rank(rank_pool: RankPool) -> None:
    (alike, first), (also_alike, second) = rank_pool.run(seeded)
    assert alike == also_alike == first
    assert second != first
