"""Logging on real ranks: who speaks, in which order, and that no rank waits for one that is silent."""

import logging

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
    logger.info("letter %s", "abc"[rank], main_process_only=main_process_only, in_order=True)
    logger.info("after")
    return told(keep)


@pytest.mark.parametrize("main_process_only", [True, False])
def test_rank_0_prints_all_in_order(rank_pool, main_process_only):
    lines = rank_pool.run(speak_in_order, main_process_only, num_ranks=3)
    assert lines == [
        ["[RANK 0] letter a", "[RANK 1] letter b", "[RANK 2] letter c", "[RANK 0] after"],
        [],
        [],
    ]


def speak_at_different_levels(loud_rank):
    rank = PartialState(cpu=True).process_index
    logger, keep = listening("INFO" if rank == loud_rank else "ERROR")
    logger.info("quiet elsewhere", in_order=True)
    logger.error("all again", in_order=True)
    return told(keep)


@pytest.mark.parametrize("loud_rank", [0, 1])
def test_ranks_with_other_levels_do_not_wait_for_each_other(rank_pool, loud_rank):
    lines = rank_pool.run(speak_at_different_levels, loud_rank)
    assert lines[0] == [f"[RANK {loud_rank}] quiet elsewhere", "[RANK 0] all again", "[RANK 1] all again"]
    assert lines[1] == []


def warn_once_in_order():
    rank = PartialState(cpu=True).process_index
    logger, keep = listening()
    for step in range(3):
        logger.warning_once("differs %d", step if rank else 0, in_order=True)
    return told(keep)


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
    logger.info("%s", Unpicklable(rank), in_order=True)
    return [(record.getMessage(), getattr(record, "where", None), record.funcName) for record in keep.records]


def test_tracebacks_and_odd_objects_travel_as_text(rank_pool):
    failure, second, *rest = rank_pool.run(fail_in_order)[0]
    assert failure[0].startswith("[RANK 0] failed\nTraceback")
    assert failure[0].endswith("KeyError: 'of rank 0'")
    assert second[0].startswith("[RANK 1] failed\nTraceback")
    assert second[1:] == ("step 1", "fail_in_order")
    assert [line[0] for line in rest] == ["[RANK 0] step 0", "[RANK 1] step 1"]
