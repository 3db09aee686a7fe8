"""Loaders prepared in every way give what was recorded from the reference, but for listed differences."""

import json
from itertools import chain
from pathlib import Path

import pytest

from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from tests.reference.loader_cases import cases, outcomes

REFERENCE = Path(__file__).parents[1] / "reference"

FIELDS = ("batches", "len", "end", "metrics")


def grid():
    return outcomes(Accelerator(cpu=True), DataLoaderConfiguration)


def recorded(num_ranks):
    lines = json.loads((REFERENCE / "data" / "loaders.json").read_text())["cases"]
    return [found for (ranks, *_), found in lines if ranks == num_ranks]


def differing(mine, theirs):
    """Return the names of what differs on any rank."""
    if theirs[0] == "TypeError":  # there a pass without batches fails, where rank 0 reads for all
        return {"error"}
    pairs = list(zip(mine, theirs, strict=True))
    return {name for k, name in enumerate(FIELDS) if any(ours[k] != there[k] for ours, there in pairs)}


def intended(case):
    """Return what differs for a reason in a case, and `right`, a check of what ranks get here instead.

    `right` is given the batches of all ranks one after the other by step, and what rank 0 sees.
    """
    numbers = list(range(case["length"]))
    stream, dispatched = case["kind"] == "stream", case["dispatch_batches"]
    if case["drop_last"]:  # nothing is completed, so that nothing has to be cut off
        return {"error", "end"} if dispatched else set(), lambda _, first: first[2] in (-1, None)
    if not case["even_batches"] and (stream or dispatched):  # there completed all the same
        return {"batches", "end"}, lambda rows, _: rows == numbers
    if not case["even_batches"]:  # there one batch too many is promised to later ranks
        return {"len"} if case["split_batches"] else set(), lambda rows, _: rows == numbers
    if dispatched:  # the last batch is filled, or each rank gets the one row
        return {"batches"}, lambda rows, _: rows[: len(numbers)] == numbers or set(rows) == set(numbers)
    # Metrics over a stream are exact.
    return {"end", "metrics"} if stream else set(), lambda _, first: first[3] == numbers


def by_steps(ranks):
    batches = [rank[0] for rank in ranks]
    steps = range(max(map(len, batches)))
    return list(chain.from_iterable(mine[step] for step in steps for mine in batches if step < len(mine)))


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_every_way_to_prepare_a_loader(rank_pool, num_ranks):
    ranks = rank_pool.run(grid, num_ranks=num_ranks, timeout=120)
    ours = list(zip(*ranks, strict=True))
    everything = list(zip(cases(num_ranks), ours, recorded(num_ranks), strict=True))
    assert len(everything) == 400
    for case, mine, theirs in everything:
        allowed, right = intended(case)
        different = differing(mine, theirs)
        assert different <= allowed, (case, mine, theirs)
        if different:
            assert right(by_steps(mine), mine[0]), (case, mine)
