"""What loaders ask of a batch: size, structure, slices and joins of nested containers."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from accelerate.modules.batch import (
    concatenate,
    find_batch_size,
    get_data_structure,
    get_shape,
    ignorant_find_batch_size,
    initialize_tensors,
    is_torch_xpu_tensor,
    listify,
    slice_tensors,
)
from accelerate.modules.nested import TensorInformation, flatten, is_tensor_information, is_torch_tensor
from tests.support.nested_data import Output, Point, assert_same_structure, containers, nested_data


@given(nested_data)
def test_data_structure_describes_and_initialize_follows_it(data):
    structure = get_data_structure(data)
    made = initialize_tensors(structure)
    assert_same_structure(data, made)
    for leaf, information, fresh in zip(
        flatten(data)[0], flatten(structure)[0], flatten(made)[0], strict=True
    ):
        if is_torch_tensor(leaf):
            assert information == TensorInformation(leaf.shape, leaf.dtype)
            assert (fresh.shape, fresh.dtype) == (leaf.shape, leaf.dtype)
        else:
            assert information is leaf is fresh


@given(st.recursive(st.just((2, 3)).map(torch.ones), containers, max_leaves=6), st.integers(0, 1))
def test_slices_concatenate_to_the_whole(data, dim):
    index = (slice(None),) * dim
    parts = [slice_tensors(data, (*index, slice(0, 1))), slice_tensors(data, (*index, slice(1, None)))]
    whole = concatenate(parts, dim=dim)
    assert_same_structure(data, whole)
    for leaf, joined in zip(flatten(data)[0], flatten(whole)[0], strict=True):
        assert torch.equal(leaf, joined)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (torch.ones(2, 3), 2),
        ({"b": [torch.ones(4)], "a": torch.ones(5)}, 4),
        (Point([torch.ones(0, 2)], "text"), 0),
        ([torch.ones(2), 3], 2),
        (Output(None, torch.ones(3)), 3),
    ],
)
def test_batch_size_is_that_of_the_first_tensor(data, size):
    assert find_batch_size(data) == ignorant_find_batch_size(data) == size


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ("text", TypeError),
        ([3, torch.ones(2)], TypeError),
        ([], ValueError),
        ({"a": {}}, ValueError),
        (Output(None), ValueError),
    ],
)
def test_no_batch_size(data, error):
    with pytest.raises(error):
        find_batch_size(data)
    assert ignorant_find_batch_size(data) is None


def test_a_tensor_without_dims_has_no_batch_size():
    with pytest.raises(IndexError, match="without dims"):
        find_batch_size([torch.tensor(1)])


def test_listify_and_shapes():
    data = {"a": torch.ones(1, 2, dtype=torch.bfloat16), "b": (torch.tensor(True), "text")}
    assert listify(data) == {"a": [[1.0, 1.0]], "b": (True, "text")}
    assert get_shape(data) == {"a": [1, 2], "b": ([], "text")}
    assert is_tensor_information(get_data_structure(data)["a"])
    assert not is_tensor_information(data)


def test_slice_tensors_takes_the_arguments_of_other_slicing_functions():
    assert (
        slice_tensors([torch.arange(4), "text"], slice(1, 3), process_index=1, num_processes=2)[1] == "text"
    )
    assert slice_tensors(torch.arange(4), slice(1, 3), 1, 2).tolist() == [1, 2]


def test_concatenate_refuses_what_is_no_tensor():
    with pytest.raises(TypeError, match="str"):
        concatenate([{"a": "text"}, {"a": "text"}])
    with pytest.raises(ValueError, match="nothing"):
        concatenate([])


def test_a_tensor_on_an_xpu_is_told_from_all_else():
    with FakeTensorMode():
        assert is_torch_xpu_tensor(torch.empty(2, device="xpu"))
    assert not any(map(is_torch_xpu_tensor, [torch.ones(2), [torch.ones(2)], "xpu", None]))
