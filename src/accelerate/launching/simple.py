"""One process, started without torch in this one; the only launcher that may exec. Chosen by select.py."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import ClassVar, NoReturn

from accelerate.launching.base import Launcher, exit_status
from accelerate.options.launch import LaunchPlan

__all__ = ["SimpleLauncher"]

_INTERRUPT_GRACE = 10.0  # seconds that a script has to end after Ctrl-C before it is asked again


class SimpleLauncher(Launcher):
    """Runs the script in one process of its own."""

    name: ClassVar[str] = "simple"

    def accepts(self, plan: LaunchPlan) -> bool:
        """Return whether the plan is about one process that needs no peers."""
        return not plan.distributed

    def environ(self, plan: LaunchPlan) -> dict[str, str]:
        """Return the common variables, and those that tell a script to stay on the CPU."""
        variables = super().environ(plan) | {"ACCELERATE_USE_CPU": str(plan.cpu)}
        if plan.cpu:
            variables["KMP_AFFINITY"] = "granularity=fine,compact,1,0"
            variables["KMP_BLOCKTIME"] = "1"
        return variables

    def run(self, plan: LaunchPlan) -> int:
        """Run the script as a child and return its exit status; signals to this process reach it too."""
        child = subprocess.Popen(self.command(plan), env=self.full_environ(plan))
        with _passed_on(child):
            try:
                return exit_status(child.wait())
            except KeyboardInterrupt:
                # The terminal sent it to the child as well: let that one finish its own way first.
                _wait_after_interrupt(child)
                raise

    def replace_this_process(self, plan: LaunchPlan) -> NoReturn:
        """Become the script: same process number, terminal, signals and exit status.

        Only the console entry point may call this.
        """
        command = self.command(plan)
        sys.stdout.flush()
        sys.stderr.flush()
        os.execvpe(command[0], command, self.full_environ(plan))


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
