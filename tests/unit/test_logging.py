import logging
import pickle
import subprocess
import sys

import pytest

from accelerate.errors import ConfigurationError, NotInitializedError
from accelerate.logging import MultiProcessAdapter, get_logger
from accelerate.runtime.current import current
from accelerate.state import PartialState


@pytest.fixture
def state():
    PartialState._reset_state()
    yield PartialState(cpu=True)
    PartialState._reset_state()


@pytest.fixture
def name(request):
    """A logger name of this test's own, whose level is put back."""
    name = f"tests.{request.node.name}"
    yield name
    logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture
def logger(state, name, caplog):
    caplog.set_level(logging.INFO)
    return get_logger(name)


@pytest.fixture
def on_rank(state, monkeypatch):
    """Play a rank of a world of two, without a process group."""

    def play(rank):
        monkeypatch.setitem(current.__dict__, "process_index", rank)
        monkeypatch.setitem(current.__dict__, "num_processes", 2)

    return play


def test_making_a_logger_starts_nothing():
    script = """
import accelerate.logging as room
room.get_logger(__name__, log_level="DEBUG")
assert not room.current.started
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_logging_before_the_run_starts_is_an_error(name):
    PartialState._reset_state()
    for speak in (get_logger(name).error, get_logger(name).debug, get_logger(name).warning_once):
        with pytest.raises(
            RuntimeError,
            match=r"^You must initialize the accelerate state by calling either `PartialState\(\)` or "
            r"`Accelerator\(\)` before using the logging utility\.$",
        ) as failure:
            speak("too early")
        assert isinstance(failure.value, NotInitializedError)
    assert not current.started


def test_every_message_says_its_rank(logger, caplog):
    logger.info("%s of %d", "part", 3)
    logger.warning(12)
    assert caplog.messages == ["[RANK 0] part of 3", "[RANK 0] 12"]


def test_process_is_the_prefix_alone(logger):
    message, kwargs = logger.process("text", {"exc_info": True})
    assert message == "[RANK 0] text"
    assert kwargs["exc_info"] is True


def test_only_the_main_process_speaks_by_default(logger, on_rank, caplog):
    on_rank(1)
    logger.info("hidden")
    logger.info("shown", main_process_only=False)
    on_rank(0)
    logger.info("shown too")
    assert caplog.messages == ["[RANK 1] shown", "[RANK 0] shown too"]


def test_order_in_one_process_is_plain_logging(logger, caplog):
    logger.info("alone", main_process_only=False, in_order=True)
    assert caplog.messages == ["[RANK 0] alone"]


def test_levels_are_obeyed(logger, caplog):
    logger.debug("hidden")
    assert not logger.isEnabledFor(logging.DEBUG)
    assert caplog.messages == []


def speak(logger):
    logger.info("by name")
    logger.log(logging.INFO, "by number")
    logger.warning_once("once")
    try:
        raise KeyError("inside")
    except KeyError:
        logger.exception("failed")


def test_records_point_at_the_caller(logger, caplog):
    speak(logger)
    assert [record.funcName for record in caplog.records] == ["speak"] * 4
    assert {record.filename for record in caplog.records} == {"test_logging.py"}


def test_a_stack_level_counts_from_the_caller(logger, caplog):
    def helper():
        logger.info("from whom", stacklevel=2)

    def outer():
        helper()

    outer()
    assert caplog.records[0].funcName == "outer"


def test_the_traceback_is_logged(logger, caplog):
    speak(logger)
    assert "KeyError: 'inside'" in caplog.text


def test_extra_values_of_the_call_reach_the_record(state, name, caplog):
    adapter = MultiProcessAdapter(logging.getLogger(name), {"run": "a"})
    adapter.warning("text", extra={"step": 3})
    assert (caplog.records[0].run, caplog.records[0].step) == ("a", 3)


def test_a_warning_once_is_once_for_each_message(logger, caplog):
    for _ in range(3):
        logger.warning_once("same")
        logger.warning_once("value %s", [1, 2])
        logger.warning_once("value %s", [1, 3])
    assert caplog.messages == ["[RANK 0] same", "[RANK 0] value [1, 2]", "[RANK 0] value [1, 3]"]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_a_warning_once_that_was_hidden_on_this_rank_stays_so(logger, on_rank, caplog):
    on_rank(1)
    logger.warning_once("same")
    logger.warning_once("all", main_process_only=False)
    logger.warning_once("all", main_process_only=False)
    assert caplog.messages == ["[RANK 1] all"]


def test_a_level_is_set_on_this_logger_alone(name):
    root, parent = logging.getLogger().level, logging.getLogger("tests").level
    assert get_logger(name, log_level="debug").logger.level == logging.DEBUG
    assert (logging.getLogger().level, logging.getLogger("tests").level) == (root, parent)


def test_a_level_comes_from_the_environment(name, monkeypatch):
    root = logging.getLogger().level
    monkeypatch.setenv("ACCELERATE_LOG_LEVEL", "error")
    assert get_logger(name).logger.level == logging.ERROR
    assert get_logger(name, "INFO").logger.level == logging.INFO
    assert logging.getLogger().level == root


def test_without_a_level_the_logger_is_left_as_it_is(name, monkeypatch):
    monkeypatch.delenv("ACCELERATE_LOG_LEVEL", raising=False)
    logging.getLogger(name).setLevel(logging.CRITICAL)
    assert get_logger(name).logger.level == logging.CRITICAL


def test_an_unknown_level_is_an_error_that_lists_the_known(name):
    with pytest.raises(ConfigurationError, match=r"log_level='loud'.*info, warning, error or critical"):
        get_logger(name, "loud")


def test_a_logger_survives_pickling(logger, name):
    again = pickle.loads(pickle.dumps(logger))
    assert isinstance(again, MultiProcessAdapter)
    assert again.logger is logging.getLogger(name)
