import dataclasses

import pytest

from accelerate.options.field import options
from accelerate.options.launch import LaunchPlan

PLAN = {"training_script": "t.py", "training_script_args": (), "num_processes": 1, "num_machines": 1}


def test_a_plan_cannot_be_changed() -> None:
    plan = LaunchPlan(**PLAN)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.cpu = True  # type: ignore[misc]


def test_sources_do_not_make_plans_different() -> None:
    assert LaunchPlan(**PLAN, sources={"cpu": "flag"}) == LaunchPlan(**PLAN)


def test_every_option_has_a_flag_or_a_key_and_a_help_line() -> None:
    declared = [info for info in options(LaunchPlan) if info.name != "sources"]
    assert [info.name for info in declared if not (info.flags or info.key) or not info.help] == []


@pytest.mark.parametrize(
    ("values", "distributed"),
    [({}, False), ({"multi_gpu": True}, True), ({"num_processes": 2}, True), ({"cpu": True}, False)],
)
def test_distributed(values: dict[str, object], distributed: bool) -> None:
    assert LaunchPlan(**{**PLAN, **values}).distributed is distributed
