"""Samplers, and how a loader holds them: in which order, from which batch on. Called by the whole room.

[Note: skipping] A pass that starts late yields what is left of the whole pass, fill included. Indices that
are left out are drawn where the order depends on it, but never become batches.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from accelerate.data.order import samples_after

__all__ = ["SeedableRandomSampler", "SkipBatchSampler", "get_sampler"]


class SeedableRandomSampler(RandomSampler):
    """Shuffle by seed and epoch alone: the order is `f(initial_seed + epoch)`, on every rank, every time.

    `list(SeedableRandomSampler(dataset, data_seed=seed))` shows the order of epoch 0 of a run. Iterating
    to the end advances the epoch; a prepared loader sets it itself before each pass. The global random
    state is neither read nor changed while iterating.

    Args:
        args: as for `torch.utils.data.RandomSampler`.
        kwargs: as for `torch.utils.data.RandomSampler`, and `data_seed`, an int, which stands for
            `torch.initial_seed()` when it is None or absent. A `generator` that is given is seeded anew
            at each pass.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        data_seed: int | None = kwargs.pop("data_seed", None)
        super().__init__(*args, **kwargs)
        self.initial_seed = torch.initial_seed() if data_seed is None else data_seed
        self.epoch = 0

    def __iter__(self) -> Iterator[int]:
        """Yield the indices of the current epoch, then advance the epoch."""
        with self._seeded():
            indices = list(super().__iter__())
        yield from indices
        self.set_epoch(self.epoch + 1)

    def permutations(self) -> Iterator[torch.Tensor] | None:
        """Give the order of the current epoch as a tensor, then advance the epoch; None if it is none."""
        return self._permutation() if type(self).__iter__ is SeedableRandomSampler.__iter__ else None

    def _permutation(self) -> Iterator[torch.Tensor]:
        with self._seeded() as generator:
            order = torch.randperm(self.num_samples, generator=generator).cpu()
        yield order
        self.set_epoch(self.epoch + 1)

    @contextmanager
    def _seeded(self) -> Iterator[torch.Generator]:
        if self.generator is None:
            self.generator = torch.Generator()
        self.generator.manual_seed((self.initial_seed + self.epoch) % 2**64)
        # Drawn at once, under the generator's own device: a default device of the caller must neither change
        # the order nor make torch refuse the generator.
        with torch.device(self.generator.device):
            yield self.generator

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order the next pass shows."""
        self.epoch = epoch


class AroundBatchSampler(BatchSampler):
    """Stand around the batch sampler `batch_sampler`: what is not found here is asked of that one."""

    batch_sampler: Any

    def iter_from(self, skip_batches: int) -> Iterator[Any]:
        """Yield the batches after the first `skip_batches` ([Note: skipping])."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        # Not yet set while copy and pickle make an instance; and what they ask is not for its inner one.
        if name == "batch_sampler" or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.batch_sampler, name)

    @property
    def total_length(self) -> int:
        """Number of batches of the inner batch sampler, those of other ranks and the skipped included."""
        return len(self.batch_sampler)


