"""The standard streams of a process that exists to run a command. Called by commands/launch.py."""

import os
import sys

__all__ = ["open_standard_streams"]


def open_standard_streams() -> None:
    """Open the standard streams that this process was started without, on the null device.

    The next file or socket would get the number of such a stream otherwise, and what is printed would go
    into it, here and in every child. Only a process that exists to run a command calls this.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - as long as the process
