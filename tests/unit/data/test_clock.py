import pytest

from accelerate.data import clock as module
from accelerate.data.clock import StepClock, StepTimes


@pytest.fixture
def now(monkeypatch):
    """A clock that stands still but for what the test adds to it."""
    time_of_day = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: time_of_day[0])
    return time_of_day


def slow(now, seconds, count):
    for number in range(count):
        now[0] += seconds
        yield number


def test_it_tells_waiting_from_work(now):
    clock = StepClock(slow(now, 3.0, 4))
    for _ in clock:
        now[0] += 1.0
    assert clock.times == StepTimes(steps=4, seconds=16.0, waiting=12.0)
    assert clock.times.share == 0.75
    assert str(clock) == "4 steps of 4000.0 ms, 75% of it waiting for data"


def test_a_step_that_is_left_counts_and_passes_add_up(now):
    clock = StepClock([1, 2, 3])
    for _ in clock:
        now[0] += 2.0
        break
    for _ in clock:
        now[0] += 1.0
        break
    assert clock.times == StepTimes(steps=2, seconds=3.0, waiting=0.0)
    clock.reset()
    assert clock.times == StepTimes()
    assert clock.times.share == 0.0
    assert str(clock) == "no steps"


def test_it_is_as_long_as_the_loader_and_gives_its_batches():
    clock = StepClock([1, 2, 3])
    assert len(clock) == 3
    assert list(clock) == [1, 2, 3]
    assert clock.times.seconds >= clock.times.waiting >= 0


def test_the_times_of_one_process_are_those_of_all_ranks():
    clock = StepClock([1, 2])
    list(clock)
    assert clock.times_of_ranks() == [clock.times]
