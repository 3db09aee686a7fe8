"""What ranks tell each other ahead of the payload of a collective. Called by `RankGroup._collective` only.

[Note: headers]
Before ranks send anything they exchange a *header* of fixed size: a hash of what each is about to do
(operation, arguments, structure, shapes, dtypes, number of the call) and a few integers for free. When all
hashes are alike, the payload can follow. When they are not, all ranks see it, exchange *reports* and raise.
Whether a call has a header is decided by its number, which is alike on all ranks, and never by the payload.

Headers have a gloo group of their own, so that they work beside any backend and never meet the messages of
somebody else, such as DistributedDataParallel. It is made when the run starts, where this package made the
default group and all ranks are together; for other groups at their first call. It meets over the store of
the default group and has the time-out of the group that it goes along with.
"""

import atexit
import logging
import secrets
import sys
import time
import weakref
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore

from accelerate.errors import AbsentRankError, DistributedOperationException
from accelerate.runtime.call import Call, digest_of
from accelerate.runtime.disagreement import Report, disagreement, leaves_in_words
from accelerate.runtime.whereabouts import NoticeBoard, Site, call_site, default_store, format_site

__all__ = ["ROOM", "SILENT_BACKENDS", "Channel", "GlooChannel", "begin", "channel_of", "close", "num_calls"]

logger = logging.getLogger(__name__)

ROOM = 127  # integers that travel in a header
FIRST = 100  # calls that have a header on accelerators; after them every hundredth has one
MEETING = timedelta(seconds=60)  # for gloo to connect on accelerators, which need it for nothing else
HISTORY = 16  # calls that a report goes back
MOST_REPORTS = 8  # different reports that a message shows

# They have no store, or ranks that are not processes.
SILENT_BACKENDS = frozenset({"fake", "mpi", "threaded", "xla"})


class Channel:
    """Counts the calls of one group and notes where this rank is. The base tells other ranks nothing."""

    def __init__(self) -> None:
        self.number = 0  # of the last call

    def connect(self) -> None:
        """Connect to the other ranks before the first call. Called by every rank when all are together."""

    def open(self, call: Call) -> Tensor | None:
        """Begin a call.

        Returns:
            The integers of all ranks, (size, ROOM) int64, in memory that the next call uses again; None where
            this call had no header.

        Raises:
            DistributedOperationException: the ranks are about to do different things.
            Exception: `call.problem`, when every rank has one or there was no header.
        """
        self.number += 1
        if call.problem is not None:
            raise call.problem
        return None

    def leave(self) -> None:
        """End the call that this rank is in."""

    @contextmanager
    def waiting(self, timeout: timedelta) -> Iterator[None]:
        """Wait up to `timeout` for the others where calls in the block begin, if that is longer."""
        yield

    @property
    def gloo(self) -> Any:
        """A gloo group of these ranks that nobody else sends over; None where there is none."""
        return None

    def absence(self, error: RuntimeError) -> Exception | None:
        """Return what to raise when a call has failed with `error`; None when that was not the connection."""
        return None