class SkipBatchSampler(AroundBatchSampler):
    """Leave out the first batches of a batch sampler ([Note: skipping]), in every pass.

    Attributes that are not found here (`sampler`, `batch_size`, …) are those of the inner batch sampler.

    Args:
        batch_sampler: yields batches.
        skip_batches: how many are left out.
    """

    def __init__(self, batch_sampler: BatchSampler, skip_batches: int = 0) -> None:
        self.batch_sampler = batch_sampler
        self.skip_batches = skip_batches

    def __len__(self) -> int:
        """Return the number of batches that are left."""
        return max(0, len(self.batch_sampler) - self.skip_batches)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches that are left."""
        # A generator, so that nothing is drawn before the first batch is asked for, as without skipping.
        yield from self.iter_from(0)

    def iter_from(self, skip_batches: int) -> Iterator[Any]:
        """Yield the batches that are left after the first `skip_batches` of them."""
        return batches_from(self.batch_sampler, self.skip_batches + skip_batches)


def without_skips(sampler: Any) -> Any:
    """Return what is left of an index sampler when every `SkipBatchSampler` around it is taken off."""
    while isinstance(sampler, SkipBatchSampler):
        sampler = sampler.batch_sampler
    return sampler


def with_sampler(loader: "DataLoader[Any]", sampler: Any) -> "DataLoader[Any]":
    """Return a shallow copy of a loader that draws its indices from another sampler or batch sampler."""
    clone = copy.copy(loader)
    slot = "sampler" if loader.batch_sampler is None else "batch_sampler"
    # Not by assignment, which torch refuses. Workers that persist belong to the original.
    vars(clone).update({slot: sampler, "_iterator": None})
    return clone


def without_first(loader: "DataLoader[Any]", num_batches: int) -> "DataLoader[Any]":
    """Return a copy of a loader over data that is read by index which leaves out its first batches."""
    return with_sampler(loader, SkipBatchSampler(index_sampler(loader), num_batches))


def batches_from(batch_sampler: Any, skip_batches: int, keep: int = 0) -> Iterator[Any]:
    """Return an iterator over what a batch sampler yields after its first `skip_batches` batches.

    Args:
        batch_sampler: yields batches, or a sampler of single indices.
        skip_batches: how many batches are left out.
        keep: how many of those come nevertheless, before the others; `skip_batches` at most.
    """
    if isinstance(batch_sampler, AroundBatchSampler) and not keep:
        return batch_sampler.iter_from(skip_batches)
    if not skip_batches or not cuts_evenly(batch_sampler):
        return without_middle(iter(batch_sampler), keep, skip_batches)
    size: int = batch_sampler.batch_size
    samples = samples_after(batch_sampler.sampler, skip_batches * size, keep * size)
    return iter(BatchSampler(samples, size, batch_sampler.drop_last))


def without_middle(items: Iterator[Any], start: int, stop: int) -> Iterator[Any]:
    """Return an iterator over all but the items number `start` to `stop`."""
    return chain(islice(items, start), islice(items, stop - start, None))


def cuts_evenly(batch_sampler: Any) -> bool:
    """Return whether a batch sampler is known to take `batch_size` samples at a time from its `sampler`."""
    return isinstance(batch_sampler, BatchSampler) and type(batch_sampler).__iter__ is BatchSampler.__iter__


def num_samples(batch_sampler: Any) -> int | None:
    """Return how many samples an evenly cutting batch sampler draws in a pass, None where nobody can know."""
    if isinstance(batch_sampler, SkipBatchSampler):
        total = num_samples(batch_sampler.batch_sampler)
        return (
            None if total is None else max(0, total - batch_sampler.skip_batches * batch_sampler.batch_size)
        )
    if not cuts_evenly(batch_sampler):
        return None
    try:
        return len(batch_sampler.sampler)
    except (TypeError, NotImplementedError):  # a sampler without end, or one that cannot tell
        return None


def index_sampler(dataloader: Any) -> Any:
    """Return what a loader draws its indices from: its batch sampler, or its sampler when it has none."""
    return dataloader.sampler if dataloader.batch_sampler is None else dataloader.batch_sampler


def sampler_chain(dataloader: Any) -> list[Any]:
    """Return the samplers of a loader, from the outermost to the one that knows the order of the samples."""
    links = []
    link = index_sampler(dataloader)
    while link is not None:
        links.append(link)
        inner = getattr(link, "batch_sampler", None)
        link = getattr(link, "sampler", None) if inner is None else inner
    return links


def get_sampler(dataloader: "DataLoader[Any]") -> Any:
    """Return the sampler that decides in which order a loader reads its samples.

    Args:
        dataloader: a torch loader, prepared or not.

    Returns:
        The innermost sampler; None where a batch sampler chooses the samples itself.
    """
    batch_sampler = dataloader.batch_sampler
    while (inner := getattr(batch_sampler, "batch_sampler", None)) is not None:
        batch_sampler = inner
    innermost = sampler_chain(dataloader)[-1]
    return None if innermost is batch_sampler else innermost
