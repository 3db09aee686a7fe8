"""Which batches of a sampler are this rank's. Put into a rank's loader by prepare.py.

[Note: rounds] A sampler's batches are dealt to the ranks in *rounds*, one batch a rank. With
`split_batches` one batch of the sampler is a round, cut into a *share* for each rank; without, each
`num_processes` consecutive batches are. Only the last round can be short. `even_batches` completes it
with *fill*: samples of the first round, in order, started over as often as needed. Fill follows the last
real sample, so that cutting the gathered last round to its real length removes exactly the duplicates.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, cycle, islice
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from accelerate.data.order import Block, OrderReader, as_list
from accelerate.data.samplers import (
    AroundBatchSampler,
    SeedableRandomSampler,
    cuts_evenly,
    index_sampler,
    num_samples,
    without_skips,
)
from accelerate.errors import ConfigurationError

__all__ = ["BatchSamplerShard", "counts_certainly", "is_counted"]

_COUNTED = frozenset(
    [RandomSampler, SeedableRandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler]
)


class BatchSamplerShard(AroundBatchSampler):
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
        """Cut this rank's share out of the order: what is other ranks' is passed over as a whole."""
        size = self._share() * self.num_processes
        reader = OrderReader(sampler)
        first, order = reader.after(skip_rounds * size, keep=size)
        at = 0
        while True:
            share = self._share()
            size = share * self.num_processes
            if len(order) - at < size:
                order, at = _lengthened(order[at:], size, reader), 0
                first = first or as_list(order[:size])
                if len(order) < size:
                    break
            start = at + self.process_index * share
            yield as_list(order[start : start + share])
            at += size
        block = as_list(order)
        if not block or self.drop_last:
            return
        if self.even_batches:
            self.last_round = len(block)
            block = list(islice(chain(block, cycle(first)), size))
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


def counts_certainly(loader: "DataLoader[Any]") -> bool:
    """Return whether a pass of a loader has exactly as many batches as its index sampler says.

    That is so where torch's own classes do all the counting, in this process.
    """
    own_loop = type(loader).__iter__ is DataLoader.__iter__ and not loader.num_workers
    return own_loop and is_counted(without_skips(index_sampler(loader)))


def is_counted(sampler: Any) -> bool:
    """Return whether an index sampler has exactly the length that it tells, without drawing anything."""
    cutter = sampler.batch_sampler if type(sampler) is BatchSamplerShard else sampler
    return type(cutter) is BatchSampler and type(cutter.sampler) in _COUNTED


def _lengthened(block: Block, size: int, reader: OrderReader) -> Block:
    """Return `block` with what comes next, `size` samples or more, fewer only at the end."""
    while len(block) < size and len(upcoming := reader.more(size - len(block))):
        block = [*as_list(block), *as_list(upcoming)] if len(block) else upcoming
    return block
