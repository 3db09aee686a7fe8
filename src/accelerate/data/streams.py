"""Datasets that can only be iterated: how ranks share one, and how a pass takes it up in the middle.

Called by prepare.py and the prepared loaders. The words *round*, *share* and *fill* are those of
[Note: rounds] in rounds.py: a stream is dealt like the batches of a sampler.

[Note: leaving out] What was seen of a stream has to be read, since nothing else gets to what follows; but it
is not collated, moved or kept. Without workers the loader's dataset passes over it. With workers each must
pass over the batches that it gave, and only the loader knows whose turn it was; so the first tasks that it
hands out are marked, and a worker that gets such a task returns nothing in place of a batch.
"""

import copy
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, cycle, islice, repeat
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from accelerate.data.samplers import without_middle
from accelerate.errors import ConfigurationError

__all__ = ["IterableDatasetShard", "iterate_stream_from", "own_part", "with_dataset"]


class IterableDatasetShard(IterableDataset[Any]):
    """Deal the items of a stream to the ranks: each reads it whole and keeps its share of every round.

    A short last round is completed with items of the first one, or dropped with `drop_last`; an empty stream
    gives nothing. A dataset with `set_epoch` is told the epoch; one without, whose order comes from an
    attribute `generator`, has that seeded with the epoch, so that all ranks read one order.

    Args:
        dataset: the stream, in the same order on every rank.
        batch_size: items of one batch.
        drop_last: leave a short last round out.
        num_processes: number of ranks that share the items.
        process_index: this rank.
        split_batches: `batch_size` is that of all ranks together, otherwise that of each.

    Raises:
        ConfigurationError: `split_batches` with a batch size that the ranks cannot share equally.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        drop_last: bool = False,
        num_processes: int = 1,
        process_index: int = 0,
        split_batches: bool = False,
    ) -> None:
        if split_batches and batch_size > 1 and batch_size % num_processes:
            raise ConfigurationError(
                f"To use `IterableDatasetShard` in `split_batches` mode, the batch size ({batch_size}) needs "
                f"to be a round multiple of the number of processes ({num_processes})."
            )
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.num_processes = num_processes
        self.process_index = process_index
        self.split_batches = split_batches
        self.even_batches = True
        self.epoch = 0
        self._start: Any = None  # state of a dataset that tells its place, when the pass began
        self._resumes = False  # the next pass goes on from a state that was loaded
        # Real items in the last round of the last full pass, if it had fill. Workers write it, too.
        self._last_round = torch.full((), -1, dtype=torch.int64)
        self._last_round.share_memory_()  # type: ignore[no-untyped-call]

    def __getattr__(self, name: str) -> Any:
        if name == "dataset" or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        inner = getattr(self.dataset, name)
        # Who can tell its place has two of them here: fill comes from where the pass began.
        return {"state_dict": self._state_dict, "load_state_dict": self._load_state_dict}.get(name, inner)

    def _state_dict(self) -> dict[str, Any]:
        return {"start": self._start, "now": self.dataset.state_dict()}

    def _load_state_dict(self, state: dict[str, Any]) -> None:
        self._start = state["start"]
        self._resumes = True
        self.dataset.load_state_dict(state["now"])

    @property
    def last_round(self) -> int | None:
        """Real items in the last round of the last full pass; None when it was full or nobody has counted."""
        count = int(self._last_round)
        return None if count < 0 else count

    @property
    def round_size(self) -> int:
        """Items of all ranks together in a full round."""
        return self.share * self.num_processes

    @property
    def share(self) -> int:
        """Items of this rank in a full round."""
        return max(1, self.batch_size // self.num_processes) if self.split_batches else self.batch_size

    @property
    def epoch(self) -> int:
        """The epoch whose order the next pass shows: the dataset's, where it has one."""
        told: int | None = getattr(self.dataset, "epoch", None)
        return self._epoch if told is None else told

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order the next pass shows."""
        self.epoch = epoch
        if callable(getattr(self.dataset, "set_epoch", None)):
            self.dataset.set_epoch(epoch)

    def __len__(self) -> int:
        """Return the number of items that this rank gets, where the dataset knows its own."""
        rounds, left = divmod(len(self.dataset), self.round_size)
        whole = rounds * self.share
        if not left or self.drop_last:
            return whole
        if self.even_batches:
            return whole + self.share
        return whole + min(max(0, left - self.process_index * self.share), self.share)

    def __iter__(self) -> Iterator[Any]:
        """Yield this rank's items."""
        return self.iter_from(0)

    def iter_from(self, skip_rounds: int) -> Iterator[Any]:
        """Yield this rank's items of the rounds after the first `skip_rounds`, which are read at once."""
        generator = getattr(self.dataset, "generator", None)
        if isinstance(generator, torch.Generator) and not hasattr(self.dataset, "set_epoch"):
            generator.manual_seed(self.epoch)
        self._last_round.fill_(-1)
        if not self._resumes and hasattr(self.dataset, "state_dict"):
            self._start = self.dataset.state_dict()
        self._resumes, resumes = False, self._resumes
        source, size = iter(self.dataset), self.round_size
        if resumes:
            return self._deal(source, None)
        first = list(islice(source, min(skip_rounds, 1) * size))
        _pass_over(source, max(0, skip_rounds - 1) * size)
        return self._deal(source, first)

    def _deal(self, source: Iterator[Any], first: list[Any] | None) -> Iterator[Any]:
        while True:
            share = self.share
            size = share * self.num_processes
            block = list(islice(source, size))
            first = block if first == [] else first
            start = self.process_index * share
            if len(block) < size:
                break
            yield from block[start : start + share]
        if not block or self.drop_last:
            return
        if self.even_batches:
            self._last_round.fill_(len(block))
            block = list(
                islice(chain(block, cycle(self._first_round(size) if first is None else first)), size)
            )
        yield from block[start : start + share]

    def _first_round(self, size: int) -> list[Any]:
        at_the_end = self.dataset.state_dict()
        self.dataset.load_state_dict(self._start)
        first = list(islice(iter(self.dataset), size))
        self.dataset.load_state_dict(at_the_end)
        return first


