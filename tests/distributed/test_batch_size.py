"""find_executable_batch_size over ranks: one of them alone runs out of memory, and all go on alike."""

import time
from datetime import timedelta

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelerate import Accelerator
from accelerate.runtime import attempts
from accelerate.utils import InitProcessGroupKwargs, find_executable_batch_size
from tests.support.rank_pool import RankError

NO_MEMORY = "CUDA out of memory. Tried to allocate 20.00 MiB"
TIMEOUT = InitProcessGroupKwargs(timeout=timedelta(seconds=30))


def train_with(place, victims):
    """Train until it fits; ranks in `victims` run out of memory above 12 samples, at `place` of the step."""
    accelerator = Accelerator(cpu=True, kwargs_handlers=[TIMEOUT])
    rank, tried = accelerator.process_index, []

    def run_out(here, batch_size):
        if here == place and rank in victims and batch_size > 12:
            raise RuntimeError(NO_MEMORY)

    class Block(nn.Module):
        def __init__(self, batch_size):
            super().__init__()
            self.linear, self.batch_size = nn.Linear(8, 1), batch_size

        def forward(self, rows):
            run_out("forward", self.batch_size)
            output = self.linear(rows)
            output.register_hook(lambda grad: run_out("backward", self.batch_size))
            return output

    @find_executable_batch_size(starting_batch_size=16)
    def train(batch_size):
        accelerator.free_memory()
        tried.append(batch_size)
        torch.manual_seed(0)
        run_out("start", batch_size)
        model = Block(batch_size)
        loader = DataLoader(TensorDataset(torch.randn(96, 8)), batch_size=batch_size)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for (rows,) in loader:
            accelerator.backward(model(rows).square().mean())
            optimizer.step()
            optimizer.zero_grad()
        run_out("end", batch_size)
        return batch_size, accelerator.unwrap_model(model).linear.weight.tolist()

    begun = time.monotonic()
    size, weight = train()
    seconds = time.monotonic() - begun
    total = accelerator.gather(torch.tensor([rank + 1])).sum().item()
    return tried, size, weight, total, seconds


@pytest.mark.parametrize("place", ["start", "forward", "backward", "end"])
@pytest.mark.parametrize("num_ranks", [2, 3])
def test_one_rank_without_memory_takes_all_to_the_next_size(rank_pool, place, num_ranks):
    results = rank_pool.run(train_with, place, [num_ranks - 1], num_ranks=num_ranks, timeout=60)
    for tried, size, weight, total, seconds in results:
        assert tried == [16, 14, 12]
        assert size == 12
        assert weight == results[0][2]
        assert total == num_ranks * (num_ranks + 1) / 2
        assert seconds < 20


def test_rank_0_and_all_ranks_without_memory(rank_pool):
    for victims in ([0], [0, 1]):
        results = rank_pool.run(train_with, "backward", victims, num_ranks=2, timeout=60)
        assert [(tried, size) for tried, size, *_ in results] == [([16, 14, 12], 12)] * 2


def equals_never_failed():
    _, _, weight, _, _ = train_with("backward", [1])
    accelerator = Accelerator(cpu=True)
    accelerator.free_memory()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 1))
    loader = DataLoader(TensorDataset(torch.randn(96, 8)), batch_size=12)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for (rows,) in loader:
        accelerator.backward(model(rows).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    return weight == accelerator.unwrap_model(model)[0].weight.tolist()


def test_the_weights_are_those_of_a_run_that_began_so(rank_pool):
    assert rank_pool.run(equals_never_failed, num_ranks=2, timeout=60) == [True, True]


def alone():
    accelerator = Accelerator(cpu=True, kwargs_handlers=[TIMEOUT])
    limit = 10 if accelerator.process_index == 0 else 100

    @find_executable_batch_size(starting_batch_size=16)
    def probe(batch_size):
        if batch_size > limit:
            raise RuntimeError(NO_MEMORY)
        return batch_size

    own = probe()
    only_main = probe() if accelerator.is_main_process else 0
    group = torch.distributed.group.WORLD
    sizes = accelerator.gather(torch.tensor([own])).tolist()
    return own, only_main, sizes, group is torch.distributed.group.WORLD


def test_a_function_without_collectives_is_each_ranks_own(rank_pool):
    assert rank_pool.run(alone, num_ranks=2) == [(10, 10, [10, 16], True), (16, 0, [10, 16], True)]


def fail_otherwise():
    accelerator = Accelerator(cpu=True, kwargs_handlers=[TIMEOUT])

    @find_executable_batch_size(starting_batch_size=16)
    def train(batch_size):
        accelerator.reduce(torch.ones(1))
        if accelerator.process_index == 1:
            raise ValueError("no such column")
        raise RuntimeError(NO_MEMORY)

    try:
        train()
    except (ValueError, RuntimeError) as error:
        return type(error).__name__, str(error)


def test_a_rank_that_fails_otherwise_ends_the_search(rank_pool):
    first, second = rank_pool.run(fail_otherwise, num_ranks=2)
    assert second == ("ValueError", "no such column")
    assert first[0] == "RuntimeError"
    assert "another rank has failed" in first[1]
    assert NO_MEMORY in first[1]


def wait_for_nobody():
    attempts.PATIENCE = 0.2
    accelerator = Accelerator(
        cpu=True, kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(seconds=2))]
    )

    @find_executable_batch_size(starting_batch_size=16)
    def train(batch_size):
        raise RuntimeError(NO_MEMORY)

    if accelerator.is_main_process:
        train()
    else:
        time.sleep(3)


def test_who_waits_in_vain_says_for_whom(rank_pool):
    with pytest.raises(RankError, match=r"rank 1 did not come to the end of `.*train` within 2 s"):
        rank_pool.run(wait_for_nobody, num_ranks=2)
