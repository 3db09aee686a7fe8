"""Iterate a torch loader from the middle of a pass. Called by the prepared loaders."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from accelerate.data.progress import shielded
from accelerate.data.samplers import batches_from, index_sampler, with_sampler
from accelerate.data.streams import iterate_stream_from

__all__ = ["iterate_from"]

_END: Any = object()


def iterate_from(
    loader: "DataLoader[Any]",
    num_batches: int,
    beginnings: Mapping[str, Any] | None = None,
    keep: int = 0,
) -> Iterator[Any]:
    """Return an iterator over the batches of a loader behind the first `num_batches`.

    Args:
        loader: a torch loader; it is not changed.
        num_batches: how many are left out.
        beginnings: what the pass began with ([Note: places] in progress.py), if it is not this one: its order
            is drawn from that, and the global random states of this process stay as they are.
        keep: how many of those that are left out come nevertheless, before the others.
    """
    if beginnings is not None:
        with shielded(beginnings):
            return _iterate(loader, num_batches, beginnings, keep)
    return _iterate(loader, num_batches, None, keep) if num_batches else iter(loader)


def _iterate(
    loader: "DataLoader[Any]", num_batches: int, beginnings: Mapping[str, Any] | None, keep: int
) -> Iterator[Any]:
    if isinstance(loader.dataset, IterableDataset):
        return iterate_stream_from(loader, num_batches, keep)
    sampler = _Rest(index_sampler(loader), num_batches, keep, beginnings, loader.generator)
    return iter(with_sampler(loader, sampler))


class _Rest:
    """The rest of what an index sampler yields, its order drawn from the states that the pass began with."""

    def __init__(
        self,
        sampler: Any,
        num_batches: int,
        keep: int,
        beginnings: Mapping[str, Any] | None,
        generator: torch.Generator | None,
    ) -> None:
        self.sampler = sampler
        self.num_batches = num_batches
        self.keep = keep
        self.beginnings = beginnings
        self.generator = generator

    def __len__(self) -> int:
        return max(0, len(self.sampler) - self.num_batches) + min(self.keep, self.num_batches)

    def __iter__(self) -> Iterator[Any]:
        batches = batches_from(self.sampler, self.num_batches, self.keep)
        if self.beginnings is None:
            yield from batches
            return
        with shielded(self.beginnings) as replayed:
            if replayed and self.generator is None:
                # torch draws a seed for workers before a sampler draws anything.
                torch.empty((), dtype=torch.int64).random_()
            first = next(batches, _END)
        if first is not _END:
            yield first
            yield from batches
