from contextlib import contextmanager

import pytest

from accelerate.training.window import AccumulationWindow


@pytest.fixture
def log():
    return []


@pytest.fixture
def no_sync(log):
    @contextmanager
    def no_sync(model):
        if model == "broken":
            raise RuntimeError("cannot be entered")
        log.append(f"enter {model}")
        try:
            yield
        finally:
            log.append(f"leave {model}")

    return no_sync


def test_models_stay_local_inside_a_window(log, no_sync):
    with AccumulationWindow(lambda models: False, no_sync, ("a", "b")):
        log.append("work")
    assert log == ["enter a", "enter b", "work", "leave b", "leave a"]


def test_the_end_of_a_window_enters_nothing(log, no_sync):
    with AccumulationWindow(lambda models: True, no_sync, ("a",)):
        pass
    assert log == []


def test_an_exception_passes_and_every_model_is_left(log, no_sync):
    with pytest.raises(KeyError), AccumulationWindow(lambda models: False, no_sync, ("a", "b")):
        raise KeyError
    assert log[2:] == ["leave b", "leave a"]


def test_a_model_that_cannot_be_entered_leaves_none_behind(log, no_sync):
    with (
        pytest.raises(RuntimeError, match="cannot be entered"),
        AccumulationWindow(lambda models: False, no_sync, ("a", "broken")),
    ):
        raise AssertionError("the block must not run")
    assert log == ["enter a", "leave a"]


def test_it_can_be_entered_again(log, no_sync):
    window = AccumulationWindow(lambda models: False, no_sync, ("a",))
    for _ in range(2):
        with window:
            pass
    assert log == ["enter a", "leave a"] * 2
