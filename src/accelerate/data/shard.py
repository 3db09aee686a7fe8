"""The loader of a rank that reads its own batches, on its device, with the end known. Made by prepare.py."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from accelerate.data import stateful
from accelerate.data.adapter import ALL_ROWS
from accelerate.data.loader import PreparedLoader
from accelerate.data.moving import mover
from accelerate.data.progress import Place
from accelerate.data.rounds import BatchSamplerShard, counts_certainly
from accelerate.data.samplers import num_samples, without_first
from accelerate.data.streams import IterableDatasetShard
from accelerate.data.together import in_step
from accelerate.options.enums import RNGType
from accelerate.runtime.collectives import current_ranks
from accelerate.runtime.rng import synchronize_rng_states

__all__ = ["DataLoaderShard"]


class DataLoaderShard(PreparedLoader):
    """Iterate the batches of this rank, moved to its device; see [Note: the end] in loader.py.

    Every rank iterates its own shard. At the start of a pass the ranks agree on the random state that
    `rng_types` names (a collective, where there are several ranks) and the loader becomes the active one of
    the accumulation window; it stays so until the pass ends, by its last batch, an exception or an early
    `break`.

    `iteration` counts the passes that were read to their end. At each start, samplers, batch samplers
    and datasets that have a `set_epoch` are told it, except those whose `epoch` was changed by somebody
    else in the meantime: a user's own calls win. `state_dict` tells where the loader stands.

    Args:
        dataset: as for `torch.utils.data.DataLoader`.
        device: where batches go; None leaves them where they are.
        rng_types: random states that follow rank 0 at each start, such as `["generator"]`.
        synchronized_generator: the generator that `"generator"` in `rng_types` stands for.
        skip_batches: batches left out at the start of each pass.
        use_stateful_dataloader: hold torchdata's `StatefulDataLoader`, whose state is saved with it.
        torch_device_mesh: taken for compatibility; which batches are this rank's is up to the sampler.
        iteration: the epoch with which to start.
        kwargs: as for `torch.utils.data.DataLoader`.

    Raises:
        MissingPackageError: `use_stateful_dataloader=True` without torchdata.
        TypeError: a keyword that `DataLoader` does not know.
    """

    device: torch.device | None
    rng_types: list[str | RNGType] | None
    synchronized_generator: torch.Generator | None
    _drop_last: bool
    _non_blocking: bool
    _parts: int = 1  # ranks that each read shards of a stream of their own
    even_batches: bool = False  # where ranks read shards of their own: they end their passes together

    def __init__(
        self,
        dataset: Any,
        device: torch.device | str | None = None,
        rng_types: list[str | RNGType] | None = None,
        synchronized_generator: torch.Generator | None = None,
        skip_batches: int = 0,
        use_stateful_dataloader: bool = False,
        _drop_last: bool = False,
        _non_blocking: bool = False,
        torch_device_mesh: Any = None,
        iteration: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(dataset, use_stateful_dataloader=use_stateful_dataloader, **kwargs)
        self.device = None if device is None else torch.device(device)
        self.rng_types = rng_types
        self.synchronized_generator = synchronized_generator
        self.skip_batches = skip_batches
        self._drop_last = _drop_last
        self._non_blocking = _non_blocking
        self._track(iteration)

    @classmethod
    def wrap(
        cls,
        loader: "DataLoader[Any]",
        *,
        device: torch.device | str | None = None,
        rng_types: list[str | RNGType] | None = None,
        synchronized_generator: torch.Generator | None = None,
        drop_last: bool = False,
        non_blocking: bool = False,
        given: "DataLoader[Any] | None" = None,
    ) -> "DataLoaderShard":
        """Return a shard around an existing loader, which already yields this rank's batches."""
        shard = cls.__new__(cls)
        shard.given = given
        shard.base_dataloader = loader
        shard.use_stateful_dataloader = stateful.is_stateful(loader)
        shard.device = None if device is None else torch.device(device)
        shard.rng_types = rng_types
        shard.synchronized_generator = synchronized_generator
        shard._drop_last = drop_last
        shard._non_blocking = non_blocking
        shard._track()
        return shard

    def take_part(self, num_parts: int, *, together: bool) -> None:
        """Note that the dataset holds only this rank's shards of a stream.

        Args:
            num_parts: number of ranks that have some.
            together: all ranks of the current run have some, and end their passes together.
        """
        self._parts = num_parts
        self.even_batches = together

    def _open(self, skip: int, place: Place | None) -> Iterator[Any]:
        batches = self._iterate_base(skip, place)
        return in_step(batches, self, current_ranks()) if self.even_batches else batches

    def _leave_out(self, num_batches: int) -> None:
        if isinstance(self.dataset, IterableDataset):
            self.skip_batches += num_batches
            return
        self.base_dataloader = without_first(self.base_dataloader, num_batches)
        self._left_out += num_batches

    def evens(self) -> Any:
        """Return whose `even_batches` decides whether the last batches are completed, None where nobody's."""
        if self._parts > 1:
            return self
        dealer = self.dataset if isinstance(self.dataset, IterableDataset) else self._dealer()
        return dealer if isinstance(dealer, (BatchSamplerShard, IterableDatasetShard)) else None

    def _synchronize(self) -> None:
        if self.rng_types:
            synchronize_rng_states(self.rng_types, self.synchronized_generator)

    def _mover(self) -> Callable[[Any], Any] | None:
        return mover(self.device, non_blocking=self._non_blocking, pinned=self.pin_memory)

    def _known_end(self) -> int | None:
        if self.even_batches:
            return 0  # the ranks agree about it
        if self.use_stateful_dataloader or not counts_certainly(self.base_dataloader):
            return None
        return len(self._dealer())

    def _note_end(self) -> None:
        self.end_of_dataloader = True
        if self.remainder == -1 and not self._drops_last():
            # Nobody could know it before, but who deals has counted.
            last_round = getattr(self._counting(), "last_round", None)
            self.remainder = -1 if last_round is None else last_round

    def _counting(self) -> Any:
        """Return who counts the real samples of the last round while it deals, None where nobody does."""
        if not isinstance(self.dataset, IterableDatasetShard):
            return self._dealer()
        # Each of several workers deals by itself, and ends with a short round of its own.
        return self.dataset if self.num_workers < 2 else None

    def _drops_last(self) -> bool:
        return self._drop_last or bool(getattr(self._dealer(), "drop_last", False))

    def begin(self) -> None:
        """Start a pass: from now on this is the active loader."""
        super().begin()
        dealer = self._dealer()
        if isinstance(dealer, BatchSamplerShard) and not dealer.even_batches and dealer.num_processes > 1:
            self.real_rows = ALL_ROWS  # nothing is filled up, and the last batches differ

    def _known_remainder(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            return -1
        sampler, size = self._dealer(), self.total_batch_size
        total = num_samples(sampler.batch_sampler if isinstance(sampler, BatchSamplerShard) else sampler)
        if not size or total is None or self._drops_last():
            return -1
        return total % size

    def _unit(self) -> tuple[str | None, int]:
        size = self.total_batch_size
        if isinstance(self.dataset, IterableDataset):
            portable = self.num_workers == 0 and size and self._parts == 1
            return ("samples", size) if portable and size else (None, 1)
        dealer = self._dealer()
        if size and num_samples(getattr(dealer, "batch_sampler", dealer)) is not None:
            return "samples", size
        dealt = not isinstance(dealer, BatchSamplerShard) or dealer.split_batches
        return "batches", 1 if dealt else dealer.num_processes

    def _num_ranks(self) -> int:
        dealer = self.dataset if isinstance(self.dataset, IterableDataset) else self._dealer()
        return int(getattr(dealer, "num_processes", self._parts))

    @property
    def total_batch_size(self) -> int | None:
        """Samples of all ranks together in a full batch; None where batches have no declared size."""
        sampler, dataset = self._dealer(), self.dataset
        if isinstance(sampler, BatchSamplerShard):
            return sampler.round_size
        size: int | None = getattr(sampler, "batch_size", None)
        if size and isinstance(dataset, IterableDatasetShard):
            return dataset.round_size
        return size and size * self._parts
