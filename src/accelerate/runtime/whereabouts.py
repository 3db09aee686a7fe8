"""Where every rank is, for the error of a rank that waits in vain. Called by the headers of collectives.

[Note: notes]
Each rank keeps a *note*: the collective that it is in or was in last, with its number and the user's line. To
change it costs two assignments. A thread puts what has changed into the store of the process group, a few
times within the group's time-out, and says when its rank has waited long. It writes and reads there, nothing
else: it takes no part in a collective. A rank whose wait has failed reads the notes of all others.
"""

import contextlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import cached_property, lru_cache
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

__all__ = [
    "Note",
    "NoticeBoard",
    "Site",
    "absence",
    "call_site",
    "default_store",
    "format_ranks",
    "format_site",
    "own_connection",
]

logger = logging.getLogger(__name__)

_PREFIX = "accelerate/whereabouts"

LATE = 60.0  # seconds that a rank waits before it says so
LONGEST_PERIOD = 5.0  # seconds between two looks of the thread
SETTLE = 0.3  # seconds between the loss of a connection and the look at the notes
LAST_LOOK = 10.0  # seconds for the thread to come out of the store
LINGER = 1.0  # seconds that the process which may hold the store stays after its own look

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Code that stands between the user's line and ours, such as decorators and context managers.
_BETWEEN = (_PACKAGE, os.path.dirname(torch.__file__), contextlib.__file__)

Site = tuple[str, int]  # file and line


@lru_cache(maxsize=1024)
def _is_between(file: str) -> bool:
    return os.path.abspath(file).startswith(_BETWEEN)


def _user_frame(frame: FrameType) -> FrameType:
    """Return the innermost frame outside this package and torch, or the outermost one."""
    while _is_between(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def call_site() -> Site:
    """Return file and line of the user's code that called this package."""
    frame = _user_frame(sys._getframe(1))
    return frame.f_code.co_filename, frame.f_lineno


def format_site(site: Site) -> str:
    """Return `train.py:88`, relative to the working directory where the file is below it."""
    file, line = site
    try:
        relative = os.path.relpath(file)
    except ValueError:  # on another drive
        relative = os.pardir
    return f"{file if relative.startswith(os.pardir) else relative}:{line}"


@dataclass(frozen=True, kw_only=True)
class Note:
    """Where one rank is."""

    group: str = ""  # name of the process group; "" before the first call
    operation: str = ""
    number: int = 0  # of the call, within its group
    site: str = ""
    inside: bool = False  # in the call, or after it
    position: str = ""  # what the main thread is doing
    ended: str = ""  # how the rank left the run, "" while it runs

    @property
    def call(self) -> str:
        """The call in words."""
        return f"{self.operation} number {self.number} at {self.site}"

    def is_in(self, other: "Note") -> bool:
        """Return whether this rank is in the same call as that of `other`."""
        mine = (self.group, self.number, self.operation)
        return self.inside and mine == (other.group, other.number, other.operation)


@dataclass(slots=True)
class _Visit:
    """A call of this rank, in the form that costs least to write down."""

    group: str
    operation: str
    number: int
    site: Site
    since: float  # time.monotonic()
    inside: bool = True


def default_store() -> Any:
    """Return the store over which the ranks of the default group have met."""
    return dist.distributed_c10d._get_default_store()


class NoticeBoard:
    """The notes of all ranks; see [Note: notes]. One lives as long as the default process group.

    Args:
        store: of the default process group.
        rank: this process in the default group.
        timeout: of the process group.
    """

    def __init__(self, store: Any, rank: int, timeout: timedelta) -> None:
        self._given = store
        self._main_store = PrefixStore(_PREFIX, store)
        self._rank = rank
        self._timeout = timeout.total_seconds()
        self._period = min(LONGEST_PERIOD, self._timeout / 10)
        self._late = min(LATE, self._timeout / 2)
        self._visit: _Visit | None = None
        self._published = ""
        self._warned: _Visit | None = None
        self._ranks: tuple[int, ...] = ()
        self._stop = threading.Event()
        self._main = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="accelerate-whereabouts", daemon=True)
        self._thread.start()

    @cached_property
    def _thread_store(self) -> Any:
        """The thread's own connection where torch can make one, made when first needed.

        A store answers one caller at a time, and the main thread may wait in the given one for as long as
        the time-out. To connect may take seconds: torch asks for the name of the other side, and name
        servers may be slow; and as long as the time-out where whoever kept the store has left. Neither the
        start of a run nor the main thread shall wait for that.
        """
        return PrefixStore(_PREFIX, own_connection(self._given))

    def enter(self, group: str, ranks: tuple[int, ...], operation: str, number: int, site: Site) -> None:
        """Note that this rank is in a call."""
        self._ranks = ranks
        self._visit = _Visit(group, operation, number, site, time.monotonic())

    def leave(self) -> None:
        """Note that this rank is out of the call that it was in."""
        if self._visit is not None:
            self._visit.inside = False

    def close(self, ended: str = "") -> None:
        """Stop the thread, and wait for it, lest it comes out of the store when the interpreter has gone.

        Args:
            ended: also tell the others that this rank has left the run, and how.
        """
        self._stop.set()
        if ended:
            with contextlib.suppress(RuntimeError):  # whoever kept the store has left: nobody can read it
                self._publish(self._note(ended=ended), self._main_store)
        if threading.current_thread() is not self._thread:  # the garbage collector may close in any thread
            self._thread.join(LAST_LOOK)

    def explain(self, seconds: float) -> str:
        """Return why the call that this rank is in has failed after `seconds`: who is where.

        Where the wait ended early, it gives a rank that has just gone a moment to leave its last note; and in
        the process that may hold the store it waits once more, so that the others can read it.
        """
        mine = self._note()
        try:
            self._publish(mine, self._main_store)
            if seconds < self._timeout:
                time.sleep(SETTLE)
            notes = self._read(self._ranks, self._main_store)
        except RuntimeError:  # whoever kept the store has left
            notes = None
        if self._rank == 0:
            time.sleep(LINGER)
        return absence(self._rank, mine, notes, seconds)

    def _note(self, *, ended: str = "") -> Note:
        visit, position = self._visit, "" if ended else self._position()
        if visit is None:
            return Note(position=position, ended=ended)
        return Note(
            group=visit.group,
            operation=visit.operation,
            number=visit.number,
            site=format_site(visit.site),
            inside=visit.inside and not ended,
            position=position,
            ended=ended,
        )

    def _position(self) -> str:
        frame = sys._current_frames().get(self._main)
        if frame is None:
            return ""
        user = _user_frame(frame)
        return f"{format_site((user.f_code.co_filename, user.f_lineno))} in `{frame.f_code.co_name}`"

    def _publish(self, note: Note, store: Any) -> None:
        text = json.dumps(asdict(note))
        if text != self._published:
            store.set(str(self._rank), text)
            self._published = text

    def _read(self, ranks: Iterable[int], store: Any) -> dict[int, Note | None]:
        notes: dict[int, Note | None] = {}
        for rank in ranks:
            key = str(rank)
            notes[rank] = Note(**json.loads(store.get(key))) if store.check([key]) else None
        return notes

    def _watch(self) -> None:
        try:
            while not self._stop.wait(self._period) and dist.is_initialized():
                self._publish(self._note(), self._thread_store)
                self._warn_if_late()
        except RuntimeError:
            # The store has gone with the process that held it: nobody can ask any more.
            return

    def _warn_if_late(self) -> None:
        visit = self._visit
        if visit is None or not visit.inside or visit is self._warned:
            return
        seconds = time.monotonic() - visit.since
        if seconds < self._late:
            return
        self._warned = visit
        mine = self._note()
        notes: dict[int, Note | None] = {}
        for rank in self._ranks:
            notes |= self._read([rank], self._thread_store)
            note = notes[rank]
            if rank < self._rank and note is not None and note.is_in(mine):
                return  # one voice is enough: that rank says it
        missing = _missing(mine, notes)
        if missing and visit.inside:
            logger.warning("%s has waited %.0f s. %s", mine.call, seconds, " ".join(missing))


