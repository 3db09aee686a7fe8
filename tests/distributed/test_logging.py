"""Logging on real ranks: who speaks, in which order, and that no rank waits for one that is silent."""

import logging
import time

import pytest

from accelerate.logging import get_logger
from accelerate.state import PartialState


class Keep(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


class Unpicklable:
    def __init__(self, step):
        self.step = step

    def __reduce__(self):
        raise TypeError("cannot travel")

    def __str__(self):
        return f"step {self.step}"

    __repr__ = __str__


def listening(level="INFO"):
    keep = Keep()
    logger = get_logger("distributed", level)
    logger.logger.handlers = [keep]
    logger.logger.propagate = False
    return logger, keep


def told(keep):
    return [record.getMessage() for record in keep.records]


def told_in_the_end(keep):
    """Return what was logged here when all ranks are through and have left the run."""
    PartialState().wait_for_everyone()
    PartialState().destroy_process_group()
    return told(keep)


def speak():
    PartialState(cpu=True)
    logger, keep = listening()
    logger.info("main")
    logger.info("all", main_process_only=False)
    return told(keep)


def test_who_speaks(rank_pool):
    assert rank_pool.run(speak) == [["[RANK 0] main", "[RANK 0] all"], ["[RANK 1] all"]]


def speak_in_order(main_process_only):
    rank = PartialState(cpu=True).process_index
    logger, keep = listening()
    for letter in ("abc"[rank], "xyz"[rank]):
        logger.info("letter %s", letter, main_process_only=main_process_only, in_order=True)
    return told_in_the_end(keep)


@pytest.mark.parametrize("main_process_only", [True, False])
def test_rank_0_prints_all_in_order(rank_pool, main_process_only):
    mine, *others = rank_pool.run(speak_in_order, main_process_only, num_ranks=3)
    assert others == [[], []]
    for ranks in ("abc", "xyz"):  # rank 0 may be at its second message before the others' first has come
        assert [line for line in mine if line[-1] in ranks] == [
            f"[RANK {rank}] letter {letter}" for rank, letter in enumerate(ranks)
        ]


def speak_at_different_levels(loud_rank):
    rank = PartialState(cpu=True).process_index
    logger, keep = listening("INFO" if rank == loud_rank else "ERROR")
    logger.info("quiet elsewhere", in_order=True)
    logger.error("all again", in_order=True)
    return told_in_the_end(keep)


@pytest.mark.parametrize("loud_rank", [0, 1])
def test_ranks_with_other_levels_do_not_wait_for_each_other(rank_pool, loud_rank):
    lines = rank_pool.run(speak_at_different_levels, loud_rank)
    assert sorted(lines[0]) == sorted(
        [f"[RANK {loud_rank}] quiet elsewhere", "[RANK 0] all again", "[RANK 1] all again"]
    )
    assert lines[0].index("[RANK 0] all again") < lines[0].index("[RANK 1] all again")
    assert lines[1] == []


def warn_once_in_order():
    rank = PartialState(cpu=True).process_index
    logger, keep = listening()
    for step in range(3):
        logger.warning_once("differs %d", step if rank else 0, in_order=True)
    return told_in_the_end(keep)


def test_a_rank_that_has_warned_before_still_takes_part(rank_pool):
    lines = rank_pool.run(warn_once_in_order)
    assert lines[0] == [
        "[RANK 0] differs 0",
        "[RANK 1] differs 0",
        "[RANK 1] differs 1",
        "[RANK 1] differs 2",
    ]


def fail_in_order():
    rank = PartialState(cpu=True).process_index
    logger, keep = listening()
    try:
        raise KeyError(f"of rank {rank}")
    except KeyError:
        logger.exception("failed", in_order=True, extra={"where": Unpicklable(rank)})
    PartialState().wait_for_everyone()
    logger.info("%s", Unpicklable(rank), in_order=True)
    told_in_the_end(keep)
    return [
        (record.getMessage(), str(record.__dict__.get("where")), record.funcName) for record in keep.records
    ]


def test_tracebacks_and_odd_objects_travel_as_text(rank_pool):
    lines = rank_pool.run(fail_in_order)[0]
    assert lines[0] == ("[RANK 0] failed", "step 0", "fail_in_order")  # the traceback is in the record
    (second,) = [line for line in lines if line[0].startswith("[RANK 1] failed\nTraceback")]
    assert second[0].endswith("KeyError: 'of rank 1'")
    assert second[1:] == ("step 1", "fail_in_order")
    assert [line[0] for line in lines if "step" in line[0]] == ["[RANK 0] step 0", "[RANK 1] step 1"]


def some_are_silent(speakers, num_messages):
    rank = PartialState(cpu=True).process_index
    logger, keep = listening()
    began = time.monotonic()
    for number in range(num_messages):
        if rank in speakers:
            logger.info("message %d", number, in_order=True)
    return time.monotonic() - began, told_in_the_end(keep)


@pytest.mark.parametrize("speakers", [(0,), (1,), (2,), (0, 2), (1, 2)])
def test_nobody_waits_for_a_rank_that_does_not_log_and_no_line_is_lost(rank_pool, speakers):
    outcomes = rank_pool.run(some_are_silent, speakers, 3, num_ranks=3)
    assert all(seconds < 2 for seconds, _ in outcomes)
    mine, *others = [lines for _, lines in outcomes]
    assert others == [[], []]
    for number in range(3):
        assert [line for line in mine if line.endswith(str(number))] == [
            f"[RANK {rank}] message {number}" for rank in speakers
        ]


def silent_main(hold):
    """Rank 1 alone logs in order, while rank 0 works on; return what rank 0 has seen meanwhile."""
    PartialState(cpu=True)
    logger, keep = listening()
    if PartialState().process_index == 1:
        logger.info("alone", in_order=True)
    PartialState().wait_for_everyone()
    deadline = time.monotonic() + hold
    while PartialState().is_main_process and not keep.records and time.monotonic() < deadline:
        time.sleep(0.05)
    PartialState().wait_for_everyone()
    return told(keep)


def test_a_line_whose_lower_ranks_never_come_is_shown_while_the_run_goes_on(rank_pool):
    assert rank_pool.run(silent_main, 20.0)[0] == ["[RANK 1] alone"]


def late_speaker():
    """Rank 1 logs when rank 0 has left the run."""
    state = PartialState(cpu=True)
    logger, keep = listening()
    state.wait_for_everyone()
    if state.process_index == 1:
        time.sleep(0.5)
        logger.info("too late for rank 0", in_order=True)
    else:
        state.destroy_process_group()
        time.sleep(1.5)  # the store is this process's
    return told(keep)


def test_who_logs_when_rank_0_has_left_logs_for_itself(rank_pool):
    assert rank_pool.run(late_speaker) == [[], ["[RANK 1] too late for rank 0"]]
