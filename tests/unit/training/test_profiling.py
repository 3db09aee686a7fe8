import json
import warnings

import pytest
import torch

from accelerate.options.profile import ProfileKwargs
from accelerate.training.profiling import recorded

SCHEDULE = {"wait": 1, "warmup": 1, "active": 1, "repeat": 1}


@pytest.fixture(autouse=True)
def quiet(capfd):
    """Keep what the profiler itself prints out of the report."""


def work():
    return torch.ones(3) + 1


def names_in(path):
    return {event.get("name") for event in json.loads(path.read_text())["traceEvents"]}


def test_the_trace_of_a_rank_is_written_where_asked(tmp_path):
    folder = tmp_path / "deep" / "down"
    with recorded(ProfileKwargs(activities=["cpu"], output_trace_dir=str(folder)), 3) as profiler:
        work()
        assert not folder.exists()
    assert [path.name for path in folder.iterdir()] == ["profile_3.json"]
    assert "aten::add" in names_in(folder / "profile_3.json")
    assert "aten::add" in {event.key for event in profiler.key_averages()}


def test_nothing_is_written_unasked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with recorded(ProfileKwargs(activities=["cpu"]), 0):
        work()
    assert list(tmp_path.iterdir()) == []


def test_a_schedule_records_its_steps(tmp_path):
    ready = []
    options = ProfileKwargs(
        activities=["cpu"],
        schedule_option=SCHEDULE,
        output_trace_dir=str(tmp_path),
        on_trace_ready=lambda profiler: ready.append(profiler.step_num),
    )
    with recorded(options, 0) as profiler:
        for step in range(6):
            torch.mm(torch.ones(2, 2), torch.ones(2, 2)) if step == 2 else work()
            profiler.step()
    assert ready == [3]
    assert "aten::mm" in names_in(tmp_path / "profile_0.json")
    assert "aten::add" not in names_in(tmp_path / "profile_0.json")


def test_a_loop_that_tells_no_steps_is_warned_about(tmp_path):
    options = ProfileKwargs(activities=["cpu"], schedule_option=SCHEDULE, output_trace_dir=str(tmp_path))
    with pytest.warns(UserWarning, match=r"profile_0\.json was not written.*profiler\.step"):  # noqa: SIM117
        with recorded(options, 0):
            work()
    assert list(tmp_path.iterdir()) == []


def test_a_trace_that_the_user_has_taken_is_not_there_twice(tmp_path):
    def take(profiler):
        profiler.export_chrome_trace(str(tmp_path / "taken.json"))

    options = ProfileKwargs(activities=["cpu"], on_trace_ready=take, output_trace_dir=str(tmp_path))
    with pytest.warns(UserWarning, match="on_trace_ready has taken the trace"):  # noqa: SIM117
        with recorded(options, 0):
            work()
    assert [path.name for path in tmp_path.iterdir()] == ["taken.json"]


def test_other_failures_of_the_export_are_not_hidden(tmp_path):
    (tmp_path / "profile_0.json" / "not empty").mkdir(parents=True)
    options = ProfileKwargs(activities=["cpu"], output_trace_dir=str(tmp_path))
    with pytest.raises(OSError, match="could not be written"), recorded(options, 0):
        work()


def test_an_error_in_the_block_comes_out(tmp_path):
    options = ProfileKwargs(activities=["cpu"], output_trace_dir=str(tmp_path))
    with pytest.raises(KeyError), recorded(options, 0):
        raise KeyError("in the loop")
    assert list(tmp_path.iterdir()) == []
    with warnings.catch_warnings(), recorded(ProfileKwargs(activities=["cpu"]), 0):
        work()  # the profiler was stopped and can start again
