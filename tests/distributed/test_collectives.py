"""Collectives between 2 and 3 ranks: values against plain arithmetic, and how many collectives they take."""

import contextlib
import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from accelerate.modules.nested import flatten
from accelerate.runtime.collectives import (
    CannotPadNestedTensorWarning,
    broadcast,
    broadcast_object_list,
    current_ranks,
    gather,
    gather_object,
    pad_across_processes,
    reduce,
    wait_for_everyone,
)
from accelerate.runtime.current import current
from accelerate.runtime.header import GlooChannel
from accelerate.runtime.rank_group import RankGroup
from tests.support.rank_pool import RankPool

NUM_RANKS = pytest.mark.parametrize("num_ranks", [2, 3])
TIMEOUT = timedelta(seconds=20)
Pair = namedtuple("Pair", "first second")

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.uint16,
    torch.int32,
    torch.uint32,
    torch.int64,
    torch.uint64,
    torch.float8_e4m3fn,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]
SENDING = [
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_single",
    "all_gather_object",
    "all_reduce",
    "reduce",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "scatter",
    "send",
    "recv",
    "barrier",
    "all_to_all",
    "reduce_scatter_tensor",
]


def join() -> tuple[int, int]:
    """Start the current run; return rank and number of ranks."""
    current.start(cpu=True, timeout=TIMEOUT)
    return current.world.rank, current.world.size


