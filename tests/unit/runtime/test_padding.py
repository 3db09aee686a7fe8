"""Batches filled up until they can be divided among processes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from accelerate.runtime.padding import pad_input_tensors


@given(batch_size=st.integers(0, 9), num_processes=st.integers(1, 5), dim=st.sampled_from([0, 1, -1, -2]))
def test_a_batch_is_filled_up_to_the_next_multiple(batch_size, num_processes, dim):
    shape = [3, 3]
    shape[dim] = batch_size
    batch = torch.arange(1.0, batch_size * 3 + 1).view(shape)
    padded = pad_input_tensors(batch, batch_size, num_processes, dim)
    size = padded.shape[dim]
    assert size % num_processes == 0
    assert size - batch_size < num_processes if batch_size else size == num_processes
    assert torch.equal(padded.narrow(dim, 0, batch_size), batch)
    assert not padded.narrow(dim, batch_size, size - batch_size).any()


def test_nested_containers_and_tensors_without_the_dim():
    scalar = torch.tensor(3)
    mask = torch.ones(3, dtype=torch.bool)
    padded = pad_input_tensors({"mask": mask, "rest": (scalar, [torch.ones(3, 1)])}, 3, 2)
    assert padded["mask"].tolist() == [True, True, True, False]
    assert padded["rest"][0] is scalar
    assert padded["rest"][1][0].shape == (4, 1)


def test_nothing_is_copied_where_nothing_is_missing_and_gradients_flow():
    batch = torch.ones(4, requires_grad=True)
    assert pad_input_tensors(batch, 4, 2) is batch
    pad_input_tensors(batch, 4, 3).sum().backward()
    assert batch.grad.tolist() == [1.0] * 4


def test_what_cannot_be_padded_is_an_error():
    with pytest.raises(TypeError, match="str"):
        pad_input_tensors([torch.ones(3), "text"], 3, 2)
    with pytest.raises(ValueError, match=r"num_processes=0\)`: pass 1 or more"):
        pad_input_tensors(torch.ones(3), 3, 0)
