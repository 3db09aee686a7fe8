"""How log lines of all ranks come out on rank 0 in the order of ranks, although no rank waits for another.

Begun with the run, closed with it; the loggers post to it.

[Note: mail]
A rank that logs in order *posts* its record into the store of the process group and goes on. On rank 0 a
thread *collects* what was posted. An *occasion* is one line of the user's code, passed for the n-th time; it
says which records of the ranks belong together. A record is *ready* when all lower ranks have come to its
occasion, or when they have had their chance for HOLD seconds: a rank that never comes costs the others a
delay, and never a wait. When rank 0 leaves the run it gives those who have not come to its last occasions the
rest of their chance, unless they have left too, and lets out everything that it has. Who posts after that is
told to log for itself, so that no line is lost; each record is *claimed* by whoever logs it, so that none
comes twice.
"""

import atexit
import json
import logging
import sys
import threading
import time
import weakref
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from accelerate.runtime.header import SILENT_BACKENDS
from accelerate.runtime.whereabouts import Site, default_store, own_connection

__all__ = ["Mailbox", "Occasion", "Order", "begin", "close", "mailbox"]

_PREFIX = "accelerate/mail"

HOLD = 5.0  # seconds that lower ranks have to come to an occasion
PERIOD = 0.1  # seconds between two looks into the store
LAST_PERIOD = 0.02  # the same when rank 0 is about to leave
LAST_LOOK = 10.0  # seconds for the thread to come out of a look

Occasion = tuple[str, int, int]  # file, line, and how many times this rank has passed there
Record = dict[str, Any]  # the attributes of a log record, as JSON can hold them


@dataclass(kw_only=True)
class _Arrivals:
    """The ranks that came to one occasion, and the records among them that are not logged yet."""

    since: float
    ranks: set[int] = field(default_factory=set)
    waiting: dict[int, Record] = field(default_factory=dict)
    next_rank: int = 0  # all ranks below it have come


class Order:
    """Which records are ready; see [Note: mail]. It knows no store and no clock.

    Args:
        size: number of ranks.
        hold: seconds that lower ranks have to come.
    """

    def __init__(self, size: int, hold: float = HOLD) -> None:
        self._size = size
        self._hold = hold
        self._occasions: dict[Occasion, _Arrivals] = {}

    @property
    def is_complete(self) -> bool:
        """Whether nobody is expected: all ranks have come to every occasion, or had their chance."""
        return not self._occasions

    def put(self, occasion: Occasion, rank: int, record: Record | None, now: float) -> None:
        """Note that a rank came to an occasion, with a record or, where its level hides it, without."""
        arrivals = self._occasions.setdefault(occasion, _Arrivals(since=now))
        arrivals.ranks.add(rank)
        if record is not None:
            arrivals.waiting[rank] = record
        while arrivals.next_rank in arrivals.ranks:
            arrivals.next_rank += 1

    def ready(self, now: float) -> list[Record]:
        """Return the records whose turn has come, and forget them."""
        ready: list[Record] = []
        for occasion, arrivals in list(self._occasions.items()):
            is_late = now - arrivals.since >= self._hold
            for rank in sorted(arrivals.waiting):
                if is_late or rank < arrivals.next_rank:
                    ready.append(arrivals.waiting.pop(rank))
            if is_late or arrivals.next_rank == self._size:
                del self._occasions[occasion]
        return ready


