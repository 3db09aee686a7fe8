"""The last thing on screen when ranks fail: text from facts. Pure; called by launching/agent.py.

The rank that failed first is told in full and last. Its peers, which mostly fail because it is gone, get a
line each.
"""

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten

__all__ = ["RankFailure", "failure_report", "first_failure", "last_traceback", "restart_notice"]

# What a rank says when a peer left it alone in a collective: a consequence, never the cause.
_PEER_LOST = (
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "connection was likely closed",
    "connection refused",
    "socket timeout",
    "remote process exited",
    "ncclremoteerror",
    "nccl communicator was aborted",
)

_SIGNAL_MEANS = {
    "SIGKILL": "Usually the machine or the container ran out of memory and the kernel ended the process "
    "(`dmesg` tells); a batch system or `kill -9` does the same.",
    "SIGSEGV": "Native code touched memory that is not its own: a fault in a compiled extension, libraries "
    "that do not fit together, or a very deep recursion.",
    "SIGBUS": "Often shared memory is full: /dev/shm is small in containers (docker run --shm-size) and "
    "holds the batches of DataLoader workers.",
    "SIGABRT": "Native code gave up by itself: a failed assertion, an uncaught C++ exception, or the "
    "time-out of a collective. It mostly says so in its last lines.",
    "SIGFPE": "Native code divided an integer by zero.",
    "SIGILL": "A library was built for another processor than this one.",
    "SIGTERM": "Something asked it to end: a batch system at its time limit, or `kill`.",
    "SIGINT": "Something interrupted it, as Ctrl-C does.",
}

_FOLDED_WIDTH = 160  # characters of a peer's error

_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
# A main script that does not parse is reported without the word "Traceback".
_HEADER = re.compile(
    r".*?(?P<prefix>\[rank\d+\]: ?)?(?P<start>(?:  \+ Exception Group )?Traceback \(most recent call last\):$"
    r"|Fatal Python error: "
    r"|terminate called |(?<![^\n])  File \"[^\"]+\", line \d+$)"
)
_NATIVE_LOG = re.compile(r"(\[rank\d+\]: ?)?\[[WIEF]\d{3,4}[ :]|[WIEF]\d{4} ")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, kw_only=True)
class RankFailure:
    """How one rank ended.

    Attributes:
        rank: number of the rank in the run.
        return_code: as subprocess gives it: negative for death by a signal.
        at: when it failed, in seconds of one clock for all ranks.
        traceback: its own last words; None when it left none.
        last_line: the last line it wrote; empty when it wrote nothing.
        log: file with what it wrote, or None.
        stopped: the launcher ended it, since another rank had failed.
        where: its machine, if that is another one.
    """

    rank: int
    return_code: int
    at: float
    traceback: str | None = None
    last_line: str = ""
    log: str | None = None
    stopped: bool = False
    where: str = ""

    @property
    def headline(self) -> str:
        """The line that says what went wrong."""
        if self.traceback is not None:
            return _error_line(self.traceback)
        return self.last_line


def first_failure(failures: Sequence[RankFailure]) -> RankFailure:
    """Return the failure that the others follow from: the earliest that is not about a lost peer."""
    return min(failures, key=lambda failure: (failure.stopped, _is_echo(failure), failure.at, failure.rank))


def failure_report(
    failures: Sequence[RankFailure], num_ranks: int, folder: str | None = None, notes: Sequence[str] = ()
) -> str:
    """Return the report; its last lines are the traceback of the rank that failed first.

    Args:
        failures: every rank that did not end well, those stopped by the launcher included.
        num_ranks: number of ranks of the run.
        folder: where logs were kept; None if nobody asked for them.
        notes: further lines.
    """
    first = first_failure(failures)
    where = f" on {first.where}" if first.where else ""
    lines = [f"accelerate launch: rank {first.rank} of {num_ranks}{where} {_ending(first)}."]
    lines += _folded([failure for failure in failures if failure is not first], first)
    lines += [f"  {note}" for note in notes]
    if folder is not None:
        lines.append(f"  logs of all ranks: {folder}")
    meaning = _SIGNAL_MEANS.get(_signal_name(first.return_code) or "")
    if meaning:
        lines.append(meaning)
    if first.traceback is not None:
        lines += [f"rank {first.rank}:", first.traceback.rstrip()]
    elif first.return_code > 0:
        lines.append(_without_traceback(first))
    return "\n".join(lines) + "\n"


