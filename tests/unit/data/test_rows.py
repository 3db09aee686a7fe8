"""What the rows of a batch are, and how a round is cut into shares."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from accelerate.data.rows import Nothing, join_rows, num_rows, shares_of, slice_rows

Pair = namedtuple("Pair", ["x", "y"])


@dataclass
class Example:
    x: torch.Tensor
    names: list
    nothing: object = None


def rows(*numbers):
    return torch.tensor(numbers)


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (rows(1, 2, 3), 3),
        ({"x": rows(1, 2), "y": torch.zeros(2, 5)}, 2),
        ({"x": rows(1, 2), "y": torch.zeros(3, 5)}, None),
        ({"x": rows(1, 2), "scale": torch.tensor(2.0), "none": None, "note": "text"}, 2),
        ({"x": torch.zeros(2, 2).to_sparse()}, None),
        ([rows(1, 2), {"y": (rows(1, 2),)}], 2),
        (Pair(rows(1), rows(2)), 1),
        (Example(rows(1, 2), ["a", "b"]), 2),
        (["a", "b", "c"], 3),
        ({"text": ["a", "b"], "n": [1, 2]}, 2),
        ({"text": ["a", "b"], "n": [1]}, None),
        ({"x": rows(1, 2, 3), "names": ["only", "two"]}, 3),
        (pack_sequence([rows(1, 2), rows(3)]), None),
        ("text", None),
        (None, None),
        (torch.tensor(1.0), None),
        ({}, None),
        ([], None),
    ],
)
def test_number_of_rows(batch, expected):
    assert num_rows(batch) == expected


def test_slices_keep_types_and_what_has_no_rows():
    batch = OrderedDict(
        x=rows(1, 2, 3),
        names=("a", "b", "c"),
        pair=Pair(rows(4, 5, 6), None),
        two=["p", "q"],
        n=torch.tensor(7),
    )
    cut = slice_rows(batch, slice(1, 3), 3)
    assert type(cut) is OrderedDict
    assert cut["x"].tolist() == [2, 3]
    assert cut["names"] == ("b", "c")
    assert cut["pair"].x.tolist() == [5, 6]
    assert cut["two"] == ["p", "q"]
    assert cut["n"].item() == 7
    record = slice_rows(Example(rows(1, 2), ["a", "b"]), slice(0, 1), 2)
    assert (record.x.tolist(), record.names, record.nothing) == ([1], ["a"], None)


def test_joining():
    joined = join_rows([{"x": rows(1), "t": ["a"]}, {"x": rows(2, 3), "t": ["b", "c"]}])
    assert joined["x"].tolist() == [1, 2, 3]
    assert joined["t"] == ["a", "b", "c"]
    with pytest.raises(TypeError):
        join_rows([{"x": rows(1)}, [rows(1)]])
    with pytest.raises(RuntimeError):
        join_rows([torch.zeros(1, 2), torch.zeros(1, 3)])


def cut(batches, first=None, **settings):
    defaults = {"num_shares": 2, "size": 4, "complete": True, "split": False, "slice_fn": None}
    shares = shares_of(batches, first or batches, **{**defaults, **settings})
    return [share if share is Nothing else share.tolist() for share in shares]


FIRST = [rows(0, 1, 2, 3), rows(4, 5, 6, 7)]


@pytest.mark.parametrize(
    ("batches", "settings", "expected"),
    [
        (FIRST, {}, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ([rows(8, 9)], {}, [[8], [9]]),
        ([rows(8)], {}, [[8], [0]]),
        ([rows(8)], {"num_shares": 4}, [[8], [0], [1], [2]]),
        ([rows(8)], {"complete": False}, [[8], Nothing]),
        ([rows(8, 9, 10)], {"complete": False}, [[8, 9], [10]]),
        ([rows(8, 9, 10, 11), rows(12)], {}, [[8, 9, 10, 11], [12, 0, 1, 2]]),
        ([rows(8, 9, 10, 11), rows(12)], {"complete": False}, [[8, 9, 10, 11], [12]]),
        ([rows(8, 9), rows(12)], {}, [[8, 9], [12]]),
        ([rows(0, 1, 2, 3)], {"split": True}, [[0, 1], [2, 3]]),
        ([rows(8)], {"split": True, "complete": False, "num_shares": 1}, [[8]]),
    ],
)
def test_shares(batches, settings, expected):
    assert cut(batches, FIRST, **settings) == expected


def test_what_cannot_be_cut_goes_whole_to_the_first_shares():
    packed = [pack_sequence([rows(1, 2)]), pack_sequence([rows(3)])]
    shares = shares_of(packed[:1], packed, num_shares=2, size=None, complete=True, split=False, slice_fn=None)
    assert shares[0] is packed[0]
    assert shares[1] is packed[0]
    shares = shares_of(
        packed[:1], packed, num_shares=2, size=None, complete=False, split=False, slice_fn=None
    )
    assert shares[1] is Nothing


def test_a_function_of_the_user_cuts():
    def slice_fn(batch, part, process_index, num_processes):
        return batch[part] * 10 + process_index

    assert cut(FIRST, slice_fn=slice_fn) == [[0, 10, 20, 30], [41, 51, 61, 71]]
    with pytest.raises(RuntimeError):
        cut([torch.zeros(1, 2), torch.zeros(1, 3)], slice_fn=slice_fn)
