"""From what ranks left behind to facts for the report. Called by agent.py when ranks have failed."""

import json
import math
import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate.launching.console import Console
from accelerate.launching.report import RankFailure, last_traceback

__all__ = ["Ending", "examine", "keep_tails"]

_NEARLY = 0.8  # part of the grace period after which a SIGKILL is taken for the agent's own, which asks first

# What Python gives for an uncaught exception. Any other positive status was chosen by somebody.
_UNCAUGHT = 1


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How the process of one rank ended, as the agent saw it."""

    rank: int
    local_rank: int
    return_code: int
    error_file: str  # written by the rank itself (runtime/failure.py), or not there


def examine(
    endings: Iterable[Ending], console: Console, logs: Mapping[int, str], grace: float
) -> list[RankFailure]:
    """Return what is known of each rank that did not end well.

    Args:
        endings: one per failed rank.
        console: knows what they wrote and when they ended.
        logs: local rank -> file with what it wrote.
        grace: seconds that ranks have to end after they were asked to.
    """
    failures = [_examine(ending, console, logs.get(ending.local_rank)) for ending in endings]
    first_end = min((failure.at for failure in failures), default=math.inf)
    return [_mark_stopped(failure, first_end, grace) for failure in failures]


def keep_tails(endings: Iterable[Ending], console: Console, folder: Path) -> dict[int, str]:
    """Write what failed ranks said last into files, for a launch that kept no logs; return those files.

    What cannot be written is left out: a full disk is often why ranks fail, and the report must come.
    """
    files = {}
    for ending in endings:
        text = "".join(console.tails(ending.local_rank))
        if text:
            file = folder / f"rank_{ending.rank}.log"
            try:
                file.write_text(text, encoding="utf-8")
            except OSError:
                continue
            files[ending.local_rank] = str(file)
    return files


def _examine(ending: Ending, console: Console, log: str | None) -> RankFailure:
    record = _read_error_file(ending.error_file)
    tails = console.tails(ending.local_rank)
    said = [line for line in (tails[0] if tails else "").splitlines() if line.strip()]
    traceback = record.get("py_callstack")
    if traceback is None and (ending.return_code == _UNCAUGHT or ending.return_code < 0):
        traceback = next((found for tail in tails if (found := last_traceback(tail))), None)
    # Asked to end while it was ending of its own exception: the exception is what it failed of.
    was_ending = record.get("py_callstack") is not None and ending.return_code == -signal.SIGTERM
    return RankFailure(
        rank=ending.rank,
        return_code=_UNCAUGHT if was_ending else ending.return_code,
        at=_moment(ending, record, console),
        traceback=traceback,
        last_line=said[-1].strip() if said else "",
        log=log,
    )


def _moment(ending: Ending, record: Mapping[str, Any], console: Console) -> float:
    """Return when the rank failed: its exception comes before its end, which may take a while."""
    if "timestamp_ns" in record:
        return int(record["timestamp_ns"]) / 1e9 - time.time() + time.monotonic()
    trouble = console.trouble_at(ending.local_rank)
    if ending.return_code == _UNCAUGHT and trouble is not None:
        return trouble
    end = console.exited_at(ending.local_rank)
    return math.inf if end is None else end


def _mark_stopped(failure: RankFailure, first_end: float, grace: float) -> RankFailure:
    after = failure.at - first_end if math.isfinite(failure.at) else math.inf
    asked = failure.return_code == -signal.SIGTERM and after > 0
    forced = failure.return_code == -signal.SIGKILL and after > grace * _NEARLY
    if not (asked or forced):
        return failure
    return RankFailure(**{**vars(failure), "stopped": True})


def _read_error_file(path: str) -> dict[str, Any]:
    if not os.path.isfile(path):
        return {}
    try:
        message = json.loads(Path(path).read_text(encoding="utf-8"))["message"]
    except (ValueError, KeyError, TypeError):
        # Whatever else wrote there, what the rank printed is at hand.
        return {}
    return dict(message.get("extraInfo", {})) if isinstance(message, dict) else {}