class Mailbox:
    """The way of records from all ranks to the handlers of rank 0; see [Note: mail].

    Args:
        store: of the process group.
        rank: this process in it.
        size: number of ranks.
        hold: seconds that lower ranks have to come to an occasion.
    """

    def __init__(self, store: Any, rank: int, size: int, hold: float = HOLD) -> None:
        self._given = store
        self._rank = rank
        self._size = size
        self._passed: Counter[Site] = Counter()
        self._order = Order(size, hold)
        self._lock = threading.Lock()  # of the order, which two threads change
        self._next_letter = 1
        self._stop = threading.Event()
        self._group = weakref.ref(dist.group.WORLD) if dist.is_initialized() else None
        self._thread = threading.Thread(target=self._watch, name="accelerate-mailbox", daemon=True)
        if rank == 0:
            self._thread.start()

    @cached_property
    def _store(self) -> Any:
        """Its own connection where torch can make one, made when first needed; why: see `NoticeBoard`."""
        return PrefixStore(_PREFIX, own_connection(self._given))

    def come(self, site: Site, record: Record | None) -> None:
        """Note that this rank came to a line that logs in order.

        Args:
            site: the line of the user's code.
            record: what rank 0 is to log for this rank; None on rank 0, which has logged it, and where there
                is nothing. It is logged here if rank 0 has left the run.
        """
        self._passed[site] += 1
        occasion = (*site, self._passed[site])
        if self._rank == 0:
            with self._lock:
                self._order.put(occasion, 0, None, time.monotonic())
        elif not self._post(occasion, record) and record is not None:
            _log(record)

    def _post(self, occasion: Occasion, record: Record | None) -> bool:
        """Return whether rank 0 will log the record, or has."""
        try:
            if self._is_closed():
                return False
            number = self._store.add("letters", 1)
            self._store.set(str(number), json.dumps([occasion, self._rank, record]))
            return not (self._is_closed() and self._claim(number))
        except RuntimeError:  # the store has gone with the process that held it
            return False

    def _is_closed(self) -> bool:
        """Return whether rank 0 has left the run, so that nobody may collect any more."""
        return bool(self._store.check(["closed"]))

    def _claim(self, number: int) -> bool:
        return bool(self._store.add(f"claimed {number}", 1) == 1)

    def _watch(self) -> None:
        try:
            while not self._stop.wait(PERIOD) and self._group_lives():
                self._collect()
                self._log_ready(time.monotonic())
        except RuntimeError:  # the store has gone, and with it whatever was still to be sent
            self._log_ready(float("inf"))

    def _group_lives(self) -> bool:
        return self._group is not None and dist.is_initialized() and self._group() is dist.group.WORLD

    def _collect(self) -> None:
        num_letters = self._store.add("letters", 0)
        while self._next_letter <= num_letters and self._store.check([str(self._next_letter)]):
            number, self._next_letter = self._next_letter, self._next_letter + 1
            (file, line, passed), rank, record = json.loads(self._store.get(str(number)))
            self._store.delete_key(str(number))
            if self._claim(number):
                with self._lock:
                    self._order.put((file, line, passed), rank, record, time.monotonic())

    def _log_ready(self, now: float) -> None:
        with self._lock:
            ready = self._order.ready(now)
        # Without the lock: a handler may log by itself.
        for record in ready:
            _log(record)

    def close(self, *, patient: bool = True) -> None:
        """Leave the run; on rank 0 let out what has come, so that from now on ranks log for themselves.

        Args:
            patient: on rank 0 first let others come to the last occasions.
        """
        if self._stop.is_set():
            return
        self._stop.set()
        try:
            if self._rank != 0:
                PrefixStore(_PREFIX, self._given).add("left", 1)
                return
            self._thread.join(LAST_LOOK)
            while patient and self._expects_somebody():
                time.sleep(LAST_PERIOD)
            self._store.set("closed", "yes")
            self._collect()
        except RuntimeError:  # the store has gone
            return
        finally:
            self._log_ready(float("inf"))

    def _expects_somebody(self) -> bool:
        have_all_left = self._store.add("left", 0) == self._size - 1
        self._collect()
        self._log_ready(time.monotonic())
        return not (have_all_left or self._order.is_complete)


def _log(record: Record) -> None:
    logging.getLogger(record["name"]).handle(logging.makeLogRecord(record))


_mailbox: Mailbox | None = None


def mailbox() -> Mailbox | None:
    """Return that of the run in hand; None where there is none, so that every rank logs for itself."""
    return _mailbox


def begin(rank: int, size: int) -> None:
    """Begin a run's mail; every rank of the default process group calls it when the run starts."""
    global _mailbox
    close()
    if dist.get_backend() not in SILENT_BACKENDS:
        _mailbox = Mailbox(default_store(), rank, size)
        atexit.unregister(close)
        atexit.register(close)


def close(*, patient: bool = True) -> None:
    """End the mail of the run in hand, if there is one. Called before the process group is destroyed.

    Args:
        patient: on rank 0 first let others come to the last occasions.
    """
    global _mailbox
    if _mailbox is not None:
        _mailbox.close(patient=patient and getattr(sys, "last_type", None) is None)
        _mailbox = None
