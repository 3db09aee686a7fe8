import dataclasses

import pytest

from accelerate.errors import ConfigurationError
from accelerate.launching.machines import MeetingSettings, Record, Summary, meeting_settings, summarize
from accelerate.launching.report import RankFailure
from accelerate.options.launch import LaunchPlan

VERSIONS = {"python": "3.11.7", "torch": "2.13.0", "accelerate": "2.0"}


def record(machine: int, **changes: object) -> Record:
    made = Record(machine=machine, host=f"h{machine}", num_machines=2, num_processes=4, versions=VERSIONS)
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def summary(*records: Record, lost: tuple[int, ...] = (), former: Summary | None = None) -> Summary:
    return summarize({one.machine: one for one in records}, lost, 2, former or Summary())


def test_a_round_begins_when_all_are_ready_for_it() -> None:
    alone = summary(record(0, ready_for=1))
    assert (alone.round, alone.wanted, alone.names) == (0, 1, {0: "machine 0 (h0)"})
    assert summary(record(0, ready_for=1), record(1)).round == 0
    both = summary(record(0, ready_for=1), record(1, ready_for=1))
    assert (both.round, both.wanted) == (1, 1)
    again = summary(record(0, ready_for=1), record(1, ready_for=2), former=both)
    assert (again.round, again.wanted) == (1, 2)


def test_the_end_of_all() -> None:
    done, working = record(0, finished=True), record(1)
    assert not summary(done, working).all_ended
    assert not summary(done).all_finished  # the other has not come yet
    assert summary(done, record(1, finished=True)).all_finished
    failed = summary(done, record(1, ended="failed"))
    assert (failed.all_finished, failed.all_ended) == (False, True)
    assert summary(done, working, lost=(1,)).all_ended


@pytest.mark.parametrize("name", ["num_machines", "num_processes"])
def test_machines_that_were_told_different_things_do_not_start(name: str) -> None:
    found = summary(record(0, ready_for=1), record(1, ready_for=1, **{name: 8}))
    assert found.round == 0
    assert f"--{name} " in found.problem
    assert " and machine 1 (h1) with 8" in found.problem
    assert summary(record(0), record(1), former=found).problem == found.problem


def test_records_and_summaries_survive_the_way() -> None:
    failure = RankFailure(rank=3, return_code=-9, at=1.5, traceback="boom")
    one = record(1, ended="failed", status=137, failures=[dataclasses.asdict(failure)])
    assert Record.from_text(one.text()) == one
    whole = summary(record(0), one)
    back = Summary.from_text(whole.text())
    assert back == whole
    (told,) = back.ended[0].rank_failures(10.0)
    assert (told.rank, told.at, told.where) == (3, 11.5, "machine 1 (h1)")


def test_times_are_read_from_rdzv_conf() -> None:
    def settings(text: str) -> MeetingSettings:
        return meeting_settings(LaunchPlan(training_script="t", training_script_args=(), rdzv_conf=text))

    assert settings("").patience == 30.0
    read = settings(
        "join_timeout=7, keep_alive_interval=2,keep_alive_max_attempt=3,is_host=0,last_call_timeout=1"
    )
    assert (read.timeout, read.patience, read.is_host) == (7.0, 6.0, False)
    for wrong in ("timeout=soon", "timeout=0", "patience=3", "is_host=maybe", "timeout"):
        with pytest.raises(ConfigurationError, match="--rdzv_conf"):
            settings(wrong)
