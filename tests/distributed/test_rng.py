"""Random states that are made alike on all ranks."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from accelerate.data.prepare import prepare_data_loader
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


class Noise(Dataset[torch.Tensor]):
    """What a worker draws, as random augmentation does."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.rand(1)


def noise_of_workers(device_specific: bool) -> list[float]:
    rank = join()
    set_seed(3, device_specific=device_specific)
    loader = prepare_data_loader(
        DataLoader(Noise(), batch_size=2, num_workers=1), num_processes=2, process_index=rank
    )
    return [value for batch in loader for value in batch.flatten().tolist()]


def test_workers_draw_apart_with_device_specific_seeds(rank_pool: RankPool) -> None:
    first, second = rank_pool.run(noise_of_workers, False)
    assert first == second
    first, second = rank_pool.run(noise_of_workers, True)
    assert not set(first) & set(second)


def seeded_after_the_end() -> float:
    join()
    dist.destroy_process_group()
    set_seed(3, device_specific=True)
    return torch.rand(1).item()


def test_seeds_need_no_group(rank_pool: RankPool) -> None:
    assert len(set(rank_pool.run(seeded_after_the_end))) == 2