def own_part(dataset: Any, num_processes: int, process_index: int) -> Any | None:
    """Return the part of a stream that is this rank's, if it consists of shards, enough for all ranks.

    For a dataset that knows `shard` and the number of its shards, as that of the `datasets` library does.

    Args:
        dataset: the stream.
        num_processes: number of ranks that share it.
        process_index: this rank.
    """
    num_shards = getattr(dataset, "num_shards", getattr(dataset, "n_shards", None))
    shard = getattr(dataset, "shard", None)
    if not isinstance(num_shards, int) or num_shards < num_processes or not callable(shard):
        return None
    return shard(num_shards=num_processes, index=process_index)


def with_dataset(loader: "DataLoader[Any]", dataset: Any, batch_size: int | None = None) -> "DataLoader[Any]":
    """Return a shallow copy of a loader of a stream that reads another one, maybe in batches of another size.

    Not by assignment, which torch refuses. Workers that persist belong to the original.
    """
    clone = copy.copy(loader)
    vars(clone).update({"dataset": dataset, "_iterator": None})
    if batch_size is not None and batch_size != loader.batch_size:
        batches = BatchSampler(loader.sampler, batch_size, loader.drop_last)
        vars(clone).update({"batch_size": batch_size, "batch_sampler": batches})
    return clone


# --- Taking a pass up in the middle: [Note: leaving out] ------------------------------------------------


def iterate_stream_from(loader: "DataLoader[Any]", num_batches: int, keep: int = 0) -> Iterator[Any]:
    """Return an iterator over the batches of a loader of a stream behind the first `num_batches`.

    Args:
        loader: it is not changed.
        num_batches: how many are left out.
        keep: how many of those come nevertheless, before the others.
    """
    keep = min(keep, num_batches)
    if not num_batches:
        return iter(loader)
    if not loader.num_workers:
        return iter(with_dataset(loader, _Rest(loader.dataset, num_batches, loader.batch_size or 1, keep)))
    clone: Any = with_dataset(loader, loader.dataset)
    if loader.batch_sampler is not None and loader.batch_size is not None:
        marking = _Marking(loader.batch_sampler, num_batches, loader.batch_size, keep)
        vars(clone)["batch_sampler"] = marking
        clone.collate_fn = _Skipping(loader.collate_fn)
    return without_middle(iter(clone), keep, num_batches)


class _Rest(IterableDataset[Any]):
    """A stream without its first batches, or with the first few of them only."""

    dataset: Any

    def __init__(self, dataset: Any, num_batches: int, batch_size: int, keep: int) -> None:
        self.dataset = dataset
        self.num_batches = num_batches
        self.batch_size = batch_size
        self.keep = keep

    def __iter__(self) -> Iterator[Any]:
        # Read at once: random numbers are drawn before the first batch is asked for, as when a pass begins.
        if isinstance(self.dataset, IterableDatasetShard):
            return self.dataset.iter_from(self.num_batches)
        source: Iterator[Any] = iter(self.dataset)
        kept = list(islice(source, self.keep * self.batch_size))
        _pass_over(source, (self.num_batches - self.keep) * self.batch_size)
        return chain(kept, source) if kept else source


class _Marked:
    """The indices of a batch that is left out: a worker that counts them knows."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[None]:
        _Skipping.next_one = True
        return repeat(None, self.size)


class _Marking:
    """Mark the batches of a loader's batch sampler that are left out."""

    def __init__(self, batch_sampler: Any, num_batches: int, batch_size: int, keep: int) -> None:
        self.batch_sampler = batch_sampler
        self.num_batches = num_batches
        self.batch_size = batch_size
        self.keep = keep

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.batch_sampler)
        marked = repeat(_Marked(self.batch_size), self.num_batches - self.keep)
        return chain(islice(batches, self.keep), marked, batches)


class _Skipping:
    """Collate what is not marked. A process has one task at a time, so that a note in the class is enough."""

    next_one = False

    def __init__(self, collate_fn: Callable[[list[Any]], Any]) -> None:
        self.collate_fn = collate_fn

    def __call__(self, items: list[Any]) -> Any:
        if _Skipping.next_one:
            _Skipping.next_one = False
            return None
        return self.collate_fn(items)


def _pass_over(source: Iterator[Any], count: int) -> None:
    deque(islice(source, count), maxlen=0)
