"""Let ranks that read streams of their own end a pass together. Called by the loader of a rank.

Each step the ranks tell each other how many rows they have. Who has none left repeats its first batches,
which do not count, until nobody has any. Who never had one gets the first batch of another rank.
"""

from collections.abc import Iterator
from itertools import cycle
from typing import Any

from accelerate.data.adapter import ALL_ROWS, DataLoaderStateMixin
from accelerate.data.rows import num_rows
from accelerate.runtime.rank_group import RankGroup

__all__ = ["in_step"]

_END: Any = object()
_KEPT = 16  # first batches that a rank keeps to repeat


def in_step(batches: Iterator[Any], loader: DataLoaderStateMixin, ranks: RankGroup) -> Iterator[Any]:
    """Yield batches until no rank has any left; one is read ahead, so that the end is known.

    Args:
        batches: of this rank.
        loader: is told the end, and which rows count.
        ranks: all ranks that iterate.
    """
    batch, kept = next(batches, _END), []
    counts = _counts(batch, ranks)
    if any(counts) and not all(counts):
        given = [None if batch is _END else batch]
        ranks.broadcast_object_list(given, from_process=next(i for i, count in enumerate(counts) if count))
        kept = given if batch is _END else []
    repeated = cycle(kept)
    while any(counts):
        upcoming = next(batches, _END)
        if batch is not _END and len(kept) < _KEPT:
            kept.append(batch)
            repeated = cycle(kept)
        upcoming_counts = _counts(upcoming, ranks)
        loader.end_of_dataloader = not any(upcoming_counts)
        alike = len(set(counts)) == 1
        loader.real_rows = None if alike else _real_rows(counts[ranks.rank])
        yield next(repeated) if batch is _END else batch
        batch, counts = upcoming, upcoming_counts


def _counts(batch: Any, ranks: RankGroup) -> list[int]:
    """Return for every rank 0 where it has no batch, else 1 + the number of rows, 1 where nobody knows it."""
    mine = 0 if batch is _END else 1 + (num_rows(batch) or 0)
    return [count for (count,) in ranks.numbers_of_all("next batch of a stream read by its shards", [mine])]


def _real_rows(count: int) -> int:
    return ALL_ROWS if count == 1 else max(0, count - 1)
