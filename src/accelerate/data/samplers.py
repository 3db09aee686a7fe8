"""Which indices this rank reads, and in which order. Used by prepare.py, which puts these into a loader.

[Note: rounds] A sampler's batches are dealt to the ranks in *rounds*, one batch a rank. With
`split_batches` one batch of the sampler is a round, cut into a *share* for each rank; without, each
`num_processes` consecutive batches are. Only the last round can be short. `even_batches` completes it
with *fill*: samples of the first round, in order, started over as often as needed. Fill follows the last
real sample, so that cutting the gathered last round to its real length removes exactly the duplicates.

[Note: skipping] A pass that starts late yields what is left of the whole pass, fill included. Indices that
are left out are drawn (the order depends on it) but never become batches; where the order is plain counting,
not even that.
"""

import copy
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, cycle, islice
from operator import length_hint
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from accelerate.errors import ConfigurationError

__all__ = ["BatchSamplerShard", "SeedableRandomSampler", "SkipBatchSampler", "get_sampler"]

_END: Any = object()
_LIST_ITERATOR: type = type(iter([]))


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
        if self.generator is None:
            self.generator = torch.Generator()
        self.generator.manual_seed((self.initial_seed + self.epoch) % 2**64)
        # Drawn at once, under the generator's own device: a default device of the caller must neither change
        # the order nor make torch refuse the generator.
        with torch.device(self.generator.device):
            indices = list(super().__iter__())
        yield from indices
        self.set_epoch(self.epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order the next pass shows."""
        self.epoch = epoch


class _AroundBatchSampler(BatchSampler):
    """Stand around the batch sampler `batch_sampler`: what is not found here is asked of that one."""

    batch_sampler: Any

    def __getattr__(self, name: str) -> Any:
        # Not yet set while copy and pickle make an instance; and what they ask is not for its inner one.
        if name == "batch_sampler" or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.batch_sampler, name)

    @property
    def total_length(self) -> int:
        """Number of batches of the inner batch sampler, those of other ranks and the skipped included."""
        return len(self.batch_sampler)


class SkipBatchSampler(_AroundBatchSampler):
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
        yield from batches_from(self.batch_sampler, self.skip_batches)


class BatchSamplerShard(_AroundBatchSampler):
    """Deal the batches of a batch sampler to the ranks ([Note: rounds]).

    All attributes are live: `num_processes` and `process_index` are read before each round, so that a
    client may change them under a running loader. Attributes that are not found here (`sampler`, what
    a user's batch sampler adds) are those of the inner batch sampler.

    A batch sampler without `batch_size` may yield batches of any size, or anything at all: its batches
    are dealt whole, and a short last round is completed with whole batches of the first round.

    Args:
        batch_sampler: yields the batches of all ranks; has the same order on every rank.
        num_processes: number of ranks that share the batches.
        process_index: this rank.
        split_batches: cut each batch into a share for each rank, instead of dealing whole batches.
        even_batches: complete the last round, so that all ranks get equally many and equally large
            batches; otherwise each sample is read once and some ranks may end earlier.

    Raises:
        ConfigurationError: `split_batches` with a batch size that the ranks cannot share equally.
    """

    batch_size: int | None  # type: ignore[assignment]  # samples, as the inner batch sampler declares it

    def __init__(
        self,
        batch_sampler: BatchSampler,
        num_processes: int = 1,
        process_index: int = 0,
        split_batches: bool = False,
        even_batches: bool = True,
    ) -> None:
        batch_size = getattr(batch_sampler, "batch_size", None)
        if split_batches and (batch_size is None or batch_size % num_processes):
            raise ConfigurationError(
                f"To use `BatchSamplerShard` in `split_batches` mode, the batch size ({batch_size}) needs to "
                f"be a round multiple of the number of processes ({num_processes})."
            )
        self.batch_sampler = batch_sampler
        self.num_processes = num_processes
        self.process_index = process_index
        self.split_batches = split_batches
        self.even_batches = even_batches
        self.batch_size = batch_size
        self.drop_last = getattr(batch_sampler, "drop_last", False)
        self.last_round: int | None = (
            None  # real samples in the last round of the last full pass, if it had fill
        )

    @property
    def round_size(self) -> int | None:
        """Samples of all ranks together in a full round, None where batches have no declared size."""
        return None if self.batch_size is None else self._share() * self.num_processes

    def __len__(self) -> int:
        """Return the number of batches that this rank gets."""
        batches = len(self.batch_sampler)
        if self.split_batches:
            return batches - self._misses_last_share()
        rounds, left = divmod(batches, self.num_processes)
        if self.drop_last:
            return rounds
        return rounds + (left > 0 if self.even_batches else self.process_index < left)

    def _misses_last_share(self) -> bool:
        """Whether the last batch is so short that nothing of it is left for this rank."""
        if self.even_batches or self.drop_last or self.batch_size is None:
            return False
        total = num_samples(self.batch_sampler)
        last = total % self.batch_size if total else 0
        return 0 < last <= self.process_index * self._share()

    def __iter__(self) -> Iterator[Any]:
        """Yield this rank's batches."""
        return self.iter_from(0)

    def iter_from(self, skip_batches: int) -> Iterator[Any]:
        """Yield this rank's batches after the first `skip_batches`."""
        self.last_round = None
        if cuts_evenly(self.batch_sampler):
            return self._deal_samples(self.batch_sampler.sampler, skip_batches)
        deal = self._split_each if self.split_batches else self._deal_batches
        return islice(deal(self.batch_sampler), skip_batches, None)

    def _deal_samples(self, sampler: Iterable[int], skip_rounds: int) -> Iterator[list[int]]:
        """Draw a round at a time straight from the sampler: other ranks' batches are never made."""
        size = self._share() * self.num_processes
        first, samples = samples_after(sampler, skip_rounds * size, keep=size)
        while True:
            processes, share = self.num_processes, self._share()
            block = list(islice(samples, share * processes))
            if len(block) < share * processes:
                break
            first = first or block
            start = self.process_index * share
            yield block[start : start + share]
        if not block or self.drop_last:
            return
        if self.even_batches:
            self.last_round = len(block)
            block = list(islice(chain(block, cycle(first or block)), share * processes))
        start = self.process_index * share
        if batch := block[start : start + share]:
            yield batch

    def _share(self) -> int:
        assert self.batch_size is not None  # only batch samplers without a declared size have none
        return self.batch_size // self.num_processes if self.split_batches else self.batch_size

    def _split_each(self, batches: Iterable[list[int]]) -> Iterator[list[int]]:
        """Cut batches that may differ from the declared size; `even_batches` completes short ones."""
        first: list[int] = []
        for batch in batches:
            first = first or batch
            share = max(self._share(), -(-len(batch) // self.num_processes))
            size = share * self.num_processes
            self.last_round = None
            if self.even_batches and 0 < len(batch) < size:
                self.last_round = len(batch)
                batch = list(islice(chain(batch, cycle(first)), size))
            start = self.process_index * share
            if part := batch[start : start + share]:
                yield part

    def _deal_batches(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Deal whole batches, holding one round back to know the last one."""
        source = iter(batches)
        first = held = list(islice(source, self.num_processes))
        while upcoming := list(islice(source, self.num_processes)):
            yield held[self.process_index]
            held = upcoming
        if held:
            yield from self._deal_last(held, first)

    def _deal_last(self, held: list[Any], first: list[Any]) -> Iterator[Any]:
        missing = self.num_processes - len(held)
        if self.drop_last or not self.even_batches:
            if self.process_index < len(held) and not (missing and self.drop_last):
                yield held[self.process_index]
        elif self.batch_size is None:
            if missing and all(isinstance(batch, list) for batch in held):
                self.last_round = sum(map(len, held))
            yield next(islice(chain(held, cycle(first)), self.process_index, None))
        else:
            yield self._completed(held, first, self.batch_size)[self.process_index]

    def _completed(self, held: list[Any], first: list[Any], size: int) -> list[Any]:
        """Return the last round with its last batch filled up and the missing ones made of fill."""
        fill = cycle(chain.from_iterable(first))
        *whole, last = held
        short = max(0, size - len(last))
        missing = self.num_processes - len(held)
        if short or missing:
            self.last_round = sum(map(len, held))
        completed = [*whole, [*last, *islice(fill, short)]]
        return completed + [list(islice(fill, size)) for _ in range(missing)]


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


def batches_from(batch_sampler: Any, skip_batches: int) -> Iterator[Any]:
    """Return an iterator over what a batch sampler yields after its first `skip_batches` batches."""
    if isinstance(batch_sampler, SkipBatchSampler):
        return batches_from(batch_sampler.batch_sampler, batch_sampler.skip_batches + skip_batches)
    if isinstance(batch_sampler, BatchSamplerShard):
        return batch_sampler.iter_from(skip_batches)
    if not skip_batches or not cuts_evenly(batch_sampler):
        return islice(batch_sampler, skip_batches, None)
    size: int = batch_sampler.batch_size
    _, samples = samples_after(batch_sampler.sampler, skip_batches * size)
    return iter(BatchSampler(samples, size, batch_sampler.drop_last))


def samples_after(sampler: Iterable[int], count: int, keep: int = 0) -> tuple[list[int], Iterator[int]]:
    """Draw `count` samples; return the first `keep` of them, and an iterator over what comes after all."""
    if type(sampler) is SequentialSampler:
        total = len(sampler)
        return list(range(min(keep, count, total))), iter(range(count, total))
    samples = iter(sampler)
    kept = list(islice(samples, min(keep, count)))
    _drop(samples, count - len(kept))
    return kept, samples


def _drop(samples: Iterator[int], count: int) -> None:
    """Draw samples and forget them: at the speed of a list, where a generator passes on what is in one."""
    while count > 0 and next(samples, _END) is not _END:
        count -= 1
        source: Any = getattr(samples, "gi_yieldfrom", None)
        if type(source) is not _LIST_ITERATOR:
            source = samples
        at_once = min(count, length_hint(source, count))
        deque(islice(source, at_once), maxlen=0)
        count -= at_once


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
