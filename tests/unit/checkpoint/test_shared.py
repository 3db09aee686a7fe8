"""Which tensors of a state dict are written, and that all come back."""

import logging

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes

from accelerate.checkpoint.shared import clean_state_dict_for_safetensors, covered_names, with_shared_names


def test_of_tied_tensors_the_first_name_is_kept_with_a_warning(caplog):
    weight = torch.randn(2, 2)
    with caplog.at_level(logging.WARNING):
        cleaned = clean_state_dict_for_safetensors({"b": weight, "a": weight, "c": torch.ones(1)})
    assert list(cleaned) == ["b", "c"]
    assert "'a' (with 'b')" in caplog.text


def test_nothing_is_said_or_copied_where_nothing_is_shared(caplog):
    state = {"a": torch.ones(2), "b": torch.ones(2)}
    cleaned = clean_state_dict_for_safetensors(state)
    assert cleaned is not state
    assert all(cleaned[name] is state[name] for name in state)
    assert not caplog.records


def test_the_given_dictionary_is_not_changed():
    weight = torch.ones(2)
    state = {"a": weight, "b": weight}
    clean_state_dict_for_safetensors(state)
    assert list(state) == ["a", "b"]


def test_views_side_by_side_in_one_buffer_are_all_written():
    buffer = torch.arange(10.0)
    cleaned = clean_state_dict_for_safetensors({"first": buffer[:5], "second": buffer[5:]})
    assert torch.equal(cleaned["first"], torch.arange(5.0))
    assert torch.equal(cleaned["second"], torch.arange(5.0, 10.0))
    from_bytes(to_bytes(cleaned))


def test_a_view_is_covered_by_the_whole_whatever_their_order():
    whole = torch.arange(6.0).view(2, 3)
    assert covered_names({"row": whole[0], "whole": whole}) == {"row": "whole"}
    assert covered_names({"whole": whole, "turned": whole.t()}) == {"turned": "whole"}


def test_interleaved_columns_do_not_cover_each_other():
    matrix = torch.arange(6.0).view(3, 2)
    assert covered_names({"left": matrix[:, 0], "right": matrix[:, 1]}) == {}


def test_a_dense_looking_number_of_elements_is_not_enough():
    # Eight elements over a span of eight places, two of which none of them uses.
    memory = torch.arange(8.0)
    gaps = memory.as_strided((2, 2, 2), (1, 1, 5))
    assert covered_names({"gaps": gaps, "unused": memory[3:5]}) == {}


def test_what_has_no_memory_of_its_own_is_left_alone():
    state = {
        "meta": torch.empty(2, device="meta"),
        "other meta": torch.empty(2, device="meta"),
        "empty": torch.empty(0),
        "sparse": torch.eye(2).to_sparse(),
        "text": "not a tensor",
    }
    assert covered_names(state) == {}
    assert clean_state_dict_for_safetensors(state)["text"] == "not a tensor"


@st.composite
def views_of_one_buffer(draw):
    """Return a buffer and named views of it: slices, columns, transposes, in any order and overlap."""
    buffer = torch.arange(24.0)
    views = {}
    for index in range(draw(st.integers(2, 5))):
        start = draw(st.integers(0, 20))
        rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        strides = draw(st.sampled_from([(columns, 1), (1, rows), (1, 1), (4, 1), (4, 2), (0, 1)]))
        last = start + (rows - 1) * strides[0] + (columns - 1) * strides[1]
        if last < 24:
            views[f"view {index}"] = buffer.as_strided((rows, columns), strides, start)
    return buffer, views


@given(views_of_one_buffer())
def test_every_value_comes_back_through_safetensors(case):
    buffer, views = case
    before = {name: view.clone() for name, view in views.items()}
    state = from_bytes(to_bytes(clean_state_dict_for_safetensors(views)))
    buffer.fill_(-1)
    completed = with_shared_names(state, views, in_place=True)
    assert set(completed) == set(views)
    for name in state:  # what load_state_dict does, element by element since views may overlap themselves
        for place in torch.cartesian_prod(*(torch.arange(size) for size in views[name].shape)).view(-1, 2):
            views[name][tuple(place)] = completed[name][tuple(place)]
    assert all(torch.equal(views[name], before[name]) for name in views)


def test_names_come_back_only_where_the_model_shares_them():
    loaded = {"a": torch.ones(2)}
    tied = torch.zeros(2)
    assert with_shared_names(loaded, {"a": tied, "b": tied}, in_place=True)["b"] is loaded["a"]
    assert list(with_shared_names(loaded, {"a": tied, "b": torch.zeros(2)}, in_place=True)) == ["a"]


def test_a_part_does_not_stand_for_the_whole():
    whole = torch.zeros(2, 2)
    assert list(
        with_shared_names({"row": torch.ones(2)}, {"row": whole[0], "whole": whole}, in_place=True)
    ) == ["row"]


@pytest.mark.parametrize("in_place", [True, False])
def test_replaced_tensors_are_completed_only_by_the_same_view(in_place):
    whole = torch.zeros(2, 2)
    completed = with_shared_names(
        {"whole": torch.ones(2, 2)}, {"whole": whole, "row": whole[0]}, in_place=in_place
    )
    assert ("row" in completed) == in_place