def own_connection(store: Any) -> Any:
    """Return a connection to `store` for a thread, which the main one does not block; else `store` itself."""
    try:
        return store.clone()
    except (AttributeError, RuntimeError):  # an older torch, or a store that cannot be cloned
        return store


def absence(rank: int, mine: Note, notes: Mapping[int, Note | None] | None, seconds: float) -> str:
    """Return the message for a rank that has waited in vain.

    Args:
        rank: who has waited.
        mine: where it is.
        notes: of all ranks of the group, None for a rank that has left none; None when they cannot be read.
        seconds: that the rank has waited.
    """
    if notes is None:
        lines = ["Where the others are is not known: the store of the process group has gone with them."]
    else:
        others = {other: note for other, note in notes.items() if other != rank}
        lines = _missing(mine, others)
        here = [other for other, note in others.items() if note is not None and note.is_in(mine)]
        if not lines:
            lines = ["All ranks are in it, so that the connection between them has failed."]
        elif here:
            lines.append(f"{format_ranks(here)} {'is' if len(here) == 1 else 'are'} here too.")
    return "\n".join(
        [
            f"{mine.call} has failed on rank {rank} after {seconds:.1f} s.",
            *(f"  {line}" for line in lines),
            f"  This rank, {rank}, is in {mine.call}.",
            "Every rank has to make the same calls in the same order, each within the others' time-out: look "
            "for a condition that holds on some ranks only, and for work that takes one rank longer "
            "(`InitProcessGroupKwargs(timeout=...)` sets the time-out).",
            "The process group cannot be used any more: this run cannot continue.",
        ]
    )


def _missing(mine: Note, notes: Mapping[int, Note | None]) -> list[str]:
    """Return a sentence for each place where ranks are that are not in the call of `mine`."""
    ranks_at: dict[Note | None, list[int]] = {}
    for rank, note in notes.items():
        if note is None or not note.is_in(mine):
            ranks_at.setdefault(note, []).append(rank)
    return [
        f"{format_ranks(ranks)} {_where(note, several=len(ranks) > 1)}." for note, ranks in ranks_at.items()
    ]


def _where(note: Note | None, *, several: bool) -> str:
    it, its, is_, has, was = (
        ("they", "their", "are", "have", "were") if several else ("it", "its", "is", "has", "was")
    )
    if note is not None and note.inside:
        return f"{is_} not here: {it} {is_} in {note.call}"
    if note is None or not note.group:
        text = f"{is_} not here: {it} {has} made no call yet"
    else:
        text = f"{is_} not here: {its} last call was {note.call}"
    if note is None:
        return text
    if note.ended:
        return f"{text}; {it} {has} left the run {note.ended}"
    return f"{text}; {it} {was} last seen at {note.position}" if note.position else text


def format_ranks(ranks: Iterable[int]) -> str:
    """Return `rank 3` or `ranks 0, 4-7`.

    Example:
        >>> format_ranks([3]), format_ranks([0, 4, 5, 6])
        ('rank 3', 'ranks 0, 4-6')
    """
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    text = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"rank {text}" if len(runs) == 1 and len(runs[0]) == 1 else f"ranks {text}"
