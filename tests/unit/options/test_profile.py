import enum

import pytest
import torch
from torch.profiler import ProfilerAction

from accelerate.options.profile import ProfileKwargs


def test_defaults_differ_in_nothing():
    assert ProfileKwargs().to_kwargs() == {}
    assert ProfileKwargs(with_flops=True).to_kwargs() == {"with_flops": True}


def test_build_without_arguments_records_all_that_there_is():
    assert ProfileKwargs().build().activities == set(torch.profiler.supported_activities())


@pytest.mark.parametrize("name", ["cpu", "cuda", "xpu", "mtia"])
def test_activities_by_name(name):
    activity = getattr(torch.profiler.ProfilerActivity, name.upper())
    assert ProfileKwargs(activities=[name]).build().activities == {activity}


def test_flags_reach_the_profiler():
    flags = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
    for flag in flags:
        profiler = ProfileKwargs(**{flag: True}).build()
        assert {name: getattr(profiler, name) for name in flags} == {name: name == flag for name in flags}


def test_on_trace_ready():
    def ready(profiler):
        pass

    assert ProfileKwargs(on_trace_ready=ready).build().on_trace_ready is ready


def test_schedule():
    build = ProfileKwargs(schedule_option={"wait": 1, "warmup": 1, "active": 2, "repeat": 1}).build
    actions = [build().schedule(step) for step in range(5)]
    assert actions == [
        ProfilerAction.NONE,
        ProfilerAction.WARMUP,
        ProfilerAction.RECORD,
        ProfilerAction.RECORD_AND_SAVE,
        ProfilerAction.NONE,
    ]


@pytest.mark.parametrize(
    ("activities", "text"),
    [
        (["gpu"], r"\['gpu'\]\): no such activity; use cpu, cuda, xpu, mtia, hpu"),
        (["cpu", "CUDA"], r"\['CUDA'\]\): no such activity"),
        ("cpu", "pass a list of one or more of cpu, cuda"),
        ([], "leave it out to record all"),
    ],
)
def test_activities_that_are_not_known(activities, text):
    with pytest.raises(ValueError, match=text):
        ProfileKwargs(activities=activities).build()


def test_an_activity_that_this_torch_does_not_have(monkeypatch):
    monkeypatch.setattr(torch.profiler, "ProfilerActivity", enum.Enum("ProfilerActivity", ["CPU"]))
    with pytest.raises(ValueError, match=r"\['hpu'\]\): this torch does not record it; it knows cpu"):
        ProfileKwargs(activities=["hpu"]).build()


@pytest.mark.parametrize(
    "steps",
    [
        {},
        {"wait": 1, "warmup": 1},
        {"wait": 1, "warmup": 1, "active": 0},
        {"wait": -1, "warmup": 1, "active": 1},
        {"wait": 1, "warmup": 1, "active": 1, "skip": 2},
    ],
)
def test_schedules_without_sense(steps):
    with pytest.raises(ValueError, match="give wait, warmup, active, and if you like repeat, skip_first"):
        ProfileKwargs(schedule_option=steps).build()
