"""A tensor that one process has, with one process; several are in tests/distributed."""

import pytest
import torch

from accelerate.runtime.current import current
from accelerate.runtime.one_holder import (
    TENSOR_INT_TO_DTYPE,
    TENSOR_TYPE_TO_INT,
    copy_tensor_to_devices,
    gather_tensor_shape,
)


@pytest.fixture(autouse=True)
def alone():
    current.start(cpu=True)
    yield
    current.reset()


def test_the_two_tables_are_each_others_reverse():
    assert {TENSOR_INT_TO_DTYPE[number]: number for number in TENSOR_INT_TO_DTYPE} == TENSOR_TYPE_TO_INT


@pytest.mark.parametrize("dtype", TENSOR_TYPE_TO_INT)
@pytest.mark.parametrize("shape", [(), (0, 3), (5, 2)])
def test_one_process_has_the_tensor_itself(dtype, shape):
    tensor = torch.zeros(shape, dtype=dtype)
    found, number = gather_tensor_shape(tensor)
    assert torch.equal(found, torch.tensor(shape, dtype=torch.int32).view(-1, 1))
    assert found.dtype == torch.int32
    assert TENSOR_INT_TO_DTYPE[number] == dtype
    copy = copy_tensor_to_devices(tensor)
    assert copy.data_ptr() == tensor.data_ptr()
    assert (copy.shape, copy.dtype) == (tensor.shape, dtype)


def test_no_gradient_flows():
    assert not copy_tensor_to_devices(torch.ones(1, requires_grad=True)).requires_grad


@pytest.mark.parametrize("call", [gather_tensor_shape, copy_tensor_to_devices])
def test_what_is_no_dense_tensor_is_an_error(call):
    with pytest.raises(ValueError, match=f"`{call.__name__}` takes a tensor on one .* tensors on no rank"):
        call(None)
    with pytest.raises(TypeError, match=f"`{call.__name__}` was given an object of type list on rank 0"):
        call([torch.ones(1)])
    with pytest.raises(TypeError, match=r"a tensor of layout torch\.sparse_coo on rank 0"):
        call(torch.eye(2).to_sparse())


def test_a_dtype_without_a_number_can_only_be_copied():
    tensor = torch.ones(1, dtype=torch.complex64)
    with pytest.raises(TypeError, match=r"dtype torch\.complex64 on rank 0, which has no number"):
        gather_tensor_shape(tensor)
    assert copy_tensor_to_devices(tensor).tolist() == [1 + 0j]
