"""Nested collectives at 1 to 4 ranks, for containers and tensors of every kind, against plain arithmetic.

Hypothesis draws *plans*: nested containers whose leaves say how to make a tensor. Every rank makes its own
tensors from a plan and its number, so that one process can tell what the result must be. All plans of a test
run in one call of the rank pool; when one fails, hypothesis draws them again, one a call, and shrinks it.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from accelerate.modules.nested import flatten, map_leaves
from accelerate.runtime.collectives import (
    broadcast,
    broadcast_object_list,
    gather,
    gather_object,
    pad_across_processes,
    reduce,
)
from accelerate.runtime.current import current
from accelerate.state import PartialState
from tests.support.drawn import hold
from tests.support.nested_data import assert_same_structure, containers
from tests.support.rank_pool import RankPool

NUM_RANKS = pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])

REAL = [torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]
FLOATING = [dtype for dtype in REAL if dtype.is_floating_point]
DTYPES = [torch.bool, *REAL, torch.complex64]
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda tensor: tensor,
    "strided": lambda tensor: torch.stack([tensor, tensor], -1)[..., 0],
    "transposed": lambda tensor: tensor.mT.contiguous().mT if tensor.ndim > 1 else tensor,
    "conjugated": lambda tensor: tensor.conj(),
    "expanded": lambda tensor: tensor[:1].expand(tensor.shape) if tensor.ndim else tensor,
}


class Leaf:
    """How to make a tensor of small whole numbers, which are exact in every dtype.

    Attributes:
        grows: dims that are longer by the number of the rank.
    """

    def __init__(
        self, dtype: torch.dtype, shape: tuple[int, ...], layout: str = "plain", grows: tuple[int, ...] = ()
    ) -> None:
        self.dtype, self.shape, self.layout, self.grows = dtype, shape, layout, grows

    def __repr__(self) -> str:
        return f"Leaf({self.dtype}, {self.shape}, {self.layout!r}, {self.grows})"

    def tensor(self, rank: int) -> torch.Tensor:
        """Make the tensor of one rank."""
        shape = [size + rank * (dim in self.grows) for dim, size in enumerate(self.shape)]
        numbers = torch.arange(torch.Size(shape).numel()).reshape(shape) % 4 + rank
        numbers = numbers % 2 if self.dtype == torch.bool else numbers
        return LAYOUTS[self.layout](numbers.to(torch.float32).to(self.dtype))


def made(plan: Any, rank: int) -> Any:
    """Return the containers of a plan with the tensors of one rank."""
    return map_leaves(lambda leaf: leaf.tensor(rank) if isinstance(leaf, Leaf) else leaf, plan)


def plans(
    dtypes: Sequence[torch.dtype] = DTYPES, layouts: Sequence[str] = tuple(LAYOUTS), *, ragged: bool = False
) -> st.SearchStrategy[Any]:
    """Draw plans."""
    grows = st.sets(st.integers(0, 2)).map(lambda dims: tuple(sorted(dims))) if ragged else st.just(())
    shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
    leaves = st.builds(Leaf, st.sampled_from(dtypes), shapes, st.sampled_from(layouts), grows)
    return st.recursive(leaves, functools.partial(containers, pickled=True), max_leaves=10)


def same(one: torch.Tensor, other: torch.Tensor) -> None:
    """Fail unless both have the same values, shape and dtype."""
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    assert one.tolist() == other.tolist()


def against(result: Any, mine: Any, plan: Any) -> Iterator[tuple[torch.Tensor, list[torch.Tensor]]]:
    """Compare the containers, and give each tensor of a result with the inputs of all ranks."""
    assert_same_structure(result, mine)
    inputs = [flatten(made(plan, rank))[0] for rank in range(current.num_processes)]
    yield from zip(flatten(result)[0], map(list, zip(*inputs, strict=True)), strict=True)


# ---- the properties ----------------------------------------------------------------------------------------


def gathers_rows(plan: Any) -> None:
    mine = made(plan, current.process_index)
    result = gather(mine)
    if current.num_processes == 1:
        assert result is mine
        return
    for tensor, inputs in against(result, mine, plan):
        same(tensor, torch.cat([each if each.ndim else each.unsqueeze(0) for each in inputs]))


ALL = plans()


@NUM_RANKS
def test_gather_gives_the_rows_of_all_ranks(rank_pool: RankPool, num_ranks: int) -> None:
    hold(rank_pool, num_ranks, gathers_rows, ALL)


def reduces(drawn: tuple[str, Any]) -> None:
    reduction, plan = drawn
    mine = made(plan, current.process_index)
    for tensor, inputs in against(reduce(mine, reduction), mine, plan):
        dtype = tensor.dtype
        stacked = torch.stack([each.to(torch.complex128) for each in inputs])
        if reduction in ("sum", "mean"):
            expected = stacked.sum(0) / (len(inputs) if reduction == "mean" else 1)
        else:
            expected = torch.complex(getattr(stacked.real, f"a{reduction}")(0), torch.zeros(()).double())
        same(tensor, expected.to(dtype) if dtype.is_complex else expected.real.to(dtype))
    for before, after in zip(flatten(made(plan, current.process_index))[0], flatten(mine)[0], strict=True):
        same(before, after)


REDUCIBLE = st.one_of(
    st.tuples(st.just("sum"), ALL),
    st.tuples(st.just("mean"), plans([*FLOATING, torch.complex64])),
    st.tuples(st.sampled_from(["max", "min"]), plans([torch.bool, *REAL])),
)


@NUM_RANKS
def test_reduce_calculates_element_by_element(rank_pool: RankPool, num_ranks: int) -> None:
    hold(rank_pool, num_ranks, reduces, REDUCIBLE)


def broadcasts(drawn: tuple[int, Any]) -> None:
    choice, plan = drawn
    source = choice % current.num_processes
    mine = made(plan, current.process_index)
    result = broadcast(mine, from_process=source)
    for (tensor, inputs), original in zip(against(result, mine, plan), flatten(mine)[0], strict=True):
        assert tensor is original
        same(tensor, inputs[source])


WRITABLE = st.tuples(st.integers(0, 3), plans(layouts=[each for each in LAYOUTS if each != "expanded"]))


@NUM_RANKS
def test_broadcast_fills_every_tensor_in_place(rank_pool: RankPool, num_ranks: int) -> None:
    hold(rank_pool, num_ranks, broadcasts, WRITABLE)


def pads(drawn: tuple[int, int, bool, Any]) -> None:
    dim, filling, first, plan = drawn
    mine = made(plan, current.process_index)
    result = pad_across_processes(mine, dim=dim, pad_index=filling, pad_first=first)
    originals = flatten(mine)[0]
    for (tensor, inputs), original in zip(against(result, mine, plan), originals, strict=True):
        if not -original.ndim <= dim < original.ndim:
            assert tensor is original
            continue
        size = max(each.shape[dim] for each in inputs)
        missing = list(original.shape)
        missing[dim] = size - original.shape[dim]
        parts = [torch.full(missing, filling).to(original.dtype), original]
        same(tensor, torch.cat(parts if first else parts[::-1], dim))
        assert missing[dim] or tensor is original


RAGGED = st.tuples(st.integers(-3, 3), st.integers(0, 1), st.booleans(), plans(ragged=True))


@NUM_RANKS
def test_padding_makes_tensors_as_long_as_the_longest(rank_pool: RankPool, num_ranks: int) -> None:
    hold(rank_pool, num_ranks, pads, RAGGED)


def moves_objects(drawn: tuple[int, list[Any]]) -> None:
    choice, values = drawn
    size, rank = current.num_processes, current.process_index
    mine = [rank, *values] * rank
    everything = [item for each in range(size) for item in [each, *values] * each]
    assert gather_object(mine) == everything
    assert gather_object({rank: values}) == (
        [{each: values} for each in range(size)] if size > 1 else {0: values}
    )
    source = choice % size
    assert broadcast_object_list(mine, from_process=source) is mine
    assert mine == [source, *values] * source


PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.binary(max_size=5))
OBJECTS = st.recursive(PLAIN, lambda items: st.one_of(st.lists(items), st.dictionaries(st.text(), items)))
LISTS = st.tuples(st.integers(0, 3), st.lists(OBJECTS, max_size=4))


@NUM_RANKS
def test_objects_come_in_the_order_of_ranks(rank_pool: RankPool, num_ranks: int) -> None:
    hold(rank_pool, num_ranks, moves_objects, LISTS)


def divides(drawn: tuple[str, int, bool, int]) -> None:
    kind, length, padding, width = drawn
    size, rank = current.num_processes, current.process_index
    collection = COLLECTIONS[kind](length, width)
    rows = rows_of(collection)
    with PartialState().split_between_processes(collection, apply_padding=padding) as part:
        mine = rows_of(part)
    # Collectives first: a rank that fails before one leaves the others in it.
    together = gather_object(mine)
    equal = padding and length > 0
    stacked = gather(torch.tensor(mine)).tolist() if equal else together
    # numpy's rule is the same: the first parts are the longer ones.
    parts = [[rows[index] for index in indices] for indices in np.array_split(range(length), size)]
    if equal:
        longest = max(map(len, parts))
        parts = [[*each, *[rows[-1]] * (longest - len(each))] for each in parts]
    assert mine == parts[rank]
    assert together == stacked == list(itertools.chain.from_iterable(parts))
    assert (part is collection) if size == 1 else type(part) is type(collection)
    assert rows_of(collection) == rows, "the collection of the caller has changed"


def numbers(length: int, width: int) -> torch.Tensor:
    return torch.arange(length * width).reshape(length, width)


COLLECTIONS: dict[str, Callable[[int, int], Any]] = {
    "list": lambda length, width: numbers(length, width).tolist(),
    "tuple": lambda length, width: tuple(numbers(length, width).tolist()),
    "tensor": numbers,
    "dict": lambda length, width: {"x": numbers(length, width), "y": {"z": list(range(length))}, "text": "s"},
}


def rows_of(collection: Any) -> list[Any]:
    """Return the items as plain values, those of a dictionary side by side."""
    if isinstance(collection, dict):
        assert collection["text"] == "s"
        pairs = zip(collection["x"].tolist(), collection["y"]["z"], strict=True)
        return [[*row, number] for row, number in pairs]
    return collection.tolist() if isinstance(collection, torch.Tensor) else list(collection)


DIVISIBLE = st.tuples(
    st.sampled_from(sorted(COLLECTIONS)), st.integers(0, 9), st.booleans(), st.integers(1, 3)
)


@NUM_RANKS
def test_collections_are_divided_and_come_together_again(rank_pool: RankPool, num_ranks: int) -> None:
    hold(rank_pool, num_ranks, divides, DIVISIBLE)


# ---- a failure is shrunk -----------------------------------------------------------------------------------


def refuses_long_lists(plan: Any) -> None:
    gather(made(plan, current.process_index))
    assert len(flatten(plan)[0]) < 3, "planted"


def test_a_failure_is_shown_by_a_small_plan(rank_pool: RankPool) -> None:
    with pytest.raises(AssertionError) as caught:
        hold(rank_pool, 1, refuses_long_lists, ALL)
    notes = "\n".join(getattr(caught.value, "__notes__", []))
    assert "planted" in str(caught.value)
    assert 3 <= notes.count("Leaf(") <= 6, "not a small one"