class GlooChannel(Channel):
    """Headers over a gloo group of their own; see [Note: headers].

    Args:
        group: the process group whose calls these are.
        rank: this process in the group.
        size: number of ranks in the group.
        always: every call has a header.
        debug: this rank wants every call to have one; one such rank is enough.
        timeout: how long a rank waits for the others.
        board: the notes of all ranks.
    """

    def __init__(
        self,
        group: Any,
        *,
        rank: int,
        size: int,
        always: bool,
        debug: bool,
        timeout: timedelta,
        board: NoticeBoard,
    ) -> None:
        super().__init__()
        self.rank = rank
        self.size = size
        self._group = weakref.ref(group)
        self._name = group.group_name
        self._ranks = tuple(dist.get_process_group_ranks(group))
        self._always = always
        self._debug = debug
        self._timeout = timeout
        self._board = board
        self._history: deque[tuple[int, str, Site]] = deque(maxlen=HISTORY)
        self._entered = 0.0  # time.monotonic()
        self._gloo: Any = None
        self._mute = False  # gloo cannot connect here
        # One header a rank, a hash and ROOM integers each, as memory that Python and gloo share.
        length = 1 + ROOM
        mine, everybody = bytearray(8 * length), bytearray(8 * length * size)
        self._mine = memoryview(mine).cast("q")
        self._hashes = memoryview(everybody).cast("q")[::length]
        self._sent = torch.frombuffer(mine, dtype=torch.int64)
        received = torch.frombuffer(everybody, dtype=torch.int64).view(size, length)
        self._received = list(received.unbind())
        self._numbers = received[:, 1:]

    def connect(self) -> None:
        """Connect to the other ranks; agree to have no headers where gloo cannot and is not needed."""
        needed = self._always
        with self._meeting_place() as store:
            try:
                self._join(store, self._timeout if needed else min(MEETING, self._timeout))
                failure = ""
            except RuntimeError as error:
                if needed:
                    raise
                failure = f"rank {self.rank}: {error}"
            if not needed:
                self._agree(store, failure)

    def open(self, call: Call) -> Tensor | None:
        """Begin a call: exchange headers if its turn has come."""
        self.number += 1
        site = call_site()
        self._entered = time.monotonic()
        self._board.enter(self._name, self._ranks, call.operation, self.number, site)
        self._history.append((self.number, call.operation, site))
        if self._gloo is None and not self._mute:
            self._connect_late()
        due = self._always or self.number <= FIRST or self.number % FIRST == 0
        told = due and not self._mute and not call.silent
        if told:
            self._compare(call, site)
        if call.problem is not None:
            raise call.problem
        return self._numbers if told else None

    def leave(self) -> None:
        """End the call that this rank is in."""
        self._board.leave()

    @contextmanager
    def waiting(self, timeout: timedelta) -> Iterator[None]:
        """Wait up to `timeout` for the others where calls in the block begin, if that is longer.

        It is the header that waits: when it has come through, all ranks are there.
        """
        if self._gloo is None or timeout <= self._timeout:
            yield
            return
        self._gloo._set_default_timeout(timeout)
        try:
            yield
        finally:
            self._gloo._set_default_timeout(self._timeout)

    @property
    def gloo(self) -> Any:
        """The group that headers go over, once connected; None where gloo does not connect the ranks."""
        return None if self._mute else self._gloo

    def absence(self, error: RuntimeError) -> Exception | None:
        """Return an error that says where every rank is, if `error` comes from the connection."""
        if not (isinstance(error, dist.DistError) or "gloo" in str(error)):
            return None
        return AbsentRankError(self._board.explain(time.monotonic() - self._entered))

    def _connect_late(self) -> None:
        if dist.get_backend(self._group()) == "gloo":
            # A store does not notice when a rank has died, but the connections of the group do.
            dist.barrier(self._group())
        with self._meeting_place() as store:
            self._join(store, self._timeout)

    @contextmanager
    def _meeting_place(self) -> Iterator[Any]:
        """Give a store that only those ranks find that meet now: the default one outlives groups."""
        store = PrefixStore(f"accelerate/header/{self._name}", default_store())
        if self.rank == 0:
            store.set("word", secrets.token_hex(8))
        store.wait(["word"], self._timeout)
        try:
            yield PrefixStore(store.get("word").decode(), store)
        finally:
            if self.rank == 0:
                store.delete_key("word")

    def _join(self, store: Any, timeout: timedelta) -> None:
        self._gloo = dist.ProcessGroupGloo(store, self.rank, self.size, timeout)
        self._exchange(int(self._debug))
        self._gloo._set_default_timeout(self._timeout)
        self._always |= any(self._hashes)

    def _agree(self, store: Any, failure: str) -> None:
        store.set(f"joined/{self.rank}", failure or "yes")
        for rank in range(self.size):
            store.wait([f"joined/{rank}"], self._timeout)
            answer = store.get(f"joined/{rank}").decode()
            if answer == "yes":
                continue
            self._mute, self._gloo = True, None
            if self.rank == 0:
                logger.warning(
                    "The ranks cannot compare what they are about to do in collectives, since gloo does not "
                    "connect them: GLOO_SOCKET_IFNAME names the network interface it should use. (%s)",
                    answer,
                )
            return

    def _exchange(self, value: int, numbers: Sequence[int] = ()) -> None:
        self._mine[0] = value
        if numbers:
            self._mine[1 : 1 + len(numbers)] = memoryview(array("q", numbers))
        self._gloo.allgather([self._received], [self._sent]).wait()

    def _compare(self, call: Call, site: Site) -> None:
        digest = call.digest(self.number)
        self._exchange(digest, call.numbers if len(call.numbers) <= ROOM else ())
        if any(other != digest for other in self._hashes):
            raise DistributedOperationException(self._disagreement(call, site)) from call.problem

    def _disagreement(self, call: Call, site: Site) -> str:
        mine = self._report(call, site).encode()
        self._exchange(digest_of(mine), [len(mine)])
        ranks_of: dict[int, list[int]] = {}
        for rank, key in enumerate(self._hashes):
            ranks_of.setdefault(key, []).append(rank)
        lengths = self._numbers[:, 0].tolist()
        shown = list(ranks_of.values())[:MOST_REPORTS]
        reports = [Report.decode(self._share(mine, ranks[0], lengths[ranks[0]])) for ranks in shown]
        return disagreement(list(zip(shown, reports, strict=True)))

    def _report(self, call: Call, site: Site) -> Report:
        return Report(
            label=call.label,
            number=self.number,
            site=format_site(site),
            problem="" if call.problem is None else str(call.problem),
            leaves=leaves_in_words(call.contents.data),
            history={number: f"{name} at {format_site(site)}" for number, name, site in self._history},
        )

    def _share(self, mine: bytes, source: int, length: int) -> bytes:
        content = torch.frombuffer(bytearray(mine if self.rank == source else length), dtype=torch.uint8)
        options = dist.BroadcastOptions()
        options.rootRank = source
        self._gloo.broadcast([content], options).wait()
        return bytes(content.tolist())


