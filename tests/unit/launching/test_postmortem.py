import json
import signal
import time
from pathlib import Path

from accelerate.launching.console import Console
from accelerate.launching.postmortem import Ending, examine, keep_tails
from accelerate.runtime.failure import error_record

BOOM = "Traceback (most recent call last):\n  File ...\nValueError: boom"


class FakeConsole(Console):
    """Knows what it was told, and carries nothing."""

    def __init__(
        self, tails: dict[int, list[str]], exits: dict[int, float], trouble: dict[int, float]
    ) -> None:
        self._tails, self._exits, self._trouble = tails, exits, trouble

    def tails(self, rank: int) -> list[str]:
        return self._tails.get(rank, [])

    def exited_at(self, rank: int) -> float | None:
        return self._exits.get(rank)

    def trouble_at(self, rank: int) -> float | None:
        return self._trouble.get(rank)


def ending(rank: int, return_code: int, error_file: str = "<N/A>") -> Ending:
    return Ending(rank=rank, local_rank=rank, return_code=return_code, error_file=error_file)


def test_the_ranks_own_record_wins_over_what_it_printed(tmp_path: Path) -> None:
    file = tmp_path / "error.json"
    now = time.time()
    file.write_text(json.dumps(error_record(KeyError("from the file"), now)))
    console = FakeConsole({0: [f"{BOOM}\n"]}, {0: 99.0}, {0: 98.0})
    (failure,) = examine([ending(0, 1, str(file))], console, {0: "log"}, 10.0)
    assert failure.traceback is not None
    assert "from the file" in failure.traceback
    assert abs(failure.at - time.monotonic()) < 1.0
    assert failure.log == "log"


def test_without_a_record_the_printed_traceback_and_its_time_count() -> None:
    console = FakeConsole({0: [f"x\n{BOOM}\n", "stdout"]}, {0: 99.0}, {0: 98.0})
    (failure,) = examine([ending(0, 1)], console, {}, 10.0)
    assert (failure.traceback, failure.at) == (BOOM, 98.0)


def test_a_record_that_cannot_be_read_loses_nothing(tmp_path: Path) -> None:
    file = tmp_path / "error.json"
    file.write_text("{")
    (failure,) = examine([ending(0, 1, str(file))], FakeConsole({0: [BOOM]}, {}, {}), {}, 10.0)
    assert failure.traceback == BOOM


def test_a_chosen_exit_code_is_no_exception_even_after_a_handled_one() -> None:
    console = FakeConsole({0: [f"{BOOM}\nhandled\nbye\n"]}, {0: 99.0}, {0: 5.0})
    (failure,) = examine([ending(0, 3)], console, {}, 10.0)
    assert (failure.traceback, failure.last_line, failure.at) == (None, "bye", 99.0)


def test_ranks_that_the_agent_ended_are_told_apart() -> None:
    console = FakeConsole({}, {0: 2.0, 1: 1.0, 2: 40.0}, {})
    endings = [ending(0, -signal.SIGTERM), ending(1, -signal.SIGTERM), ending(2, -signal.SIGKILL)]
    assert [failure.stopped for failure in examine(endings, console, {}, 20.0)] == [True, False, True]


def test_tails_are_kept_for_ranks_that_said_something(tmp_path: Path) -> None:
    console = FakeConsole({0: ["err\n", "out\n"], 1: [""]}, {}, {})
    files = keep_tails([ending(0, 1), ending(1, 1)], console, tmp_path)
    assert list(files) == [0]
    assert Path(files[0]).read_text() == "err\nout\n"


def test_a_rank_that_was_ending_of_its_own_exception_failed_of_it(tmp_path: Path) -> None:
    file = tmp_path / "error.json"
    file.write_text(json.dumps(error_record(KeyError("its own"), time.time())))
    now = time.monotonic()
    console = FakeConsole({}, {0: now + 0.1, 1: now}, {})
    failures = examine([ending(0, -signal.SIGTERM, str(file)), ending(1, -signal.SIGTERM)], console, {}, 10.0)
    assert [failure.return_code for failure in failures] == [1, -signal.SIGTERM]
    assert not failures[0].stopped


def test_tails_that_cannot_be_written_do_not_stand_in_the_way_of_the_report(tmp_path: Path) -> None:
    console = FakeConsole({0: ["err\n"]}, {}, {})
    assert keep_tails([ending(0, 1)], console, tmp_path / "was never made") == {}
