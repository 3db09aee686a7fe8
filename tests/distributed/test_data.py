"""Loaders on real ranks: one order everywhere, each sample once, whatever the random states of the ranks."""

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader, RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from accelerate import Accelerator
from accelerate.data.prepare import prepare_data_loader
from accelerate.data.samplers import get_sampler
from accelerate.runtime.accumulation import accumulation
from accelerate.runtime.collectives import gather
from accelerate.state import AcceleratorState, PartialState

SAMPLERS = {
    "random": lambda length: RandomSampler(range(length)),
    "subset": lambda length: SubsetRandomSampler(range(length)),
    "weighted": lambda length: WeightedRandomSampler([1.0] * length, length, replacement=False),
}


def start():
    """Join the run with a random state of this rank's own, and return the rank."""
    rank = PartialState(cpu=True).process_index
    torch.manual_seed(100 + rank)
    return rank


def read(loader):
    return [batch.tolist() for batch in loader]


def in_order(dealt):
    """Return what all ranks read, round by round, from what each one read."""
    rounds = max(map(len, dealt))
    return [
        index for i in range(rounds) for batches in dealt for batch in batches[i : i + 1] for index in batch
    ]


def shuffled(kind, length):
    start()
    sampler = SAMPLERS[kind](length)
    loader = prepare_data_loader(DataLoader(range(length), sampler=sampler, batch_size=2), even_batches=False)
    first = read(loader)
    for _ in loader:  # left early on all ranks: the next pass must still be one order
        break
    return first, read(loader)


@pytest.mark.parametrize("kind", SAMPLERS)
@pytest.mark.parametrize("num_ranks", [2, 3])
def test_ranks_with_different_seeds_share_one_permutation(rank_pool, kind, num_ranks):
    results = rank_pool.run(shuffled, kind, 11, num_ranks=num_ranks)
    orders = [in_order([result[epoch] for result in results]) for epoch in range(2)]
    assert [sorted(order) for order in orders] == [list(range(11))] * 2
    assert orders[0] != orders[1]


def left_at_different_places():
    rank = start()
    loader = prepare_data_loader(DataLoader(range(12), shuffle=True, batch_size=2), even_batches=False)
    for index, _ in enumerate(loader):
        if index == rank:
            break
    torch.rand(rank)  # the ranks' own states differ more and more
    return read(loader)


def test_ranks_agree_again_at_the_next_pass(rank_pool):
    assert sorted(in_order(rank_pool.run(left_at_different_places, num_ranks=2))) == list(range(12))


def seedable(data_seed):
    start()
    loader = prepare_data_loader(
        DataLoader(range(12), shuffle=True, batch_size=2), use_seedable_sampler=True, data_seed=data_seed
    )
    return get_sampler(loader).initial_seed, [read(loader), read(loader)]


@pytest.mark.parametrize(("data_seed", "expected"), [(7, 7), (None, 100)])
def test_seedable_order_is_that_of_rank_0(rank_pool, data_seed, expected):
    results = rank_pool.run(seedable, data_seed, num_ranks=3)
    assert [seed for seed, _ in results] == [expected] * 3
    for epoch in range(2):
        order = torch.randperm(12, generator=torch.Generator().manual_seed(expected + epoch)).tolist()
        assert in_order([passes[epoch] for _, passes in results]) == order


def global_state():
    start()
    loader = prepare_data_loader(DataLoader(range(8), batch_size=2), rng_types=["torch"])
    next(iter(loader))
    return torch.rand(1).item()


def test_the_global_random_state_follows_rank_0_on_request(rank_pool):
    values = rank_pool.run(global_state, num_ranks=2)
    assert values[0] == values[1]


def cut_to_the_remainder(length, batch_size, split_batches):
    start()
    loader = prepare_data_loader(
        DataLoader(range(length), batch_size=batch_size, shuffle=True), split_batches=split_batches
    )
    seen = []
    for batch in loader:
        rows = gather(batch).tolist()
        last = accumulation.end_of_dataloader and accumulation.remainder > 0
        seen += rows[: accumulation.remainder] if last else rows
    return seen, len(loader), accumulation.active_loader is None


@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize("length", [1, 2, 5, 12, 13])
@pytest.mark.parametrize("split_batches", [False, True])
def test_the_gathered_last_round_cut_to_the_remainder_has_each_sample_once(
    rank_pool, num_ranks, length, split_batches
):
    batch_size = 2 * num_ranks if split_batches else 2
    results = rank_pool.run(cut_to_the_remainder, length, batch_size, split_batches, num_ranks=num_ranks)
    for seen, batches, ended in results:
        assert sorted(seen) == list(range(length))
        assert batches == -(-length // (2 * num_ranks))
        assert ended


def moved():
    state = PartialState(cpu=True)
    loader = prepare_data_loader(
        DataLoader(range(4), batch_size=1),
        device=state.device,
        put_on_device=True,
        num_processes=1,
        process_index=0,
    )
    return [str(batch.device) for batch in loader], read(loader)


def test_a_place_that_is_given_beats_that_of_the_run(rank_pool):
    assert rank_pool.run(moved, num_ranks=2) == [(["cpu"] * 4, [[0], [1], [2], [3]])] * 2


def read_along(names):
    accelerator = Accelerator(cpu=True)
    mesh = init_device_mesh("cpu", (accelerator.num_processes,), mesh_dim_names=names)
    AcceleratorState._shared_state["device_mesh"] = mesh
    return read(accelerator.prepare(DataLoader(range(8), batch_size=2)))


def test_prepare_follows_the_mesh_of_the_run(rank_pool):
    assert rank_pool.run(read_along, ("tp",), num_ranks=2) == [[[0, 1], [2, 3], [4, 5], [6, 7]]] * 2
    assert rank_pool.run(read_along, ("dp",), num_ranks=2) == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
