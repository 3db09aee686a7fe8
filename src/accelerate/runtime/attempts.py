"""A call that every rank makes and that may run out of memory on some of them. Called by `batch_size`.

[Note: attempts]
A rank without memory leaves its peers inside a collective that nothing but the end of the process group
ends. So it first says in the store that it has none, then leaves the group. That wakes the peers with an
error, or on an accelerator their thread aborts what they wait for; they find the reason in the store and
leave the group, too. When all have said how their attempt ended they make the group anew.

A rank that has begun no collective in its attempt needs nobody: if it ends well it does not wait, so that
functions which ranks call on their own work as they do without a group. One that ran out of memory has to
learn whether others wait for it: a thread of each rank says so for one that is inside of a collective.
"""

import contextlib
import gc
import logging
import threading
import time
from enum import Enum
from typing import Any

from torch.distributed.distributed_c10d import PrefixStore

from accelerate.errors import AbsentRankError
from accelerate.runtime import header, process_group
from accelerate.runtime.current import current, rejoin
from accelerate.runtime.whereabouts import default_store, format_ranks, own_connection

__all__ = ["Attempt", "Ending", "Series"]

logger = logging.getLogger(__name__)

PERIOD = 0.1  # seconds between two looks of the thread
POLL = 0.02  # seconds between two looks of a rank that waits
PATIENCE = 20.0  # seconds until a rank says that it waits
_TOLD = (
    "find_executable_batch_size has waited %.0f s for %s to end `%s`, since rank %d has run out of memory or "
    "has to learn whether others have. Every rank has to call it; for a function that ranks call on their "
    "own say `agree=False`."
)


class Ending(Enum):
    """What a rank says of its attempt; the names stand in the store."""

    WAITING = "is in a collective, or was"
    GOOD_ALONE = "has ended well, without collectives"
    GOOD = "has ended well, or would have with its peers"
    NO_MEMORY = "has run out of memory"
    FAILED = "has failed otherwise"


class Series:
    """The attempts at one call of a function.

    Args:
        name: of the function, alike on all ranks.
        alone: no peer takes part, or none does any more.
    """

    def __init__(self, name: str, *, alone: bool = False) -> None:
        self.name = name
        self.is_alone = alone

    def begin(self) -> "Attempt":
        """Begin the next attempt."""
        return Attempt(self)


class Attempt:
    """One attempt at the call; see [Note: attempts].

    Args:
        series: what it is part of.
    """

    def __init__(self, series: Series) -> None:
        self._series = series
        self._collectives_before = _num_collectives()
        self._stopped = threading.Event()
        self._watch: threading.Thread | None = None
        self._has_left = False
        if not series.is_alone and _is_distributed():
            self._store: Any = _meeting_place(series.name)
            self._watch = threading.Thread(target=self._look_out, name="accelerate-attempt", daemon=True)
            self._watch.start()

    def succeeded(self) -> bool:
        """Note that this rank has come to the end; return whether the attempt was good on every rank."""
        if not self._concerns_others():
            return True
        if not self._has_communicated():
            self._end(Ending.GOOD_ALONE)
            return True
        self._end(Ending.GOOD)
        self._wait_for_all()
        return not self._said(Ending.NO_MEMORY)

    def failed(self, *, out_of_memory: bool) -> bool:
        """Note that this rank has failed; return whether that is for want of memory, its own or a peer's."""
        if not self._concerns_others():
            return out_of_memory
        if out_of_memory:
            self._end(Ending.NO_MEMORY)
            return True
        is_consequence = False
        with contextlib.suppress(RuntimeError):  # the store has gone with its rank: nobody can ask any more
            is_consequence = self._said(Ending.NO_MEMORY)
            self._end(Ending.GOOD if is_consequence else Ending.FAILED)
        return is_consequence

    def give_up(self) -> bool:
        """Leave the group if others are concerned, and make it anew with them.

        Nothing of the attempt may be referred to any more.

        Returns:
            Whether there can be another attempt: not if a peer has failed otherwise, or has gone on already.
        """
        if not self._concerns_others():
            return True
        self._wait_for_all(wake=True)
        has_gone_on = self._said(Ending.GOOD_ALONE)
        if self._said(Ending.FAILED):
            return False
        if not self._has_left and not self._has_communicated():
            self._series.is_alone |= has_gone_on
            return True
        self._leave()
        if not has_gone_on:
            rejoin()
        return not has_gone_on

    def _concerns_others(self) -> bool:
        return self._watch is not None and not self._series.is_alone

    def _has_communicated(self) -> bool:
        return _num_collectives() != self._collectives_before

    def _said(self, ending: Ending) -> bool:
        """Return whether any rank has said so."""
        return bool(self._store.add(ending.name, 0))

    def _end(self, ending: Ending) -> None:
        self._stopped.set()
        if self._watch is not None:
            self._watch.join()
        self._store.add(ending.name, 1)
        self._store.set(f"ended/{current.process_index}", "")
        self._store.add("ended", 1)

    def _wait_for_all(self, *, wake: bool = False) -> None:
        """Wait until all ranks have ended; `wake` those that a collective holds up."""
        begun, told = time.monotonic(), False
        while self._store.add("ended", 0) < current.num_processes:
            if wake and (self._has_communicated() or self._said(Ending.WAITING) or self._said(Ending.GOOD)):
                self._leave()
            seconds = time.monotonic() - begun
            if seconds > PATIENCE and not told:
                told = True
                logger.warning(_TOLD, seconds, self._missing(), self._series.name, current.process_index)
            if seconds > self._store.timeout.total_seconds():
                raise AbsentRankError(
                    f"find_executable_batch_size: {self._missing()} did not come to the end of "
                    f"`{self._series.name}` within {seconds:.0f} s, the time-out of the process group."
                )
            time.sleep(POLL)

    def _missing(self) -> str:
        ranks = range(current.num_processes)
        return format_ranks(rank for rank in ranks if not self._store.check([f"ended/{rank}"]))

    def _leave(self) -> None:
        if not self._has_left:
            self._has_left = True
            gc.collect()
            process_group.abandon()
            gc.collect()

    def _look_out(self) -> None:
        """Say when this rank has begun a collective, and end those that wait for a rank without memory."""
        store = None
        with contextlib.suppress(RuntimeError):  # the store has gone with its rank
            while not self._stopped.wait(PERIOD):
                if store is None and self._has_communicated():
                    store = own_connection(self._store)
                    store.add(Ending.WAITING.name, 1)
                if store is not None and store.add(Ending.NO_MEMORY.name, 0):
                    process_group.abort()
                    return


def _meeting_place(name: str) -> Any:
    """Return where the ranks find what is said of their next attempt: in the store of the group in hand."""
    store = PrefixStore(f"accelerate/attempts/{name}", default_store())
    # A group made anew has a store of its own, so that all ranks of a group count alike.
    return PrefixStore(str(store.add(f"number/{current.process_index}", 1)), store)


def _num_collectives() -> int:
    """Return a number that changes when this rank begins a collective, or when groups come and go."""
    return process_group.num_collectives() + header.num_calls()


def _is_distributed() -> bool:
    return current.started and current.num_processes > 1 and process_group.is_started()
