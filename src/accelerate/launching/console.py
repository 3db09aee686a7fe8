"""Carries the output of all ranks to the terminal while it keeps the end of it. Used by launching/agent.py.

One thread reads what the ranks write and passes it on; relay.py decides when. A rank that writes to a
terminal keeps a terminal (progress bars and colours depend on that), a rank that writes to a pipe has a
pipe. Where standard output and standard error of the launcher are the same thing, a rank gets one
stream for both, so that their order is kept.
"""

import contextlib
import os
import selectors
import struct
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import BinaryIO

from accelerate.launching.relay import Relay

__all__ = ["STDERR", "STDOUT", "Console", "same_target"]

STDOUT = 1
STDERR = 2
_CHUNK = 65536  # bytes


@dataclass(eq=False, kw_only=True)
class _Stream:
    """What one rank writes to one place.

    Attributes:
        rank: local rank.
        sink: file descriptor of this process to which it goes.
        reader: our end; `writer` is the end that the rank gets, by its path.
        log: file that gets all of it, or None.
        broken: nobody reads the sink any more, and `reader` is closed.
    """

    rank: int
    sink: int
    reader: int
    writer: int
    path: str
    relay: Relay
    log: BinaryIO | None = None
    broken: bool = False

    def close(self) -> None:
        if not self.broken:
            os.close(self.reader)
        os.close(self.writer)
        if self.log is not None:
            self.log.close()


@dataclass(eq=False)
class _State:
    streams: list[_Stream] = field(default_factory=list)
    exits: dict[int, float] = field(default_factory=dict)


class Console:
    """The terminal, shared by the launcher and its ranks. Times are those of `time.monotonic`."""

    def __init__(self) -> None:
        self._state = _State()
        self._at_line_start = {STDOUT: True, STDERR: True}
        self._last: dict[int, _Stream] = {}  # sink -> whose bytes came last
        self._selector = selectors.DefaultSelector()
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._wake_reader, self._wake_writer = os.pipe()
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._carry, name="rank output", daemon=True)
        self._thread.start()

    def add(
        self, rank: int, sink: int, *, prefix: str = "", log: str | None = None, redraws: bool = False
    ) -> str:
        """Open a stream for one rank and return the path that the rank's process writes to.

        Args:
            rank: local rank.
            sink: where it goes, `STDOUT` or `STDERR`; `STDERR` also where both are the same.
            prefix: put before each line.
            log: file that gets everything as well.
            redraws: keep lines that redraw themselves, behind the prefix, instead of making lines of them.
        """
        reader, writer, path = _terminal(sink, len(prefix)) if os.isatty(sink) else _pipe()
        os.set_blocking(reader, False)
        stream = _Stream(
            rank=rank,
            sink=sink,
            reader=reader,
            writer=writer,
            path=path,
            relay=Relay(prefix.encode(), redraws=redraws),
        )
        if log is not None:
            stream.log = open(log, "wb", buffering=0)  # noqa: SIM115 - closed with its stream
        with self._lock:
            self._state.streams.append(stream)
            self._selector.register(reader, selectors.EVENT_READ, stream)
        self._wake()
        return path

    def watch(self, rank: int, pid: int) -> None:
        """Note the moment at which a process ends, where the kernel can tell."""
        if not hasattr(os, "pidfd_open"):
            return
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(pid)
            with self._lock:
                self._selector.register(descriptor, selectors.EVENT_READ, rank)
            self._wake()

    def say(self, text: str) -> None:
        """Print a text of the launcher itself on standard error, on a line of its own."""
        with self._lock:
            both = same_target(STDOUT, STDERR)
            fresh = self._at_line_start[STDERR] and (self._at_line_start[STDOUT] or not both)
            self._write(STDERR, (b"" if fresh else b"\n") + text.encode(errors="replace"))

    def expect_end(self) -> None:
        """Take from now on every traceback of a rank for the last words of one that was told to end."""
        with self._lock:
            for stream in self._state.streams:
                stream.relay.ending = True

    def exited_at(self, rank: int) -> float | None:
        """Return when the process of a rank ended, or None when that was not seen."""
        return self._state.exits.get(rank)

    def trouble_at(self, rank: int) -> float | None:
        """Return when the latest traceback of a rank began, or None."""
        times = [stream.relay.trouble_at for stream in self._of(rank)]
        return max((moment for moment in times if moment is not None), default=None)

    def tails(self, rank: int) -> list[str]:
        """Return the end of what a rank wrote, standard error first."""
        streams = sorted(self._of(rank), key=lambda stream: -stream.sink)
        return [bytes(stream.relay.tail).decode(errors="replace") for stream in streams]

    def drain(self) -> None:
        """Take what the ranks, which have ended, left in their pipes."""
        with self._lock:
            for stream in self._state.streams:
                while not stream.broken and self._read(stream):
                    continue

    def finish(self, *, untold: frozenset[int]) -> None:
        """Show what is still held back and forget all streams, ready for the next attempt.

        Args:
            untold: ranks whose held traceback is told by a report, or not at all, and not here.
        """
        with self._lock:
            self.drain()
            for stream in self._state.streams:
                self._pass_on(stream, stream.relay.finish(show_held=stream.rank not in untold))
                if not stream.broken:
                    self._selector.unregister(stream.reader)
                stream.close()
            self._state = _State()

    def close(self) -> None:
        """Show what is left and stop the thread."""
        self.finish(untold=frozenset())
        self._stopping.set()
        self._wake()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            os.close(key.fd)
        self._selector.close()
        os.close(self._wake_writer)

    def _of(self, rank: int) -> list[_Stream]:
        return [stream for stream in self._state.streams if stream.rank == rank]

    def _wake(self) -> None:
        os.write(self._wake_writer, b".")

    def _carry(self) -> None:
        while not self._stopping.is_set():
            events = self._selector.select(self._patience())
            with self._lock:
                for key, _ in events:
                    self._handle(key)
                now = time.monotonic()
                for stream in self._state.streams:
                    self._pass_on(stream, stream.relay.tick(now))

    def _patience(self) -> float | None:
        with self._lock:
            waits = [stream.relay.patience for stream in self._state.streams]
        return min((wait for wait in waits if wait is not None), default=None)

    def _handle(self, key: selectors.SelectorKey) -> None:
        if isinstance(key.data, _Stream):
            # It may have been finished between the selection and the lock.
            if key.data in self._state.streams and not key.data.broken:
                self._read(key.data)
        elif isinstance(key.data, int):
            if key.fd in self._selector.get_map():
                self._state.exits[key.data] = time.monotonic()
                self._selector.unregister(key.fd)
                os.close(key.fd)
        else:
            os.read(self._wake_reader, _CHUNK)

    def _read(self, stream: _Stream) -> int:
        """Pass on one chunk and return its length; 0 when there is none now."""
        try:
            data = os.read(stream.reader, _CHUNK)
        except OSError:
            # Nothing to read now, or a terminal whose other side is closed.
            return 0
        self._keep(stream, data)
        self._pass_on(stream, stream.relay.feed(data, time.monotonic()))
        return len(data)

    def _keep(self, stream: _Stream, data: bytes) -> None:
        """Write `data` into the log; one that takes no more is given up: a full disk must not stop ranks."""
        if stream.log is None:
            return
        view = memoryview(data)
        try:
            while view:
                view = view[stream.log.write(view) :]
        except OSError as error:
            log, stream.log = stream.log, None
            with contextlib.suppress(OSError):
                log.close()
            self.say(f"accelerate launch: {log.name} cannot be written any further: {error.strerror}\n")

    def _pass_on(self, stream: _Stream, data: bytes) -> None:
        if data and stream.relay.redraws:
            if self._last.get(stream.sink, stream) is not stream and not self._at_line_start[stream.sink]:
                data = b"\n" + data.removeprefix(b"\r")  # another rank's unfinished line stays as it is
            self._last[stream.sink] = stream
        if stream.broken or self._write(stream.sink, data):
            return
        # Nobody reads our output any more (`| head`): the rank is told in the same way, by its next write.
        stream.broken = True
        self._selector.unregister(stream.reader)
        os.close(stream.reader)

    def _write(self, sink: int, data: bytes) -> bool:
        """Write all of `data` and return whether somebody reads it."""
        if not data:
            return True
        self._at_line_start[sink] = data.endswith((b"\n", b"\r"))
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(sink, view) :]
            except BlockingIOError:
                time.sleep(0.001)
            except OSError:
                return False
        return True