def restart_notice(failures: Sequence[RankFailure], attempt: int, max_restarts: int) -> str:
    """Return the line that is shown when all ranks start anew; without failures, for another machine."""
    if not failures:
        return (
            "accelerate launch: a rank failed on another machine; starting all ranks again "
            f"({attempt} of {max_restarts})\n"
        )
    first = first_failure(failures)
    said = f": {first.headline}" if first.headline else ""
    return (
        f"accelerate launch: rank {first.rank} {_ending(first)}{said}; starting all ranks again "
        f"({attempt} of {max_restarts})\n"
    )


def last_traceback(text: str) -> str | None:
    """Return the last traceback in what a rank wrote, with the exceptions that led to it, or None.

    Prefixes that torch puts before each line are taken away, and so are log lines of native code after it.
    """
    lines = _COLOUR.sub("", text).replace("\r\n", "\n").split("\n")
    headers = [(index, match) for index in range(len(lines)) if (match := _header(lines, index))]
    if not headers:
        return None
    position = len(headers) - 1
    while position > 0 and _is_chained(lines, headers[position][0]):
        position -= 1
    index, match = headers[position]
    prefix = match["prefix"] or ""
    block = [lines[index][match.start("start") :], *lines[index + 1 :]]
    kept = [line.removeprefix(prefix) for line in block if not _NATIVE_LOG.match(line)]
    return "\n".join(kept).rstrip()


def _header(lines: Sequence[str], index: int) -> "re.Match[str] | None":
    """Return the match if a traceback begins at line `index`, and not just a part of one."""
    match = _HEADER.match(lines[index])
    if match is None or lines[index].lstrip().startswith("| "):
        return None
    if match["start"].startswith("  File") and index > 0 and lines[index - 1].startswith(("  ", _TRACEBACK)):
        return None
    return match


def _is_chained(lines: Sequence[str], header: int) -> bool:
    """Return whether the traceback that begins at line `header` names an earlier one as its cause."""
    before = [line for line in lines[max(0, header - 3) : header] if line.strip()]
    return bool(before) and before[-1].endswith(_CHAINED)


def _error_line(traceback: str) -> str:
    """Return the line of a traceback that names the exception: the first after the frames."""
    lines = traceback.split("\n")
    starts = [index for index, line in enumerate(lines) if line.endswith(_TRACEBACK)]
    if not starts and not lines[0].startswith("  File"):
        return lines[0].strip()
    after = lines[(starts[-1] if starts else 0) + 1 :]
    return next((line for line in after if line and not line.startswith(" ")), lines[0]).strip()


def _is_echo(failure: RankFailure) -> bool:
    return failure.return_code > 0 and any(sign in failure.headline.lower() for sign in _PEER_LOST)


def _signal_name(return_code: int) -> str | None:
    if return_code >= 0:
        return None
    try:
        return signal.Signals(-return_code).name
    except ValueError:
        return f"signal {-return_code}"


def _ending(failure: RankFailure) -> str:
    name = _signal_name(failure.return_code)
    return f"was ended by {name}" if name else f"failed with exit code {failure.return_code}"


def _without_traceback(failure: RankFailure) -> str:
    said = f"its last line: {failure.last_line}" if failure.last_line else "and wrote nothing"
    return f"rank {failure.rank} left no traceback (sys.exit, os._exit, or no Python program); {said}"


def _folded(others: Sequence[RankFailure], first: RankFailure) -> list[str]:
    """Return one line for each way in which the other ranks ended."""
    groups: dict[str, list[RankFailure]] = {}
    for failure in sorted(others, key=lambda failure: failure.rank):
        groups.setdefault(_one_line(failure, first), []).append(failure)
    return [f"  {_ranks(group)}{_where(group)}: {line}{_logs(group)}" for line, group in groups.items()]


def _one_line(failure: RankFailure, first: RankFailure) -> str:
    if failure.stopped and failure.traceback is None:
        return "stopped by the launcher"
    if failure.headline and failure.headline == first.headline:
        return "same error"
    return shorten(failure.headline, _FOLDED_WIDTH) or _ending(failure)


def _ranks(group: Sequence[RankFailure]) -> str:
    numbers = [failure.rank for failure in group]
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if numbers == list(range(numbers[0], numbers[-1] + 1)) and len(numbers) > 2:
        return f"ranks {numbers[0]} to {numbers[-1]}"
    return "ranks " + ", ".join(str(number) for number in numbers)


def _where(group: Sequence[RankFailure]) -> str:
    places = sorted({failure.where for failure in group if failure.where})
    return f" on {', '.join(places)}" if places else ""


def _logs(group: Sequence[RankFailure]) -> str:
    files = [failure.log for failure in group if failure.log]
    if not files:
        return ""
    return f"  ({files[0]})" if len(files) == 1 else f"  ({files[0]} and {len(files) - 1} more beside it)"
