"""A tensor that one of 2 or 3 ranks has: its shape and values on all, and errors on all."""

from datetime import timedelta
from typing import Any

import pytest
import torch

from accelerate.runtime.collectives import gather
from accelerate.runtime.current import current
from accelerate.runtime.one_holder import copy_tensor_to_devices, gather_tensor_shape
from accelerate.runtime.padding import pad_input_tensors
from tests.support.rank_pool import RankPool

NUM_RANKS = pytest.mark.parametrize("num_ranks", [2, 3])
HELD = [
    torch.tensor([1.5, 2.0]),
    torch.arange(6).view(2, 3).T,
    torch.tensor(True),
    torch.ones(0, 3, dtype=torch.bfloat16),
    torch.tensor([1 + 2j]),
]


def join() -> tuple[int, int]:
    current.start(cpu=True, timeout=timedelta(seconds=20))
    return current.world.rank, current.world.size


def held_by_one(holder: int) -> list[tuple[Any, int]]:
    rank, _ = join()
    for tensor in HELD:
        before = tensor.clone()
        copy = copy_tensor_to_devices(tensor if rank == holder else None)
        assert (copy.dtype, copy.shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(copy, tensor)
        assert torch.equal(tensor, before)
    found = [gather_tensor_shape(tensor if rank == holder else None) for tensor in HELD[:4]]
    return [(shape.tolist(), number) for shape, number in found]


@NUM_RANKS
@pytest.mark.parametrize("holder", [0, 1])
def test_every_rank_gets_shape_and_values(rank_pool: RankPool, num_ranks: int, holder: int) -> None:
    expected = [([[2]], 1), ([[3], [2]], 9), ([], 10), ([[0], [3]], 4)]
    assert rank_pool.run(held_by_one, holder, num_ranks=num_ranks) == [expected] * num_ranks


def message(call: Any, given: Any) -> str:
    try:
        call(given)
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def disagreeing() -> list[str]:
    rank, _ = join()
    messages = [
        message(call, given)
        for call in (copy_tensor_to_devices, gather_tensor_shape)
        for given in (None, torch.ones(2), "text" if rank == 1 else None)
    ]
    messages.append(message(gather_tensor_shape, torch.ones(2).cfloat() if rank == 1 else None))
    assert copy_tensor_to_devices(torch.ones(2) if rank == 0 else None).tolist() == [1.0, 1.0]
    return messages


@NUM_RANKS
def test_ranks_that_do_not_fit_together_all_raise(rank_pool: RankPool, num_ranks: int) -> None:
    ranks = ", ".join(map(str, range(num_ranks)))
    for found in rank_pool.run(disagreeing, num_ranks=num_ranks):
        for nobody, several, text in (found[:3], found[3:6]):
            assert nobody.startswith("ValueError")
            assert "tensors on no rank" in nobody
            assert several.startswith("ValueError")
            assert f"tensors on ranks {ranks}." in several
            assert text.startswith("TypeError")
            assert "of type str on rank 1" in text
        assert "torch.complex64 on rank 1" in found[6]


def padded_shares() -> list[int]:
    rank, size = join()
    batch = copy_tensor_to_devices(torch.arange(1, 6) if rank == 0 else None)
    padded = pad_input_tensors({"x": batch}, 5, size)
    share = padded["x"].chunk(size)[rank]
    shares: list[int] = gather(share).tolist()
    return shares


@NUM_RANKS
def test_a_padded_batch_is_divided_evenly(rank_pool: RankPool, num_ranks: int) -> None:
    assert rank_pool.run(padded_shares, num_ranks=num_ranks) == [[1, 2, 3, 4, 5, 0]] * num_ranks