@contextlib.contextmanager
def counted() -> Iterator[list[str]]:
    """List the functions of torch.distributed that are called to send something, and the headers."""
    calls: list[str] = []
    exchange = GlooChannel._exchange

    def counting(name: str, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            return function(*args, **kwargs)

        return call

    originals = {name: getattr(dist, name) for name in SENDING if hasattr(dist, name)}
    for name, function in originals.items():
        setattr(dist, name, counting(name, function))
    GlooChannel._exchange = counting("header", exchange)  # type: ignore[method-assign]
    try:
        yield calls
    finally:
        GlooChannel._exchange = exchange  # type: ignore[method-assign]
        for name, function in originals.items():
            setattr(dist, name, function)


def tensor_of(rank: int, dtype: torch.dtype, shape: tuple[int, ...] = (2, 3)) -> torch.Tensor:
    """Return small whole numbers that differ by rank and position, exact in every dtype."""
    numbers = torch.arange(torch.Size(shape).numel()).reshape(shape) % 4 + rank
    return (numbers % 2 if dtype == torch.bool else numbers).to(torch.float32).to(dtype)


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Compare value, shape and dtype; float8 and unsigned dtypes have no `equal`."""
    return one.dtype == other.dtype and one.shape == other.shape and one.tolist() == other.tolist()


def nested_of(rank: int) -> dict[str, Any]:
    """Return 100 tensors of one dtype in nested containers."""
    return OrderedDict(
        (
            f"group {g}",
            [
                (torch.full((2, 3), float(rank + g)), {"deep": Pair(torch.ones(i + 1), torch.tensor(i))})
                for i in range(10)
            ],
        )
        for g in range(3)
    ) | {"last": [torch.full((1,), float(rank)) for _ in range(10)]}


# gather ---------------------------------------------------------------------------------------------------


def gathered_dtypes() -> None:
    rank, size = join()
    layouts = {
        "plain": lambda tensor: tensor,
        "transposed": lambda tensor: tensor.t(),
        "strided": lambda tensor: tensor[:, ::2],
        "column": lambda tensor: tensor[:, 1],
        "no dims": lambda tensor: tensor[0, 1],
        "empty": lambda tensor: tensor[:0],
        "one element": lambda tensor: tensor[:1, 1],
    }
    for dtype in DTYPES:
        for name, layout in layouts.items():
            expected = [layout(tensor_of(r, dtype)) for r in range(size)]
            result = gather(layout(tensor_of(rank, dtype)))
            values = [row for each in expected for row in (each.tolist() if each.ndim else [each.item()])]
            assert result.tolist() == values, (dtype, name)
            assert result.dtype == dtype
            assert result.shape[1:] == expected[0].shape[1:]


@NUM_RANKS
def test_gather_of_every_dtype_and_layout(rank_pool: RankPool, num_ranks: int) -> None:
    rank_pool.run(gathered_dtypes, num_ranks=num_ranks)


def gathered_mixture() -> None:
    rank, size = join()
    wait_for_everyone()  # the first call connects the ranks
    mine, all_of_them = mixture(rank), [mixture(r) for r in range(size)]
    with counted() as calls:
        result = gather(mine)
    assert len(calls) == 2, calls
    assert list(result) == list(mine)
    for key, value in result.items():
        rows = [each[key] if each[key].ndim else each[key].unsqueeze(0) for each in all_of_them]
        assert value.tolist() == [row for each in rows for row in each.tolist()], key
        assert value.dtype == mine[key].dtype
        assert value.untyped_storage().nbytes() == value.numel() * value.itemsize, "shares the buffer"


def mixture(rank: int) -> dict[str, torch.Tensor]:
    shapes = [(), (1,), (3,), (2, 3), (0, 4)]
    return {f"{dtype} {shape}": tensor_of(rank, dtype, shape) for dtype in DTYPES for shape in shapes}


@NUM_RANKS
def test_gather_of_all_dtypes_together_is_one_collective(rank_pool: RankPool, num_ranks: int) -> None:
    rank_pool.run(gathered_mixture, num_ranks=num_ranks)


def gathered_structure() -> Any:
    rank, _ = join()
    data = {"a": [torch.tensor([rank]), (torch.tensor(rank),)], "b": Pair(torch.tensor([[rank, 1]]), {})}
    weight = torch.nn.Parameter(torch.full((1,), float(rank)))
    assert not gather(weight * 2).requires_grad
    with torch.inference_mode():
        assert gather(weight * 2).tolist() == [0.0, 2.0]
    return gather(data)


def test_gather_keeps_containers_and_makes_vectors_of_scalars(rank_pool: RankPool) -> None:
    expected = {
        "a": [torch.tensor([0, 1]), (torch.tensor([0, 1]),)],
        "b": Pair(torch.tensor([[0, 1], [1, 1]]), {}),
    }
    for result in rank_pool.run(gathered_structure):
        assert type(result["b"]) is Pair
        assert [leaf.tolist() for leaf in flatten(result)[0]] == [
            leaf.tolist() for leaf in flatten(expected)[0]
        ]
        assert flatten(result)[0][0].dtype == torch.int64


# counts ---------------------------------------------------------------------------------------------------


def counts() -> dict[str, list[str]]:
    rank, _ = join()
    wait_for_everyone()  # the first call connects the ranks
    found = {}
    one_dtype = [leaf.float() for leaf in flatten(nested_of(rank))[0]]
    for name, operation in [
        ("gather", gather),
        ("reduce", reduce),
        ("broadcast", broadcast),
        ("pad", pad_across_processes),
    ]:
        with counted() as calls:
            operation(one_dtype)
        found[name] = calls
    with counted() as calls:
        reduce(nested_of(rank), "sum")
    found["reduce of two dtypes"] = calls
    with counted() as calls:
        gather([]), reduce({}), broadcast(()), pad_across_processes([])
    found["nothing"] = calls
    with counted() as calls:
        wait_for_everyone()
    found["wait"] = calls
    return found


@NUM_RANKS
def test_the_number_of_collectives(rank_pool: RankPool, num_ranks: int) -> None:
    assert len(flatten(nested_of(0))[0]) == 100
    for found in rank_pool.run(counts, num_ranks=num_ranks):
        header, gather_call = found.pop("gather")
        assert header == "header"
        assert gather_call.startswith("all_gather")
        assert found == {
            "reduce": ["header", "all_reduce"],
            "broadcast": ["header", "broadcast"],
            "pad": ["header"],  # which carries the sizes
            "reduce of two dtypes": ["header", "all_reduce", "all_reduce"],
            "nothing": ["header"] * 4,
            "wait": ["header"],
        }


# reduce ---------------------------------------------------------------------------------------------------


def reduced() -> None:
    rank, size = join()
    for reduction in ("sum", "mean", "max", "min"):
        for dtype in DTYPES:
            stacked = torch.stack([tensor_of(r, dtype).to(torch.complex128) for r in range(size)])
            if not is_reducible(dtype, reduction):
                with pytest.raises((RuntimeError, TypeError)):
                    reduce(tensor_of(rank, dtype), reduction)
                continue
            if reduction in ("sum", "mean"):
                expected = stacked.sum(0) / (size if reduction == "mean" else 1)
            else:
                real = stacked.real
                expected = real.amax(0) if reduction == "max" else real.amin(0)
            expected = expected.to(dtype) if dtype.is_complex else expected.real.to(dtype)
            mine = tensor_of(rank, dtype)
            for result in (reduce(mine, reduction), *reduce([mine, mine.t().contiguous().t()], reduction)):
                assert same(result, expected), (dtype, reduction)
            assert same(mine, tensor_of(rank, dtype)), "the input was changed"


def is_reducible(dtype: torch.dtype, reduction: str) -> bool:
    if dtype == torch.float8_e4m3fn:
        return False
    if reduction == "mean":
        return dtype.is_floating_point or dtype.is_complex
    return reduction == "sum" or not (dtype.is_complex or dtype == torch.uint64)


@NUM_RANKS
def test_reduce_of_every_dtype(rank_pool: RankPool, num_ranks: int) -> None:
    rank_pool.run(reduced, num_ranks=num_ranks)


def reduced_edges() -> None:
    rank, size = join()
    assert reduce(torch.tensor(float(rank)), "sum").shape == ()
    assert reduce(torch.ones(0, 3), "mean").shape == (0, 3)
    many = reduce([torch.ones(1000), torch.tensor(1.0)], "sum")
    assert many[1].untyped_storage().nbytes() == 4, "a small result keeps the whole buffer alive"
    number = torch.tensor([1 + 2j]).conj()
    assert reduce([number, number.imag], "sum")[0].tolist() == [size * (1 - 2j)]
    assert reduce(torch.ones(2, 1)[:, 0][:1], "mean").tolist() == [1.0]


def test_reduce_of_scalars_empties_and_views(rank_pool: RankPool) -> None:
    rank_pool.run(reduced_edges)


def reduced_gradients() -> list[list[float]]:
    rank, _ = join()
    found = []
    for reduction in ("sum", "mean"):
        weight = torch.tensor([1.0 + rank], requires_grad=True)
        loss, other = reduce([weight * 2, torch.ones(1)], reduction)
        assert not other.requires_grad
        loss.backward()
        assert weight.grad is not None
        found.append([loss.item(), weight.grad.item()])
        with torch.no_grad():
            assert not reduce(weight, reduction).requires_grad
    return found


def test_gradients_flow_to_a_ranks_own_part(rank_pool: RankPool) -> None:
    for found in rank_pool.run(reduced_gradients):
        assert found == [[6.0, 2.0], [3.0, 1.0]]


# broadcast ------------------------------------------------------------------------------------------------


def broadcasted(source: int) -> None:
    rank, _ = join()
    wait_for_everyone()  # the first call connects the ranks
    mine, expected = mixture(rank), mixture(source)
    with counted() as calls:
        result = broadcast(mine, source)
    assert calls == ["header", "broadcast"]
    for key, value in result.items():
        assert value is mine[key]
        assert same(value, expected[key]), key
    for dtype in DTYPES:
        for layout in (lambda tensor: tensor, lambda tensor: tensor.t(), lambda tensor: tensor[:1, 1]):
            tensor = layout(tensor_of(rank, dtype))
            assert broadcast(tensor, from_process=source) is tensor
            assert same(tensor, layout(tensor_of(source, dtype))), dtype


@NUM_RANKS
@pytest.mark.parametrize("source", [0, 1])
def test_broadcast_fills_tensors_in_place(rank_pool: RankPool, num_ranks: int, source: int) -> None:
    rank_pool.run(broadcasted, source, num_ranks=num_ranks)


def broadcasted_leaves() -> None:
    rank, _ = join()
    weight = torch.nn.Parameter(torch.full((2,), float(rank)))
    wide = torch.full((2, 3), float(rank))
    broadcast({"weight": weight, "column": wide[:, 1]}, from_process=1)
    assert weight.tolist() == [1.0, 1.0]
    assert weight.requires_grad
    assert weight.is_leaf
    assert wide.tolist() == [[rank, 1.0, rank]] * 2


def test_broadcast_into_parameters_and_parts_of_tensors(rank_pool: RankPool) -> None:
    rank_pool.run(broadcasted_leaves)


# pad ------------------------------------------------------------------------------------------------------


def padded() -> None:
    rank, size = join()
    for dtype in DTYPES:
        mine = tensor_of(rank, dtype, (rank + 1, 2))
        for first in (False, True):
            filling = torch.ones(size - rank - 1, 2).to(dtype)
            rows = filling.tolist() + mine.tolist() if first else mine.tolist() + filling.tolist()
            result = pad_across_processes(mine, pad_index=1, pad_first=first)
            assert result.tolist() == rows
            assert result.dtype == dtype
            turned = pad_across_processes(mine.t().contiguous().t(), dim=-2, pad_index=1, pad_first=first)
            assert same(turned, result)
    ragged = {"long": torch.ones(rank + 1, 2), "wide": [torch.ones(2, 4 - rank)], "none": torch.ones(2)}
    assert pad_across_processes(ragged, dim=1)["wide"][0].tolist() == [[1.0] * (4 - rank) + [0.0] * rank] * 2
    assert pad_across_processes(ragged)["long"].shape == (size, 2)
    for dim in (0, 1):
        assert pad_across_processes(ragged, dim=dim)["none"] is ragged["none"]
    assert pad_across_processes(ragged, dim=1)["long"] is ragged["long"]
    longest = torch.ones(size, 1)
    assert (pad_across_processes(ragged | {"same": longest})["same"] is longest) is True
    for dim in (2, -3, 9):
        assert pad_across_processes(ragged, dim=dim)["long"] is ragged["long"]
    assert pad_across_processes(torch.tensor(rank)).item() == rank
    assert gather(pad_across_processes(ragged["long"])).shape == (size * size, 2)


@NUM_RANKS
def test_padding(rank_pool: RankPool, num_ranks: int) -> None:
    rank_pool.run(padded, num_ranks=num_ranks)


def padded_gradients() -> list[float]:
    rank, _ = join()
    weight = torch.ones(rank + 1, requires_grad=True)
    (pad_across_processes(weight * 3, pad_index=7) * torch.arange(1.0, 3.0)).sum().backward()
    assert weight.grad is not None
    return weight.grad.tolist()


def test_gradients_flow_through_padding(rank_pool: RankPool) -> None:
    assert rank_pool.run(padded_gradients) == [[3.0], [3.0, 6.0]]


def padded_nested_tensor() -> None:
    rank, size = join()
    ragged = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kept, dense = pad_across_processes([ragged, torch.ones(rank + 1)])
    assert [warning.category for warning in caught] == [CannotPadNestedTensorWarning]
    assert kept is ragged
    assert dense.shape == (size,)


def test_nested_tensors_are_left_beside_others_that_are_padded(rank_pool: RankPool) -> None:
    rank_pool.run(padded_nested_tensor)


# objects --------------------------------------------------------------------------------------------------


def objects() -> list[Any]:
    rank, _ = join()
    return [
        gather_object([rank, {"rank": rank}]),
        gather_object((rank,)),
        gather_object({"rank": rank}),
        gather_object("ab"),
        gather_object(None),
        gather_object(rank),
        gather_object([] if rank == 0 else [rank]),
        gather_object([rank] if rank == 0 else "text"),
        [tensor.tolist() for tensor in gather_object(torch.tensor([rank]))],
        gather_object(Pair(rank, 1)),
    ]


def test_gather_object(rank_pool: RankPool) -> None:
    for result in rank_pool.run(objects):
        assert result == [
            [0, {"rank": 0}, 1, {"rank": 1}],
            [0, 1],
            [{"rank": 0}, {"rank": 1}],
            ["ab", "ab"],
            [None, None],
            [0, 1],
            [1],
            [[0], "text"],
            [[0], [1]],
            [Pair(0, 1), Pair(1, 1)],
        ]


def object_lists(source: int) -> list[Any]:
    rank, _ = join()
    mine = [rank, {"from": rank}, None]
    shorter = [rank] * (rank + 1)
    assert broadcast_object_list(mine, from_process=source) is mine
    broadcast_object_list(shorter, from_process=source)
    return [mine, shorter, broadcast_object_list([], source)]


@pytest.mark.parametrize("source", [0, 2])
def test_broadcast_object_list_fills_the_list_also_in_length(rank_pool: RankPool, source: int) -> None:
    for result in rank_pool.run(object_lists, source, num_ranks=3):
        assert result == [[source, {"from": source}, None], [source] * (source + 1), []]


# errors and groups ----------------------------------------------------------------------------------------


def refused() -> list[str]:
    join()
    messages = []
    for operation in (gather, reduce, broadcast, pad_across_processes):
        with pytest.raises(TypeError) as caught:
            operation({"a": [torch.ones(1), None]})
        messages.append(str(caught.value))
    assert gather(torch.ones(1)).tolist() == [1.0, 1.0], "the group cannot be used any more"
    return messages


def test_other_objects_are_refused_with_their_place(rank_pool: RankPool) -> None:
    for rank, messages in enumerate(rank_pool.run(refused)):
        for name, message in zip(("gather", "reduce", "broadcast", "pad_across"), messages, strict=True):
            assert f"`{name}" in message
            assert f"NoneType at ['a'][1] on rank {rank}" in message


def part_of_the_ranks() -> list[float]:
    rank, _ = join()
    members = [1, 2]
    group = dist.new_group(members, backend="gloo", timeout=TIMEOUT)
    if rank not in members:
        return []
    assert isinstance(group, dist.ProcessGroup)
    ranks = RankGroup(size=2, rank=members.index(rank), device=torch.device("cpu"), group=group)
    mine = torch.tensor([float(rank)])
    filled = ranks.broadcast(mine.clone(), from_process=1)
    listed = ranks.broadcast_object_list([rank], from_process=1)
    ragged = ranks.pad_across_processes(torch.ones(rank))
    return [
        *ranks.gather(mine),
        ranks.reduce(mine, "max"),
        filled,
        *listed,
        len(ragged),
        *ranks.gather_object([rank]),
    ]


def test_a_group_of_some_ranks_counts_its_own(rank_pool: RankPool) -> None:
    outside, *inside = rank_pool.run(part_of_the_ranks, num_ranks=3)
    assert outside == []
    assert [[float(value) for value in values] for values in inside] == [[1, 2, 2, 2, 2, 2, 1, 2]] * 2


def unreachable_device() -> None:
    """Ask where leaves travel when the run is on a device that no backend reaches; "meta" stands for it."""
    rank, size = join()
    ranks = RankGroup(size=size, rank=rank, device=torch.device("meta"))
    assert ranks._reachable(torch.device("cpu")) == torch.device("cpu"), "gloo sends from the CPU"
    assert ranks._reachable(torch.device("xpu")) == torch.device("meta")
    assert current_ranks()._reachable(torch.device("cpu", 0)) == torch.device("cpu", 0)


def test_a_device_that_the_backend_does_not_reach(rank_pool: RankPool) -> None:
    rank_pool.run(unreachable_device)
