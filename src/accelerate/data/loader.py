"""A pass over a prepared loader: its start, its end, its place. Base of the loaders that prepare.py makes.

[Note: the end] The last batch must be known as such while it is in hand. Where torch's own classes count, the
end is known beforehand and nothing is read ahead, so that random numbers are drawn in the order of a plain
loop. Elsewhere the loader reads one batch ahead.
"""

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from torch.utils.data import DataLoader

from accelerate.data import stateful
from accelerate.data.adapter import DataLoaderAdapter, DataLoaderStateMixin
from accelerate.data.moving import OverlappedMover
from accelerate.data.progress import Place, Progress, beginnings, restore_beginnings, shielded
from accelerate.data.resume import iterate_from
from accelerate.data.samplers import (
    AroundBatchSampler,
    SeedableRandomSampler,
    get_sampler,
    index_sampler,
    sampler_chain,
    without_skips,
)
from accelerate.errors import CheckpointError, ConfigurationError
from accelerate.runtime.accumulation import accumulation

__all__ = ["PreparedLoader"]

_END: Any = object()
_VERSION = 1  # of the state dict

Self = TypeVar("Self", bound="PreparedLoader")


class PreparedLoader(DataLoaderAdapter, DataLoaderStateMixin):
    """What the loader of one rank is, whoever reads its batches.

    Subclasses say where batches come from (`_open`), how they get to the device (`_mover`), and what is known
    of their number (`_known_end`, `_known_remainder`, `total_batch_size`).
    """

    skip_batches: int = 0
    given: "DataLoader[Any] | None" = None  # the user's loader, where this one stands for all of it
    _progress: Progress
    _is_rest: bool = False  # made by `without_first`
    _left_out: int = 0  # batches that the base loader does not have, as the rest of a pass
    _pass: int = 0  # the pass that owns the place in the accumulation window
    # id of who is told epochs -> its `epoch` when this loader, or one that it was copied from, looked last
    _noted_epochs: dict[int, Any]

    def _track(self, iteration: int = 0) -> None:
        """Begin to count passes. The last step of making a loader."""
        self._progress = Progress(iteration)
        self._noted_epochs = {}
        self._note_epochs()

    def __copy__(self: Self) -> Self:
        """Return a loader with the same base that counts for itself."""
        twin: Self = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._progress = copy.copy(self._progress)
        return twin

    def without_first(self: Self, num_batches: int) -> Self:
        """Return a loader for the rest of a pass; see `skip_first_batches`.

        Its passes are passes of this loader: the two share their `iteration` and their place.

        Args:
            num_batches: batches of this rank to leave out; they are not loaded.
        """
        rest = copy.copy(self)
        rest._progress = self._progress
        rest.given = None
        rest._is_rest = True
        rest._leave_out(num_batches)
        rest.reset()
        return rest

    def _leave_out(self, num_batches: int) -> None:
        self.skip_batches += num_batches

    def __iter__(self) -> Iterator[Any]:
        """Yield this rank's batches; see the class for what the start and the end of a pass do."""
        self._pass = this_pass = self._pass + 1
        progress = self._progress
        self.begin()
        try:
            seen, batches = self._start()
            last, move = self._known_end(), self._mover()
            if isinstance(move, OverlappedMover) and (last is None or self._may_read_ahead(last)):
                last, batches, move = None, self._one_ahead(batches, move.begin), move.finish
            elif last is None:
                batches = self._one_ahead(batches)
            for batch in batches:
                seen += 1
                if seen == last:
                    self._note_end()
                progress.batches = seen
                yield batch if move is None else move(batch)
            progress.finish()
        finally:
            if self._pass == this_pass:  # otherwise a later pass over this loader is on
                progress.leave()
                self.end()

    def _may_read_ahead(self, last: int) -> bool:
        """Return whether reading ahead changes nothing: workers have done it, and the end is known."""
        return last > 0 and self.num_workers > 0

    def _one_ahead(self, batches: Iterator[Any], begin: Callable[[Any], Any] | None = None) -> Iterator[Any]:
        """Read one batch ahead, to note the end in time; a failure comes behind the batch before it.

        Args:
            batches: to read.
            begin: called with each as soon as it was read; what it returns stands for the batch.
        """
        batches = batches if begin is None else map(begin, batches)
        batch = next(batches, _END)
        while batch is not _END:
            failure: Exception | None = None
            upcoming = _END
            try:
                upcoming = next(batches, _END)
            except Exception as error:
                failure = error
            if upcoming is _END and failure is None:
                self._note_end()
            yield batch
            if failure is not None:
                raise failure
            batch = upcoming

    def _start(self) -> tuple[int, Iterator[Any]]:
        """Begin a pass; return how many of its batches are left out, and an iterator over the others."""
        self._synchronize()
        self._tell_epoch()
        skip, left_out = self.skip_batches, self._left_out
        place = self._progress.begin(self.base_dataloader)
        if place is None:
            return left_out + skip, self._open(skip, None)
        if self._is_rest:  # who skips by hand counts from the start of the pass
            return left_out + skip, self._open(skip, place)
        if place.base_state is None:
            skip = max(skip, place.batches)
            return skip, self._open(skip, place)
        self.base_dataloader.load_state_dict(place.base_state)  # type: ignore[attr-defined]
        with shielded(place.beginnings):
            return place.batches, self._open(0, None)

    def _open(self, skip: int, place: Place | None) -> Iterator[Any]:
        """Return an iterator over the batches of this rank behind the first `skip`, from a loaded place."""
        return self._iterate_base(skip, place)

    def _iterate_base(self, skip: int, place: Place | None, keep: int = 0) -> Iterator[Any]:
        beginnings = None if place is None else place.beginnings
        batches = iterate_from(self.base_dataloader, skip, beginnings, keep)
        return stateful.recorded(self, batches) if self._records() else batches

    def _records(self) -> bool:
        """Return whether torchdata's state is noted batch by batch."""
        return self.use_stateful_dataloader

    def evens(self) -> Any:
        """Return whose `even_batches` decides whether the last batches are completed, None where nobody's."""
        return None

    def _synchronize(self) -> None:
        """Make the ranks agree about what the order is drawn from."""

    def _mover(self) -> Callable[[Any], Any] | None:
        """Return what brings a batch to the device, None where batches stay."""
        return None

    def _known_end(self) -> int | None:
        """Return the number of batches of a whole pass where it is certain; see [Note: the end].

        0 where `_open` notes the end itself, in time.
        """
        return None

    def _note_end(self) -> None:
        self.end_of_dataloader = True

    # ---- the place of a pass -----------------------------------------------------------------------------

    @property
    def keeps_place(self) -> bool:
        """True: checkpoints hold where this loader stands."""
        return True

    def adjust_state_dict_for_prefetch(self) -> None:
        """Change nothing: `dl_state_dict` is that of the batch in hand, whatever was read ahead."""

    @property
    def iteration(self) -> int:
        """Number of passes that were read to their end: the epoch of the next one."""
        return self._progress.epoch

    @iteration.setter
    def iteration(self, epoch: int) -> None:
        self._progress.epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        """Return where this loader stands, the batch in hand counted as seen. Nothing is sent.

        Returns:
            Numbers, tensors and containers of them; torchdata's own state among them, if it is the base.
        """
        place = self._place()
        return stateful.combined(self, place) if self.use_stateful_dataloader else place

    def _place(self) -> dict[str, Any]:
        progress = self._progress
        unit, size = self._unit()
        # A pass inside that of another loader which is on, an evaluation, is over once it was left.
        inside = not progress.is_on and progress.loaded is None and accumulation.active_loader is not None
        batches = 0 if inside else progress.batches
        order = progress.beginnings if batches else self._beginnings_between()
        return {
            "version": _VERSION,
            "epoch": progress.epoch,
            "batches": batches,
            "unit": unit,
            "position": batches * size,
            "num_processes": self._num_ranks(),
            "num_workers": self.num_workers,
            "order": dict(order),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next pass begin where a loader stood; every rank calls it with the same state.

        `set_epoch` with another epoch, or a pass over `skip_first_batches` of this loader, gives the place
        up again.

        Args:
            state_dict: what `state_dict` returned, on this or another number of ranks; or a state of
                torchdata's loader.

        Raises:
            CheckpointError: it is no such state, or was saved with another global batch size and stands
                between two batches of this loader.
        """
        state, base_state = stateful.separated(state_dict, self._place())
        if state is None or state["version"] != _VERSION:
            raise CheckpointError(
                f"load_state_dict(...): no state of a prepared loader of this version, but with the keys "
                f"{sorted(map(str, state_dict))}. Load what `state_dict()` of a prepared loader returned."
            )
        batches, order = self._batches_in(state), state["order"]
        restore_beginnings(self.base_dataloader, order, in_pass=batches > 0)
        if not self.use_stateful_dataloader:
            base_state = None
        elif base_state is not None and not batches:
            self.base_dataloader.load_state_dict(base_state)  # type: ignore[attr-defined]
        self.dl_state_dict = base_state
        place = Place(batches=batches, beginnings=order, base_state=base_state)
        self._progress.load(state["epoch"], place)

    def _beginnings_between(self) -> dict[str, Any]:
        """Return what the order of the next pass depends on, where it is this loader's own to keep."""
        current = beginnings(self.base_dataloader)
        return {kind: value for kind, value in current.items() if kind in ("seed", "generator")}

    def _batches_in(self, state: dict[str, Any]) -> int:
        """Return how many batches of this rank have been seen at the place that a state describes."""
        unit, size = self._unit()
        if unit is not None and unit == state["unit"]:
            batches, rest = divmod(state["position"], size)
            if not rest:
                return int(batches)
            raise CheckpointError(
                f"load_state_dict(...): the state stands behind {state['position']} {unit}, and this "
                f"loader reads {size} at a time, on {self._num_ranks()} ranks together. Load it with "
                "a batch size and a number of ranks whose product is that of the save."
            )
        mine = (self._num_ranks(), self.num_workers)
        if state["batches"] and (state["num_processes"], state["num_workers"]) != mine:
            warnings.warn(
                f"The place of a data loader is not exact: its state was saved with {state['num_processes']} "
                f"ranks of {state['num_workers']} workers, and which of them reads what of a stream changes "
                f"with {mine[0]} of {mine[1]}. Some samples will be read twice and others not at all.",
                stacklevel=4,
            )
        return int(state["batches"])

    def _unit(self) -> tuple[str | None, int]:
        """Return what places of this loader are counted in, and how much of it a batch on all ranks is.

        None where the count means nothing on another number of ranks or workers.
        """
        return None, 1

    def _num_ranks(self) -> int:
        """Return how many ranks share the batches."""
        return 1

    # ---- epochs and samplers -----------------------------------------------------------------------------

    def _tell_epoch(self) -> None:
        for listener in self._epoch_listeners():
            epoch = getattr(listener, "epoch", None)
            untouched = self._noted_epochs.get(id(listener), epoch) == epoch
            # A seedable sampler also advances by itself, when workers have read ahead to its end.
            if untouched or isinstance(listener, SeedableRandomSampler):
                listener.set_epoch(self.iteration)
        self._note_epochs()

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
        samplers = [link for link in sampler_chain(self) if not isinstance(link, AroundBatchSampler)]
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

    def _dealer(self) -> Any:
        """Return what decides which samples are this rank's, in a whole pass."""
        return without_skips(index_sampler(self.base_dataloader))

    @property
    def total_dataset_length(self) -> int:
        """Number of samples in the dataset, all ranks together."""
        return len(self.dataset)

    def __len__(self) -> int:
        """Return the number of batches of a pass on this rank."""
        return max(0, len(self.base_dataloader) - self.skip_batches)
