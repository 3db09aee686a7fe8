"""Ranks that end together, one after the other in one process."""

import threading
from types import SimpleNamespace

import pytest

from accelerate.data.adapter import ALL_ROWS
from accelerate.data.together import in_step


class Ranks:
    """Ranks in threads, which meet at a barrier."""

    def __init__(self, size):
        self.barrier = threading.Barrier(size, timeout=10)
        self.said = [None] * size

    def of(self, rank):
        return SimpleNamespace(
            rank=rank,
            numbers_of_all=lambda operation, numbers: self.exchange(rank, numbers),
            broadcast_object_list=lambda given, from_process: self.broadcast(rank, given, from_process),
        )

    def exchange(self, rank, numbers):
        self.said[rank] = list(numbers)
        self.barrier.wait()
        everybody = list(self.said)
        self.barrier.wait()
        return everybody

    def broadcast(self, rank, given, source):
        given[:] = self.exchange(rank, given)[source]
        return given


def run(*batches_of_ranks):
    ranks = Ranks(len(batches_of_ranks))
    results = [None] * len(batches_of_ranks)

    def read(rank, batches):
        loader = SimpleNamespace(end_of_dataloader=False, real_rows=None)
        results[rank] = [
            (batch, loader.real_rows, loader.end_of_dataloader)
            for batch in in_step(iter(batches), loader, ranks.of(rank))
        ]

    threads = [threading.Thread(target=read, args=each) for each in enumerate(batches_of_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return results


def test_alike_streams_need_nothing():
    mine, other = run([["a"], ["b"]], [["c"], ["d"]])
    assert mine == [(["a"], None, False), (["b"], None, True)]
    assert other == [(["c"], None, False), (["d"], None, True)]


def test_who_ends_first_repeats():
    mine, other = run([["a"], ["b"], ["c"], ["d", "e"]], [["x", "y"]])
    assert mine == [(["a"], 1, False), (["b"], 1, False), (["c"], 1, False), (["d", "e"], 2, True)]
    assert other == [(["x", "y"], 2, False)] + [(["x", "y"], 0, False)] * 2 + [(["x", "y"], 0, True)]


def test_who_has_none_gets_that_of_another():
    mine, other = run([], [["x"], ["y"]])
    assert mine == [(["x"], 0, False), (["x"], 0, True)]
    assert other == [(["x"], 1, False), (["y"], 1, True)]


@pytest.mark.parametrize("ranks", [1, 3])
def test_nobody_has_any(ranks):
    assert run(*[[]] * ranks) == [[]] * ranks


def test_rows_that_nobody_can_count():
    mine, other = run([object()], [["x"]])
    assert (mine[0][1], other[0][1]) == (ALL_ROWS, 1)
