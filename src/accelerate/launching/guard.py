"""What keeps a launch from leaving ranks behind: answers to signals, and the watchdog. Used by agent.py."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from accelerate.launching import watchdog

__all__ = ["Signals", "Watchdog"]

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT")


class Signals:
    """Turns the first signal that asks this process to end into an exception, and the next into force.

    A signal that whoever started us has set to be ignored (`nohup`, a job in the background) stays
    ignored. Off the main thread, where Python allows no handlers, this does nothing.

    Attributes:
        received: the signal that ended the launch, or None.
    """

    def __init__(
        self, make_error: Callable[[signal.Signals], BaseException], force: Callable[[], None]
    ) -> None:
        """Prepare the answers.

        Args:
            make_error: makes the exception that is raised in the main thread.
            force: called when a further signal comes; it must not raise.
        """
        self.received: signal.Signals | None = None
        self._make_error = make_error
        self._force = force
        self._deferring = False
        self._raised = False
        self._former: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Signals":
        self.install()
        return self

    def __exit__(self, *failure: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        self._former.clear()

    def install(self) -> None:
        """Take the signals over; called again after something else may have taken them."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.Signals[name] for name in _NAMES if hasattr(signal, name)):
            current = signal.getsignal(number)
            if current is not signal.SIG_IGN and current != self._answer:
                self._former.setdefault(number, current)
                signal.signal(number, self._answer)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Let a signal wait until the block has ended, for work that must not stop half-way."""
        self._deferring = True
        try:
            yield
        finally:
            self._deferring = False
        if self.received is not None:
            self._raise(self.received)

    def _answer(self, number: int, frame: FrameType | None) -> None:
        if self._raised:
            self._force()
            return
        self.received = signal.Signals(number)
        if not self._deferring:
            self._raise(self.received)

    def _raise(self, number: signal.Signals) -> None:
        self._raised = True
        raise self._make_error(number)


class Watchdog:
    """A process that ends the ranks when this one is killed, by SIGKILL for instance."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", watchdog.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )
        self._groups: set[int] = set()
        self._done = threading.Event()

    def __enter__(self) -> "Watchdog":
        return self

    def __exit__(self, *failure: object) -> None:
        self._done.set()
        self._tell(["forget"])
        self._process.communicate()

    def guard(self, groups: Iterable[int]) -> None:
        """Name the process groups that exist from now on, instead of any former ones."""
        self._groups = set(groups)
        self._tell(["forget", *(str(group) for group in sorted(self._groups))])

    def end(self, grace: float) -> None:
        """End what is left in the guarded groups: ask, wait up to `grace` seconds, then kill."""
        watchdog.end(self._groups, grace)

    def insist(self, number: signal.Signals, every: float) -> None:
        """Send a signal to the guarded groups every so many seconds, until the launch has ended."""

        def repeat() -> None:
            while not self._done.wait(every):
                for group in self._groups:
                    watchdog.send(group, number)

        threading.Thread(target=repeat, name="insist", daemon=True).start()

    def resume(self) -> None:
        """Wake what is stopped in the guarded groups (SIGSTOP, Ctrl-Z)."""
        if hasattr(signal, "SIGCONT"):
            for group in self._groups:
                watchdog.send(group, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the guarded groups at once."""
        for group in self._groups:
            watchdog.send(group, signal.SIGKILL)

    def _tell(self, lines: list[str]) -> None:
        stdin = self._process.stdin
        if stdin is None or self._process.poll() is not None:
            return  # Somebody ended the watchdog: the launch goes on without it.
        stdin.write("".join(f"{line}\n" for line in lines))
        stdin.flush()
