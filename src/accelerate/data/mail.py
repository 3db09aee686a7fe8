"""The batches of a pass on their way from rank 0 to all ranks. Called by the dispatcher, on every rank.

[Note: dispatch] Every rank takes part in one scatter a step, on its main thread, always between two batches.
While a batch is used the next one is on its way: a step ends the scatter of its own batch, begins that of the
next, and returns. All rows of a scatter have one length, which all ranks know beforehand: that of the longest
of the last few messages. A longer message continues in a second scatter. Rank 0 therefore reads two rounds
ahead, one that is on its way and one that tells whether it is the last. An exception of rank 0 travels in
place of a batch and is raised in its place, on every rank.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from accelerate.data.parcels import Head, Packer, Parcel, Unpacker, exception_parcel, read_head
from accelerate.data.reading import Round
from accelerate.data.rows import Nothing
from accelerate.runtime.rank_group import RankGroup

__all__ = ["ERROR", "Mail"]

NOTHING, BATCH, END, ERROR = range(4)  # kinds of messages; what a rank gets may differ in the first two

_STEP = "next batch of a dispatched loader"
_REMEMBERED = 8  # messages, whose longest says how long the rows of the next one are
_FIRST_LENGTH = 4096  # bytes, of the rows of the first message

Scatter = Callable[[Tensor, Sequence[Tensor]], Callable[[], object]]


def _not_begun(row: Tensor, rows: Sequence[Tensor]) -> Callable[[], object]:
    raise AssertionError("a scatter belongs into a step")


class Mail:
    """One message after the other, from rank 0 to all; each is begun in one step and ended in the next.

    Args:
        ranks: all ranks that iterate.
        rounds: what they get; asked on rank 0 only.
        share_of_rank: which share each rank gets.
    """

    def __init__(self, ranks: RankGroup, rounds: Iterator[Round], share_of_rank: Sequence[int]) -> None:
        self._ranks = ranks
        self._is_source = ranks.rank == 0
        self._rounds = rounds
        self._share_of_rank = share_of_rank
        self._packers: dict[int, Packer] = {}
        self._unpacker = Unpacker()
        self._lengths = deque([_FIRST_LENGTH], maxlen=_REMEMBERED)
        self._num_steps = self._num_begun = self._num_ended = 0
        self._scatter: Scatter = _not_begun
        self._row = torch.empty(0, dtype=torch.uint8)  # what this rank gets
        self._wait: Callable[[], object] = int
        # On rank 0, of the message that is on its way: what is too long for a row, and its own share.
        self._whole: Sequence[Tensor] = ()
        self._own: Any = None
        self._next_state: Any = None
        self.state: Any = None  # on rank 0, of what is read from, right behind the message that was received
        self._was_last = False  # on rank 0: no message follows the one that was begun
        self._failure: Exception | None = None

    def begin(self) -> None:
        """Begin the first message."""
        with self._step():
            self._begin()

    def receive(self) -> tuple[Head, Any]:
        """End a message, and begin the next one unless this is the last.

        Returns:
            The head, and what came: the batch or exception for this rank, or `Nothing`.
        """
        with self._step():
            head = self._end()
            self.state = self._next_state
            if not head.last:
                content = self._content(head)
                self._begin()
                return head, content
        return head, self._content(head)

    def fail(self, error: Exception) -> None:
        """Tell the others that rank 0 has failed where it does not read, as by a signal of a dead worker."""
        if not self._is_source:
            return
        if self._num_ended < self._num_begun:
            self._end()
        if not self._was_last:  # otherwise they wait for nothing more
            self._failure = error
            self._begin()
            self._end()
        self._count_steps(self._num_begun + 1)

    def _count_steps(self, number: int) -> None:
        """Take part in as many steps as the others, by which all ranks number what they do together."""
        while self._num_steps < number:
            with self._step():
                pass

    @contextmanager
    def _step(self) -> Iterator[None]:
        self._num_steps += 1
        with self._ranks.exchange(_STEP) as self._scatter:
            yield

    def _begin(self) -> None:
        length = max(self._lengths)
        self._row = torch.empty(length, dtype=torch.uint8)
        self._whole = self._written(length) if self._is_source else ()
        self._wait = self._scatter(self._row, [row[:length] for row in self._whole])
        self._num_begun += 1

    def _end(self) -> Head:
        self._wait()
        head = read_head(self._row)
        length = len(self._row)
        if head.length > length:
            rest = torch.empty(head.length - length, dtype=torch.uint8)
            self._scatter(rest, [row[length:] for row in self._whole])()
            self._row = torch.cat([self._row, rest])
        self._lengths.append(head.length)
        self._num_ended += 1
        return head

    def _content(self, head: Head) -> Any:
        if self._is_source:
            return self._own
        return Nothing if head.kind in (NOTHING, END) else self._unpacker.unpack(self._row, head)

    def _written(self, length: int) -> list[Tensor]:
        """Return the rows of all ranks, `length` bytes long or more, from the next round."""
        each = None
        try:
            if self._failure is not None:
                raise self._failure
            each = next(self._rounds, None)
            self._next_state = None if each is None else each.state
            parcels = self._packed(each)
            self._own, kind = Nothing if each is None else each.shares[self._share_of_rank[0]], BATCH
        except Exception as error:  # whatever the dataset raises, all ranks do
            parcels, self._own, kind = self._for_all(exception_parcel(error)), error, ERROR
        if each is None and kind == BATCH:
            kind = END
        self._was_last = each is None or kind == ERROR or each.last
        longest = max(parcel.length for parcel in parcels.values())
        rows = {}
        for share, parcel in parcels.items():
            rows[share] = row = torch.empty(max(longest, length), dtype=torch.uint8)
            self._head(kind, each, share, longest, len(parcel.form)).write(row)
            parcel.write(row)
        return [rows[share] for share in self._share_of_rank]

    def _packed(self, each: Round | None) -> dict[int, Parcel]:
        """Return a parcel for each share; an empty one for rank 0's own, and where there is nothing."""
        parcels = self._for_all(Parcel())
        if each is None:
            return parcels
        for share in dict.fromkeys(self._share_of_rank[1:]):
            content = each.shares[share]
            if content is not Nothing:
                parcels[share] = self._packers.setdefault(share, Packer()).pack(content)
        return parcels

    def _for_all(self, parcel: Parcel) -> dict[int, Parcel]:
        return dict.fromkeys(self._share_of_rank, parcel)

    def _head(self, kind: int, each: Round | None, share: int, longest: int, form: int) -> Head:
        if each is None or kind != BATCH:
            return Head(kind=kind, length=longest, form=form, ends=1, last=1, rows=-1, real_rows=-1)
        return Head(
            kind=NOTHING if each.shares[share] is Nothing else BATCH,
            length=longest,
            form=form,
            ends=int(each.ends[share]),
            last=int(each.last),
            rows=each.rows,
            real_rows=-1 if each.real_rows is None else each.real_rows[share],
        )