def same_target(first: int, second: int) -> bool:
    """Return whether two file descriptors write to the same file, pipe or terminal."""
    try:
        one, other = os.fstat(first), os.fstat(second)
    except OSError:
        return False
    return (one.st_dev, one.st_ino, one.st_rdev) == (other.st_dev, other.st_ino, other.st_rdev)


def _pipe() -> tuple[int, int, str]:
    reader, writer = os.pipe()
    return reader, writer, f"/dev/fd/{writer}"


def _terminal(sink: int, taken: int) -> tuple[int, int, str]:
    """Return a pseudo-terminal of the size of `sink`, less the columns that are taken, or else a pipe.

    It leaves bytes alone.
    """
    if sys.platform == "win32" or not _has_controlling_terminal():
        return _pipe()
    import fcntl
    import termios
    import tty

    try:
        reader, writer = os.openpty()
    except OSError:
        return _pipe()
    tty.setraw(writer)
    with contextlib.suppress(OSError):
        rows, columns, *rest = struct.unpack("4H", fcntl.ioctl(sink, termios.TIOCGWINSZ, bytes(8)))
        size = struct.pack("4H", rows, max(columns - taken, min(columns, 1)), *rest)
        fcntl.ioctl(writer, termios.TIOCSWINSZ, size)
    return reader, writer, os.ttyname(writer)


def _has_controlling_terminal() -> bool:
    # Without one, opening the pseudo-terminal by its path would make it that of the launcher.
    try:
        os.close(os.open("/dev/tty", os.O_RDWR))
    except OSError:
        return False
    return True