_channels: "weakref.WeakKeyDictionary[Any, Channel]" = weakref.WeakKeyDictionary()
_boards: "weakref.WeakKeyDictionary[Any, NoticeBoard]" = weakref.WeakKeyDictionary()


def channel_of(group: Any, *, rank: int, size: int, device: torch.device, debug: bool) -> Channel:
    """Return the channel of a process group, made at its first call.

    Args:
        group: the process group, the default one when None.
        rank: this process in the group.
        size: number of ranks in the group.
        device: of this rank.
        debug: every call is to have a header.
    """
    group = group or dist.group.WORLD
    channel = _channels.get(group)
    if channel is None:
        channel = _channels[group] = _make(group, rank=rank, size=size, device=device, debug=debug)
    return channel


def _make(group: Any, *, rank: int, size: int, device: torch.device, debug: bool) -> Channel:
    backend = dist.get_backend(group)
    board = _start_board(device)
    if board is None or backend in SILENT_BACKENDS or not dist.is_gloo_available():
        return Channel()
    return GlooChannel(
        group,
        rank=rank,
        size=size,
        always=_is_cheap(backend, device),
        debug=debug,
        timeout=_timeout(group, device),
        board=board,
    )


def _is_cheap(backend: str, device: torch.device) -> bool:
    """Return whether a header costs little beside the payload, which goes over gloo too."""
    return backend == "gloo" or device.type == "cpu"


def begin(*, rank: int, size: int, device: torch.device, debug: bool, together: bool) -> None:
    """Begin to note where this rank is. Called when the run starts, by every rank of the default group.

    Args:
        rank: this process.
        size: number of ranks.
        device: of this rank.
        debug: every call is to have a header.
        together: all ranks are here now, so that they can be connected.
    """
    _start_board(device)
    if together:
        channel_of(None, rank=rank, size=size, device=device, debug=debug).connect()


def num_calls() -> int:
    """Return how many collectives of this package this rank has begun in the groups there are."""
    return sum(channel.number for channel in list(_channels.values()))


def _start_board(device: torch.device) -> NoticeBoard | None:
    """Return the notes of all ranks, begun if nobody has; None where they have no store."""
    world = dist.group.WORLD
    if world not in _boards and dist.get_backend(world) not in SILENT_BACKENDS:
        for former in list(_boards.values()):
            former.close()
        board = _boards[world] = NoticeBoard(default_store(), dist.get_rank(), _timeout(world, device))
        weakref.finalize(world, board.close)
        atexit.register(_close_at_exit)
    return _boards.get(world)


def _timeout(group: Any, device: torch.device) -> timedelta:
    try:
        timeout: timedelta = group._get_backend(device).options._timeout
    except (RuntimeError, AttributeError):  # no backend for this device, or one that does not say
        timeout = default_store().timeout
    return timeout


def close(group: Any = None, *, ended: str = "at its end") -> None:
    """Forget the channel of `group`, or all of them when None. Called before a process group is destroyed.

    Args:
        group: the process group.
        ended: how this rank leaves the run.
    """
    if group is not None:
        _channels.pop(group, None)
        return
    # First the last note: whoever waits for this rank looks for it when the connection ends.
    for board in list(_boards.values()):
        board.close(ended)
    _boards.clear()
    _channels.clear()


def _close_at_exit() -> None:
    kind = getattr(sys, "last_type", None)
    if kind is None:
        close()
        return
    # Peers may still wait in the groups; what was raised is all that they need to know.
    for board in list(_boards.values()):
        board.close(f"with {kind.__name__}")
