"""The loader of a run where rank 0 reads for all ranks. Made by prepare.py, for streams above all."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from accelerate.data import stateful
from accelerate.data.loader import PreparedLoader
from accelerate.data.mail import ERROR, Mail
from accelerate.data.mesh import DataShares
from accelerate.data.moving import mover
from accelerate.data.progress import Place
from accelerate.data.reading import Round, read_rounds
from accelerate.data.rows import Nothing
from accelerate.errors import AbsentRankError
from accelerate.runtime.collectives import current_ranks
from accelerate.runtime.current import current
from accelerate.runtime.rank_group import RankGroup
from accelerate.state import PartialState, partial_state

__all__ = ["DataLoaderDispatcher"]


class DataLoaderDispatcher(PreparedLoader):
    """Read batches on rank 0 and give each rank its own, on its device; see [Note: dispatch] in mail.py.

    Every rank iterates its dispatcher; only rank 0 touches the dataset. A step takes a batch of the base
    loader for each rank, or with `split_batches` one that is cut into equal parts. Batches may differ in
    shape and hold anything that can be pickled. What is left for the last step is cut evenly and completed
    with rows of the first step; where it cannot be cut, the first ranks get whole batches and the others
    those of the first step.

    Args:
        dataset: as for `torch.utils.data.DataLoader`.
        split_batches: a batch of the base loader is one of all ranks together.
        skip_batches: batches of each rank left out at the start of each pass.
        use_stateful_dataloader: hold torchdata's `StatefulDataLoader`, whose state is saved with it.
        slice_fn: cuts a batch for the ranks, called on rank 0 as `slice_fn(batch, slice, process_index=,
            num_processes=)`; tensors are sliced along dim 0 when None.
        torch_device_mesh: ranks that differ only in dims of model parallelism get the same batches.
        iteration: the epoch with which to start.
        kwargs: as for `torch.utils.data.DataLoader`.

    Raises:
        MissingPackageError: `use_stateful_dataloader=True` without torchdata.
        TypeError: a keyword that `DataLoader` does not know.
    """

    device: torch.device | None
    split_batches: bool
    slice_fn: Callable[..., Any] | None
    torch_device_mesh: Any
    even_batches: bool = True
    _drop_last: bool
    _non_blocking: bool

    def __init__(
        self,
        dataset: Any,
        split_batches: bool = False,
        skip_batches: int = 0,
        use_stateful_dataloader: bool = False,
        _drop_last: bool = False,
        _non_blocking: bool = False,
        slice_fn: Callable[..., Any] | None = None,
        torch_device_mesh: Any = None,
        iteration: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(dataset, use_stateful_dataloader=use_stateful_dataloader, **kwargs)
        self.device = current.ensure().device
        self.split_batches = split_batches
        self.skip_batches = skip_batches
        self.slice_fn = slice_fn
        self.torch_device_mesh = torch_device_mesh
        self._drop_last = _drop_last
        self._non_blocking = _non_blocking
        self._track(iteration)

    @classmethod
    def wrap(
        cls,
        loader: "DataLoader[Any]",
        *,
        device: torch.device | None = None,
        split_batches: bool = False,
        even_batches: bool = True,
        slice_fn: Callable[..., Any] | None = None,
        torch_device_mesh: Any = None,
        drop_last: bool = False,
        non_blocking: bool = False,
        given: "DataLoader[Any] | None" = None,
    ) -> "DataLoaderDispatcher":
        """Return a dispatcher around an existing loader, which yields the batches of all ranks."""
        dispatcher = cls.__new__(cls)
        dispatcher.given = given
        dispatcher.base_dataloader = loader
        dispatcher.use_stateful_dataloader = stateful.is_stateful(loader)
        dispatcher.device = device
        dispatcher.split_batches = split_batches
        dispatcher.even_batches = even_batches
        dispatcher.slice_fn = slice_fn
        dispatcher.torch_device_mesh = torch_device_mesh
        dispatcher._drop_last = drop_last
        dispatcher._non_blocking = non_blocking
        dispatcher._track()
        return dispatcher

    # ---- what others ask -----------------------------------------------------------------------------------

    @property
    def state(self) -> PartialState:
        """The public view of the current run."""
        return partial_state()

    @property
    def submesh_tp(self) -> Any:
        """The dims of tensor parallelism of the mesh, None where it has none."""
        return self._shares().submesh("tp")

    @property
    def submesh_dp(self) -> Any:
        """The dims of plain data parallelism of the mesh, None where it has none."""
        return self._shares().submesh("dp")

    @property
    def submesh_fsdp(self) -> Any:
        """The dims of sharded data parallelism of the mesh, None where it has none."""
        return self._shares().submesh("fsdp")

    @property
    def total_batch_size(self) -> int | None:
        """Samples of all ranks together in a full batch; None where batches have no declared size."""
        size: int | None = getattr(self._dealer(), "batch_size", None)
        return size and size * self._batches_per_round()

    def __len__(self) -> int:
        """Return the number of batches of a pass on this rank."""
        rounds, left = divmod(len(self.base_dataloader), self._batches_per_round())
        return max(0, rounds + (left > 0 and not self._drops_last()) - self.skip_batches)

    def _shares(self) -> DataShares:
        return DataShares.of(self.torch_device_mesh, current.ensure().world)

    def _num_ranks(self) -> int:
        return self._shares().count

    def _batches_per_round(self) -> int:
        return 1 if self.split_batches else self._num_ranks()

    def _drops_last(self) -> bool:
        return self._drop_last or bool(getattr(self._dealer(), "drop_last", False))

    def _unit(self) -> tuple[str | None, int]:
        size = self.total_batch_size
        if self.num_workers and isinstance(self.dataset, IterableDataset):
            return f"batches of {self.num_workers} workers", self._batches_per_round()
        return ("samples", size) if size else ("batches", self._batches_per_round())

    def _mover(self) -> Callable[[Any], Any] | None:
        return mover(self.device, non_blocking=self._non_blocking, pinned=self.pin_memory)

    def evens(self) -> Any:
        """Return whose `even_batches` decides whether the last round is completed."""
        return self

    def _records(self) -> bool:
        return False  # it comes with the rounds

    def _known_end(self) -> int | None:
        return 0  # it comes with the last batch

    # ---- a pass --------------------------------------------------------------------------------------------

    def _open(self, skip: int, place: Place | None) -> Iterator[Any]:
        ranks = current_ranks()
        rounds = self._rounds(skip, place) if ranks.rank == 0 else iter(())
        if ranks.size == 1:
            return self._own(rounds)
        ranks.numbers_of_all(f"begin of a pass over a dispatched loader, {skip} batches left out", [skip])
        return self._received(ranks, rounds)

    def _own(self, rounds: Iterator[Round]) -> Iterator[Any]:
        for each in rounds:
            if each.last:
                self._end_with(each.rows)
            self.dl_state_dict = each.state
            yield each.shares[0]

    def _received(self, ranks: RankGroup, rounds: Iterator[Round]) -> Iterator[Any]:
        mail = Mail(ranks, rounds, self._shares().of_ranks)
        try:
            mail.begin()
            last = False
            while not last:
                head, content = mail.receive()
                last = bool(head.last)
                if content is Nothing:
                    return
                if head.kind == ERROR:
                    break
                self.dl_state_dict = mail.state
                if head.ends:
                    self._end_with(head.rows)
                self.real_rows = None if head.real_rows < 0 else head.real_rows
                yield content
        except AbsentRankError:
            raise  # there is nobody to tell
        except Exception as error:
            mail.fail(error)
            raise
        if head.kind == ERROR:
            raise content

    def _end_with(self, rows: int) -> None:
        self.end_of_dataloader = True
        self.remainder = -1 if self._drops_last() else rows

    def _snapshot(self) -> dict[str, Any] | None:
        return stateful.state_of(self) if self.use_stateful_dataloader else None

    def _rounds(self, skip: int, place: Place | None) -> Iterator[Round]:
        """Return an iterator over what all ranks get. Called on rank 0."""
        count = self._batches_per_round()
        # What is left for the last round is completed from the first one, also where that was seen before.
        keep = count if skip and self.even_batches and self._num_ranks() > 1 else 0
        batches = self._iterate_base(skip * count, place, keep)
        return read_rounds(
            batches,
            count,
            snapshot=self._snapshot,
            first=list(islice(batches, keep)) or None,
            num_shares=self._num_ranks(),
            size=self.base_dataloader.batch_size,
            drop_last=self._drops_last(),
            even=self.even_batches,
            split=self.split_batches,
            slice_fn=self.slice_fn,
        )
