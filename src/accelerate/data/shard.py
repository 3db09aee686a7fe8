"""A loader as one rank sees it: its own batches, on its device, with the end known. Made by prepare.py.

`DataLoaderAdapter` holds a torch loader without rebuilding it, so that a user's subclass keeps its
`__iter__`; `DataLoaderStateMixin` tells the accumulation window where a pass begins and ends;
`DataLoaderShard` is both, for datasets that are read by index.
"""

import copy
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from accelerate.data.samplers import (
    BatchSamplerShard,
    SeedableRandomSampler,
    SkipBatchSampler,
    get_sampler,
    index_sampler,
    num_samples,
    sampler_chain,
    without_first,
    without_skips,
)
from accelerate.errors import ConfigurationError
from accelerate.modules.nested import send_to_device
from accelerate.options.enums import RNGType
from accelerate.runtime.accumulation import accumulation
from accelerate.runtime.rng import synchronize_rng_states
from accelerate.state import GradientState, gradient_state

__all__ = ["DataLoaderAdapter", "DataLoaderShard", "DataLoaderStateMixin"]

_END = object()
_FLAT = frozenset([list, tuple])


class DataLoaderStateMixin:
    """What the accumulation window asks of a loader that is being iterated.

    Attributes:
        end_of_dataloader: whether the batch in hand is the last of this pass.
        remainder: real samples in the last global batch, 0 when it is full, -1 when nobody can know or
            when the last batch is dropped.
    """

    end_of_dataloader: bool = False
    remainder: int = -1

    @property
    def gradient_state(self) -> GradientState:
        """The public view of the accumulation window that this loader reports to."""
        return gradient_state()

    def reset(self) -> None:
        """Forget where the last pass stood."""
        self.end_of_dataloader = False
        self.remainder = -1

    def begin(self) -> None:
        """Start a pass: from now on this is the active loader."""
        self.reset()
        self.remainder = self._known_remainder()
        accumulation.remove_loader(self)  # a pass that was not ended is given up
        accumulation.add_loader(self)

    def end(self) -> None:
        """End a pass: the loader outside of this one, if any, is active again."""
        accumulation.remove_loader(self)

    def _known_remainder(self) -> int:
        return -1


class DataLoaderAdapter:
    """Stand in for a torch loader: everything that is not defined here is asked of `base_dataloader`.

    `isinstance` takes it for an instance of the base loader's class; only `type()` sees the difference.

    Args:
        dataset: as for `torch.utils.data.DataLoader`, like all that follows.
        use_stateful_dataloader: not available in this version.
        batch_sampler: as for `torch.utils.data.DataLoader`.
        kwargs: as for `torch.utils.data.DataLoader`.

    Raises:
        ConfigurationError: `use_stateful_dataloader=True`.
        TypeError: a keyword that `DataLoader` does not know.
    """

    base_dataloader: "DataLoader[Any]"
    use_stateful_dataloader: bool = False

    def __init__(
        self,
        dataset: Any,
        use_stateful_dataloader: bool = False,
        batch_sampler: Any = None,
        **kwargs: Any,
    ) -> None:
        if use_stateful_dataloader:
            raise ConfigurationError(
                "use_stateful_dataloader=True is not available in this version; leave it at False."
            )
        self.base_dataloader = DataLoader(dataset, batch_sampler=batch_sampler, **kwargs)

    def __getattr__(self, name: str) -> Any:
        # Not yet set while copy and pickle make an instance; and what they ask is not for its base.
        if name == "base_dataloader" or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.base_dataloader, name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.__dict__.get("base_dataloader", self))

    def __len__(self) -> int:
        """Return the number of batches of a pass on this rank."""
        return len(self.base_dataloader)

    def __reduce__(self) -> tuple[Any, ...]:
        # The default asks `__class__`, and would make an empty torch loader.
        return _restore, (type(self), self.__dict__.copy())


def _restore(kind: type[DataLoaderAdapter], state: dict[str, Any]) -> DataLoaderAdapter:
    loader = kind.__new__(kind)
    loader.__dict__.update(state)
    return loader


