"""Rounds as rank 0 reads them: their shares, their ends, which rows are real, and failures in their place."""

import pytest
import torch

from accelerate.data.adapter import ALL_ROWS
from accelerate.data.reading import read_rounds
from accelerate.data.rows import Nothing


def rounds(sizes, count=2, **settings):
    batches = iter([torch.full((size,), index) for index, size in enumerate(sizes)])
    defaults = {
        "snapshot": lambda: None,
        "num_shares": 2,
        "size": 4,
        "drop_last": False,
        "even": True,
        "split": False,
        "slice_fn": None,
    }
    return list(read_rounds(batches, count, **{**defaults, **settings}))


def lengths(found):
    return [[0 if share is Nothing else len(share) for share in each.shares] for each in found]


@pytest.mark.parametrize(
    ("sizes", "settings", "expected", "rows"),
    [
        ([], {}, [], []),
        ([4, 4, 4, 4], {}, [[4, 4], [4, 4]], [8, 8]),
        ([4, 4, 4, 3], {}, [[4, 4], [4, 4]], [8, 7]),
        ([4, 4, 3], {}, [[4, 4], [2, 2]], [8, 3]),
        ([4, 4, 3], {"even": False}, [[4, 4], [2, 1]], [8, 3]),
        ([4, 4, 1], {"even": False}, [[4, 4], [1, 0]], [8, 1]),
        ([4, 4, 3], {"drop_last": True}, [[4, 4]], [8]),
        ([4, 2], {"split": True, "count": 1}, [[2, 2], [1, 1]], [4, 2]),
        ([3], {"num_shares": 1, "count": 1}, [[3]], [3]),
    ],
)
def test_shares_and_rows(sizes, settings, expected, rows):
    found = rounds(sizes, **settings)
    assert lengths(found) == expected
    assert [each.rows for each in found] == rows
    assert [each.last for each in found] == [False] * (len(found) - 1) + [True] * bool(found)


def test_a_share_that_gets_nothing_more_ends_before():
    found = rounds([4, 4, 1], even=False)
    assert [list(each.ends) for each in found] == [[False, True], [True, True]]
    assert found[1].real_rows == [1, 0]


def test_rows_that_differ_are_told():
    found = rounds([2, 5, 4, 4], size=None)
    assert [each.real_rows for each in found] == [[2, 5], None]
    texts = list(
        read_rounds(
            iter([["a", "b"], {"c": 1}]),
            2,
            snapshot=int,
            num_shares=2,
            size=None,
            drop_last=False,
            even=True,
            split=False,
            slice_fn=None,
        )
    )
    assert texts[0].real_rows == [2, ALL_ROWS]
    assert texts[0].rows == -1


def test_a_failure_comes_behind_what_was_read_before():
    def failing():
        yield torch.ones(4)
        yield torch.ones(4)
        yield torch.ones(4)
        raise KeyError("here")

    found = read_rounds(
        failing(),
        1,
        snapshot=int,
        num_shares=1,
        size=4,
        drop_last=False,
        even=True,
        split=False,
        slice_fn=None,
    )
    assert [next(found).last for _ in range(3)] == [False] * 3
    with pytest.raises(KeyError):
        next(found)
