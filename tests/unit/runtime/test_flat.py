"""Packing tensors of any dtype and layout into one buffer and taking them out again."""

import math

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from accelerate.runtime.flat import MovePlan, arithmetic, concatenate_flat, indices_by, split_flat

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
    torch.float8_e5m2,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
]


def make(shape: tuple[int, ...], dtype: torch.dtype, layout: str, seed: int) -> torch.Tensor:
    """Return a tensor of random bits."""
    generator = torch.Generator().manual_seed(seed)
    bits = torch.randint(0, 2, (math.prod(shape) * dtype.itemsize,), dtype=torch.uint8, generator=generator)
    tensor = bits.view(dtype).reshape(shape)
    if layout == "transposed" and tensor.ndim == 2:
        return tensor.t()
    if layout == "strided" and tensor.ndim:
        wide = (
            bits.new_empty((shape[0], 2, *shape[1:], dtype.itemsize))
            .view(dtype)
            .reshape(shape[0], 2, *shape[1:])
        )
        wide[:, 0] = tensor
        return wide[:, 0]
    return tensor


def bits_of(tensor: torch.Tensor) -> bytes:
    return tensor.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8).numpy().tobytes()


leaf = st.builds(
    make,
    st.sampled_from([(), (1,), (3,), (0,), (2, 3), (0, 2)]),
    st.sampled_from(DTYPES),
    st.sampled_from(["plain", "transposed", "strided"]),
    st.integers(0, 99),
)


# torch says so once a process, at whichever test comes first.
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@given(st.lists(leaf, min_size=1, max_size=8), st.integers(1, 3))
def test_rows_give_back_every_bit(leaves, num_rows):
    plan = MovePlan.of(leaves)
    row = plan.pack(leaves)
    assert (row.shape, row.dtype) == ((plan.row_bytes,), torch.uint8)
    rows = row.repeat(num_rows, 1)
    for tensor, part in zip(leaves, plan.unpack(rows), strict=True):
        assert (part.shape, part.dtype) == ((num_rows, tensor.numel()), tensor.dtype)
        for each in part:
            assert bits_of(each) == bits_of(tensor)


@given(st.lists(leaf, min_size=1, max_size=8))
def test_a_row_has_no_more_than_the_payload_and_one_alignment(leaves):
    payload = sum(tensor.numel() * tensor.dtype.itemsize for tensor in leaves)
    assert payload <= MovePlan.of(leaves).row_bytes < payload + 16


def test_plans_depend_on_shapes_and_dtypes_only():
    one = [torch.zeros(2, 3), torch.zeros(3, dtype=torch.bool), torch.zeros(1)]
    other = [torch.ones(3, 2).t(), torch.ones(3, dtype=torch.bool), torch.ones(1)]
    assert MovePlan.of(one) == MovePlan.of(other)


def test_a_contiguous_tensor_alone_is_not_copied():
    for dtype in DTYPES:
        tensor = torch.zeros(4, 2).to(dtype)
        plan = MovePlan.of([tensor])
        row = plan.pack([tensor])
        assert row.data_ptr() == tensor.data_ptr()
        assert plan.unpack(row.unsqueeze(0))[0].data_ptr() == tensor.data_ptr()


def test_conjugate_and_negative_views_are_packed_by_value():
    number = torch.tensor([1 + 2j, 3 - 4j])
    leaves = [number.conj(), number.conj().imag]
    assert leaves[0].is_conj()
    assert leaves[1].is_neg()
    plan = MovePlan.of(leaves)
    conjugate, imaginary = plan.unpack(plan.pack(leaves).unsqueeze(0))
    assert conjugate.tolist() == [[1 - 2j, 3 + 4j]]
    assert imaginary.tolist() == [[-2.0, 4.0]]


def test_indices_by_keeps_the_order():
    groups = indices_by(lambda tensor: tensor.dtype, [torch.ones(1), torch.ones(1).int(), torch.ones(1)])
    assert list(groups.items()) == [(torch.float32, [0, 2]), (torch.int32, [1])]


def test_split_flat_reverses_concatenate_flat_with_memory_of_its_own():
    leaves = [torch.arange(6.0).reshape(2, 3).t(), torch.tensor(7.0), torch.ones(0, 2)]
    parts = split_flat(concatenate_flat(leaves), [tensor.shape for tensor in leaves])
    assert all(torch.equal(part, tensor) for part, tensor in zip(parts, leaves, strict=True))
    assert all(part.untyped_storage().nbytes() == part.numel() * 4 for part in parts)


def summed(values: list[torch.Tensor], reduction: str) -> torch.Tensor:
    """Do what a backend would with one value of each rank."""
    plan = arithmetic(values[0].dtype, reduction)
    apply = {
        dist.ReduceOp.SUM: torch.add,
        dist.ReduceOp.MAX: torch.maximum,
        dist.ReduceOp.MIN: torch.minimum,
    }[plan.operation]
    total = plan.encode(values[0].clone())
    for value in values[1:]:
        total = apply(total, plan.encode(value))
    return plan.decode(total)


@pytest.mark.parametrize("reduction", ["sum", "max", "min"])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
def test_bools_stay_bools(reduction, first, second):
    result = summed([torch.tensor([first]), torch.tensor([second])], reduction)
    expected = (first and second) if reduction == "min" else (first or second)
    assert result.view(torch.uint8).item() == int(expected)


@pytest.mark.parametrize("dtype", [torch.int16, torch.uint16, torch.uint32, torch.uint64])
def test_integers_that_backends_lack_add_up_and_wrap(dtype):
    largest = torch.iinfo(dtype).max
    values = [torch.tensor([largest, 5], dtype=dtype), torch.tensor([2, 6], dtype=dtype)]
    result = summed(values, "sum")
    assert result.dtype == dtype
    assert result.tolist() == [torch.iinfo(dtype).min + 1, 11]


@pytest.mark.parametrize("dtype", [torch.int16, torch.uint16, torch.uint32])
def test_integers_that_backends_lack_are_ordered_by_value(dtype):
    largest = torch.iinfo(dtype).max
    values = [torch.tensor([largest, 5], dtype=dtype), torch.tensor([2, 6], dtype=dtype)]
    assert summed(values, "max").tolist() == [largest, 6]
    assert summed(values, "min").tolist() == [2, 5]


def test_complex_numbers_add_up_but_have_no_order():
    assert summed([torch.tensor([1 + 2j]), torch.tensor([3 - 1j])], "sum").tolist() == [4 + 1j]
    for reduction in ("max", "min"):
        with pytest.raises(TypeError, match=f'"{reduction}".*complex64'):
            arithmetic(torch.complex64, reduction)


@pytest.mark.parametrize(("dtype", "reduction"), [(torch.uint64, "max"), (torch.float8_e4m3fn, "sum")])
def test_what_no_backend_calculates(dtype, reduction):
    with pytest.raises(TypeError, match="not supported"):
        arithmetic(dtype, reduction)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64])
def test_integers_have_no_mean(dtype):
    with pytest.raises(RuntimeError, match=r"mean.*\.float\(\)"):
        arithmetic(dtype, "mean")
