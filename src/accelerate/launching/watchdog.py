"""Ends the ranks when the launcher is killed in a way that it cannot answer. Run as a file by guard.py.

It reads lines from a pipe whose other end only the launcher holds: a process group per line, "forget" when
those groups are done with. When the pipe ends, so has the launcher, and the groups that are left are
ended. Started with `python -I -S`: standard library only, nothing of this package.
"""

import os
import signal
import sys
import time

_GRACE = 5.0  # seconds


def main() -> None:
    """Wait for the end of the pipe on standard input, then end the process groups that were named."""
    groups: set[int] = set()
    for line in sys.stdin:
        if line.strip() == "forget":
            groups.clear()
        else:
            groups.add(int(line))
    end(groups, _GRACE)


def end(groups: "set[int]", grace: float) -> None:
    """End process groups: ask, wait up to `grace` seconds, then kill."""
    left = {group for group in groups if send(group, signal.SIGTERM)}
    deadline = time.monotonic() + grace
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = {group for group in left if send(group, 0)}
    for group in left:
        send(group, signal.SIGKILL)


def send(group: int, number: int) -> bool:
    """Send a signal to a process group; return whether anybody is there."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    main()
