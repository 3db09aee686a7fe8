"""One child process that stands for the launch: run, passed signals, waited for. Called by the launchers."""

import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from accelerate.launching.base import exit_status

__all__ = ["run_child"]

_INTERRUPT_GRACE = 10.0  # seconds that a child has to end after Ctrl-C before it is asked again


def run_child(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a command as a child and return its exit status; signals to this process reach it too.

    Args:
        command: argument list.
        environ: its whole environment.
    """
    child = subprocess.Popen(command, env=environ)
    with _passed_on(child):
        try:
            return exit_status(child.wait())
        except KeyboardInterrupt:
            # The terminal sent it to the child as well: let that one finish its own way first.
            _wait_after_interrupt(child)
            raise


@contextmanager
def _passed_on(child: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Pass requests to end, which reach this process only, on to the child."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return

    def pass_on(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    numbers = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    former = {number: signal.signal(number, pass_on) for number in numbers}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _wait_after_interrupt(child: "subprocess.Popen[bytes]") -> None:
    for ask in (child.send_signal, lambda number: child.kill()):
        try:
            child.wait(_INTERRUPT_GRACE)
            return
        except subprocess.TimeoutExpired:
            ask(signal.SIGINT)
    child.wait()
