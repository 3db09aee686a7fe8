import copy
import json
from collections import OrderedDict, UserDict
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from accelerate.errors import ConfigurationError
from accelerate.runtime.split import split
from tests.reference.split_cases import COLLECTIONS, described

RECORDING = Path(__file__).parents[2] / "reference" / "data" / "split.json"


def parts_of(inputs, size, **settings):
    return [split(inputs, rank, size, **settings) for rank in range(size)]


# --- What the parts are -----------------------------------------------------------------------------


@given(st.lists(st.integers()), st.integers(1, 5))
def test_parts_put_together_are_the_whole_and_differ_by_at_most_one(items, size):
    parts = parts_of(items, size)
    assert [item for part in parts for item in part] == items
    lengths = [len(part) for part in parts]
    assert lengths == sorted(lengths, reverse=True)
    assert max(lengths) - min(lengths) <= 1


@given(st.lists(st.integers(), min_size=1), st.integers(1, 5))
def test_padding_repeats_the_last_item_until_all_are_equal(items, size):
    parts = parts_of(items, size, apply_padding=True)
    assert len({len(part) for part in parts}) == 1
    for rank, part in enumerate(parts):
        plain = split(items, rank, size)
        assert part[: len(plain)] == plain
        assert all(item == items[-1] for item in part[len(plain) :])


KINDS = {
    "tuple": (tuple, list),
    "tensor": (torch.tensor, torch.Tensor.tolist),
    "array": (np.array, np.ndarray.tolist),
    "dict": (lambda items: {"a": {"b": items}, "c": tuple(items)}, lambda part: part["a"]["b"]),
    "text": (lambda items: Lines(items), list),
}


class Lines(list):
    """A sequence of a class of its own."""


@pytest.mark.parametrize("kind", KINDS)
@given(items=st.lists(st.integers(-9, 9)), size=st.integers(2, 5), padding=st.booleans())
def test_all_kinds_are_divided_like_lists_and_stay_as_they_are(kind, items, size, padding):
    make, back = KINDS[kind]
    inputs = make(items)
    parts = parts_of(inputs, size, apply_padding=padding)
    assert [back(part) for part in parts] == parts_of(items, size, apply_padding=padding)
    assert back(inputs) == items


def test_rows_of_tensors_and_arrays_keep_shape_and_dtype():
    rows = torch.arange(6, dtype=torch.int16).view(3, 2)
    assert torch.equal(split(rows, 1, 2), rows[2:])
    padded = split(rows, 1, 2, apply_padding=True)
    assert torch.equal(padded, rows[[2, 2]])
    assert padded.dtype == torch.int16
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    padded = split(array, 1, 2, apply_padding=True)
    assert padded.tolist() == [[4, 5], [4, 5]]
    assert padded.dtype == np.float32
    assert split(torch.empty(0, 2), 1, 2, apply_padding=True).shape == (0, 2)


def test_fewer_items_than_processes():
    assert parts_of([7, 8], 4) == [[7], [8], [], []]
    assert parts_of([7, 8], 4, apply_padding=True) == [[7], [8], [8], [8]]
    assert parts_of([], 2, apply_padding=True) == [[], []]


def test_mappings_keep_their_kind_and_the_callers_stays_unchanged():
    for kind in (dict, OrderedDict, UserDict):
        given_mapping = kind(a=[1, 2, 3], b=("x", "y", "z"), c={"d": torch.arange(3), "name": "all"})
        before = copy.deepcopy(given_mapping)
        first, second = parts_of(given_mapping, 2)
        assert type(first) is type(second) is kind
        assert (first["a"], first["b"], first["c"]["name"]) == ([1, 2], ("x", "y"), "all")
        assert second["c"]["d"].tolist() == [2]
        assert list(given_mapping) == list(before)
        assert given_mapping["a"] == before["a"]
        assert torch.equal(given_mapping["c"]["d"], before["c"]["d"])
    assert parts_of({}, 2) == [{}, {}]


class Rows:
    """A dataset of rows, as the `datasets` library has it: `select` is all that is needed."""

    column_names = ("text",)

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def select(self, indices):
        return Rows([self.rows[index] for index in indices])


def test_datasets_are_selected_from():
    data = Rows(list("abcde"))
    assert [part.rows for part in parts_of(data, 2)] == [["a", "b", "c"], ["d", "e"]]
    assert split(data, 1, 2, apply_padding=True).rows == ["d", "e", "e"]
    assert split({"data": data, "n": [1, 2, 3, 4, 5]}, 1, 2)["data"].rows == ["d", "e"]
    assert [part.rows for part in parts_of(Rows(["a"]), 3, apply_padding=True)] == [["a"]] * 3
    assert [part.rows for part in parts_of(Rows([]), 2, apply_padding=True)] == [[]] * 2


def test_what_cannot_be_divided_goes_to_every_rank_whole():
    for whole in ("text", b"text", {1, 2, 3}, 5, None, object(), torch.tensor(3), np.array(3)):
        assert split(whole, 1, 2) is whole
        assert split({"whole": whole, "items": [1, 2]}, 1, 2) == {"whole": whole, "items": [2]}


def test_one_process_gets_the_very_object():
    for items in ([1, 2], {"a": [1], "b": [1, 2]}):
        assert split(items, 0, 1, apply_padding=True) is items


@pytest.mark.parametrize("inputs", [{"a": [1], "b": [1, 2]}, {"a": [1], "c": {"b": torch.arange(2)}}])
def test_parts_of_different_length_are_an_error_that_names_the_lengths(inputs):
    with pytest.raises(ConfigurationError, match=r"inputs\['a'\] has 1, inputs.*\['b'\] has 2") as caught:
        split(inputs, 0, 2)
    assert isinstance(caught.value, ValueError)


# --- Beside the reference ---------------------------------------------------------------------------

# Where it raises or gives every rank the whole: (collections, lengths of these, with padding or without).
ALL, EMPTY, EITHER = range(9), (0,), (False, True)
DIFFERENCES = {
    "an empty collection can be padded": (COLLECTIONS, EMPTY, (True,)),
    "tuples can be padded": (("tuple", "dict of tuples", "named tuple"), ALL, (True,)),
    "ranges are divided": (("range",), ALL, EITHER),
    "nested dictionaries are divided": (("dict of a dict",), ALL, EITHER),
    "an empty dictionary has empty parts": (("empty dict",), ALL, EITHER),
    "what has no length goes to every rank whole": (
        ("number", "0-d tensor", "dict with a number"),
        ALL,
        EITHER,
    ),
}


def differs(name, length, padding):
    return any(
        name in names and length in lengths and padding in paddings
        for names, lengths, paddings in DIFFERENCES.values()
    )


def ours(size, name, length, padding):
    inputs = COLLECTIONS[name](length)
    try:
        parts = [described(part) for part in parts_of(inputs, size, apply_padding=bool(padding))]
    except ValueError:
        return ["ValueError"] * size
    assert described(inputs) == described(COLLECTIONS[name](length))
    return parts


def test_parts_are_those_of_the_reference_but_for_what_is_listed():
    recorded = json.loads(RECORDING.read_text())["cases"]
    assert len(recorded) == 756
    unlike = {}
    for size, name, length, padding, results in recorded:
        theirs = [result[0] for result in results]
        if theirs != json.loads(json.dumps(ours(size, name, length, padding))):
            unlike.setdefault((name, length, bool(padding)), []).append(size)
    assert {case for case in unlike if not differs(*case)} == set()
    for names, lengths, paddings in DIFFERENCES.values():  # nothing is listed for nothing
        assert any(c[0] in names and c[1] in lengths and c[2] in paddings for c in unlike)
