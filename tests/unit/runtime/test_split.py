import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from accelerate.runtime.split import split


@given(st.lists(st.integers()), st.integers(1, 5))
def test_parts_put_together_are_the_whole_and_differ_by_at_most_one(items, size):
    parts = [split(items, rank, size) for rank in range(size)]
    assert [item for part in parts for item in part] == items
    lengths = [len(part) for part in parts]
    assert lengths == sorted(lengths, reverse=True)
    assert max(lengths) - min(lengths) <= 1


@given(st.lists(st.integers(), min_size=1), st.integers(1, 5))
def test_padding_repeats_the_last_item_until_all_are_equal(items, size):
    parts = [split(items, rank, size, apply_padding=True) for rank in range(size)]
    assert len({len(part) for part in parts}) == 1
    for rank, part in enumerate(parts):
        plain = split(items, rank, size)
        assert part[: len(plain)] == plain
        assert all(item == items[-1] for item in part[len(plain) :])


def test_tuples_tensors_and_mappings_keep_their_kind():
    assert split((1, 2, 3), 1, 2) == (3,)
    assert torch.equal(split(torch.arange(6).view(3, 2), 1, 2), torch.tensor([[4, 5]]))
    padded = split(torch.arange(3), 1, 2, apply_padding=True)
    assert torch.equal(padded, torch.tensor([2, 2]))
    given_dict = {"a": [1, 2, 3], "b": ("x", "y", "z")}
    assert split(given_dict, 0, 2) == {"a": [1, 2], "b": ("x", "y")}
    assert given_dict == {"a": [1, 2, 3], "b": ("x", "y", "z")}


def test_what_cannot_be_divided_goes_to_every_rank_whole():
    assert split("text", 1, 2) == "text"
    marker = object()
    assert split(marker, 1, 2) is marker


def test_one_process_gets_the_very_object():
    items = [1, 2]
    assert split(items, 0, 1) is items


def test_values_of_different_length_are_an_error_that_names_the_lengths():
    with pytest.raises(ValueError, match=r"'a': 1.*'b': 2"):
        split({"a": [1], "b": [1, 2]}, 0, 2)