class DataLoaderShard(DataLoaderAdapter, DataLoaderStateMixin):
    """Iterate the batches of this rank, moved to its device, one batch ahead so that the end is known.

    Every rank iterates its own shard. At the start of a pass the ranks agree on the random state that
    `rng_types` names (a collective, where there are several ranks) and the loader becomes the active one of
    the accumulation window; it stays so until the pass ends, by its last batch, an exception or an early
    `break`.

    `iteration` counts the passes that were read to their end. At each start, samplers, batch samplers
    and datasets that have a `set_epoch` are told it, except those whose `epoch` was changed by somebody
    else in the meantime: a user's own calls win.

    Args:
        dataset: as for `torch.utils.data.DataLoader`.
        device: where batches go; None leaves them where they are.
        rng_types: random states that follow rank 0 at each start, such as `["generator"]`.
        synchronized_generator: the generator that `"generator"` in `rng_types` stands for.
        skip_batches: batches left out at the start of each pass.
        use_stateful_dataloader: not available in this version.
        torch_device_mesh: taken for compatibility; which batches are this rank's is up to the sampler.
        iteration: the epoch with which to start.
        kwargs: as for `torch.utils.data.DataLoader`.

    Raises:
        ConfigurationError: `use_stateful_dataloader=True`.
        TypeError: a keyword that `DataLoader` does not know.
    """

    device: torch.device | None
    rng_types: list[str | RNGType] | None
    synchronized_generator: torch.Generator | None
    skip_batches: int = 0
    given: "DataLoader[Any] | None" = None  # the user's loader, where this one stands for all of it
    _iteration: int = 0
    _drop_last: bool
    _non_blocking: bool
    _pass: int = 0  # the pass that owns the place in the accumulation window
    _whole: "DataLoaderShard | None" = None  # the loader whose pass this one takes up where it was left
    # id of who is told epochs -> its `epoch` when this loader, or one that it was copied from, looked last
    _noted_epochs: dict[int, Any]

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
        self.iteration = iteration
        self._drop_last = _drop_last
        self._non_blocking = _non_blocking
        self._noted_epochs = {}
        self._note_epochs()

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
        """Return a shard around an existing loader, whose sampler already yields this rank's batches."""
        shard = cls.__new__(cls)
        shard.given = given
        shard.base_dataloader = loader
        shard.device = None if device is None else torch.device(device)
        shard.rng_types = rng_types
        shard.synchronized_generator = synchronized_generator
        shard._drop_last = drop_last
        shard._non_blocking = non_blocking
        shard._noted_epochs = {}
        shard._note_epochs()
        return shard

    def without_first(self, num_batches: int) -> "DataLoaderShard":
        """Return a loader for the rest of a pass; see `skip_first_batches`.

        Its passes are passes of this loader: the two share their `iteration`.

        Args:
            num_batches: batches of this rank to leave out; they are not loaded.
        """
        rest = copy.copy(self)
        rest.base_dataloader = without_first(self.base_dataloader, num_batches)
        rest.given = None
        rest._whole = self if self._whole is None else self._whole
        rest.reset()
        return rest

    def __iter__(self) -> Iterator[Any]:
        """Yield this rank's batches; see the class for what the start and the end of a pass do."""
        self._pass = this_pass = self._pass + 1
        self.begin()
        try:
            batches = self._start()
            move = self._mover()
            batch = next(batches, _END)
            while batch is not _END:
                upcoming = next(batches, _END)
                if upcoming is _END:
                    self._note_end()
                yield batch if move is None else move(batch)
                batch = upcoming
            self.iteration += 1
        finally:
            if self._pass == this_pass:  # otherwise a later pass over this loader is on
                self.end()

    def _start(self) -> Iterator[Any]:
        if self.rng_types:
            synchronize_rng_states(self.rng_types, self.synchronized_generator)
        for listener in self._epoch_listeners():
            epoch = getattr(listener, "epoch", None)
            untouched = self._noted_epochs.get(id(listener), epoch) == epoch
            # A seedable sampler also advances by itself, when workers have read ahead to its end.
            if untouched or isinstance(listener, SeedableRandomSampler):
                listener.set_epoch(self.iteration)
        self._note_epochs()
        if not self.skip_batches:
            return iter(self.base_dataloader)
        if isinstance(self.dataset, IterableDataset):
            return islice(self.base_dataloader, self.skip_batches, None)
        return iter(without_first(self.base_dataloader, self.skip_batches))

    def _mover(self) -> Callable[[Any], Any] | None:
        """Return what brings a batch to the device, None where batches stay."""
        if self.device is None:
            return None
        # A CPU tensor never reports an index.
        device = torch.device("cpu") if self.device.type == "cpu" else self.device
        send = partial(send_to_device, device=device, non_blocking=self._non_blocking)

        def move(batch: Any) -> Any:
            # The commonest batches, when they are there already, are worth a look before the general way.
            kind = type(batch)
            for leaf in batch.values() if kind is dict else batch if kind in _FLAT else (batch,):
                if type(leaf) is not Tensor or leaf.device != device:
                    return send(batch)
            return batch

        return move

    def _note_end(self) -> None:
        self.end_of_dataloader = True
        sampler = self._dealer()
        if self.remainder == -1 and isinstance(sampler, BatchSamplerShard) and not self._drops_last(sampler):
            # Nobody could know it before, but the sampler has counted.
            self.remainder = -1 if sampler.last_round is None else sampler.last_round

    def _dealer(self) -> Any:
        """Return what decides which samples are this rank's, in a whole pass."""
        return without_skips(index_sampler(self.base_dataloader))

    def _drops_last(self, sampler: Any) -> bool:
        return self._drop_last or bool(getattr(sampler, "drop_last", False))

    def _known_remainder(self) -> int:
        sampler, size = self._dealer(), self.total_batch_size
        total = num_samples(sampler.batch_sampler if isinstance(sampler, BatchSamplerShard) else sampler)
        if not size or total is None or self._drops_last(sampler):
            return -1
        return total % size

    @property
    def iteration(self) -> int:
        """Number of passes that were read to their end: the epoch of the next one."""
        return self._iteration if self._whole is None else self._whole.iteration

    @iteration.setter
    def iteration(self, epoch: int) -> None:
        if self._whole is None:
            self._iteration = epoch
        else:
            self._whole.iteration = epoch

    @property
    def total_batch_size(self) -> int | None:
        """Samples of all ranks together in a full batch; None where batches have no declared size."""
        sampler = self._dealer()
        if isinstance(sampler, BatchSamplerShard):
            return sampler.round_size
        return getattr(sampler, "batch_size", None)

    @property
    def total_dataset_length(self) -> int:
        """Number of samples in the dataset, all ranks together."""
        return len(self.dataset)

    def __len__(self) -> int:
        """Return the number of batches of a pass on this rank."""
        return max(0, len(self.base_dataloader) - self.skip_batches)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass, and tell everything of this loader that has a `set_epoch`.

        Args:
            epoch: becomes `iteration`; the same number gives the same order again, where the sampler's order
                depends on nothing else.
        """
        self.iteration = epoch
        for listener in self._epoch_listeners():
            listener.set_epoch(epoch)
        self._note_epochs()

    def _epoch_listeners(self) -> list[Any]:
        """Return what has a `set_epoch`: samplers from the outermost inwards, then the dataset."""
        forwarding = (BatchSamplerShard, SkipBatchSampler)
        samplers = [link for link in sampler_chain(self) if not isinstance(link, forwarding)]
        return [each for each in (*samplers, self.dataset) if callable(getattr(each, "set_epoch", None))]

    def _note_epochs(self) -> None:
        self._noted_epochs.clear()  # in place: the loader of the rest of a pass shares it
        self._noted_epochs.update(
            (id(each), getattr(each, "epoch", None)) for each in self._epoch_listeners()
        )

    def get_sampler(self) -> Any:
        """Return the sampler that decides the order of the samples, None where a batch sampler does."""
        return get_sampler(self.base_dataloader)

    def set_sampler(self, sampler: Any) -> None:
        """Put another sampler in the place of the one that `get_sampler` returns.

        Args:
            sampler: yields indices of the dataset, in the same order on every rank.

        Raises:
            ConfigurationError: a batch sampler chooses the samples itself.
        """
        base = self.base_dataloader
        *owners, replaced = sampler_chain(base)
        if get_sampler(base) is None:
            raise ConfigurationError(
                f"set_sampler({sampler!r}): the batch sampler {replaced!r} of this loader has no `sampler` "
                "to replace. Make a loader with another batch sampler and prepare that one."
            )
        if owners:
            holds_it_as_batches = getattr(owners[-1], "batch_sampler", None) is replaced
            setattr(owners[-1], "batch_sampler" if holds_it_as_batches else "sampler", sampler)
        if base.sampler is replaced:
            vars(base)["sampler"] = sampler  # torch refuses the plain assignment
