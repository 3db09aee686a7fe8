"""The environment of a launch is that of accelerate 1.15.0, as tests/reference recorded it."""

import json
import shlex
from pathlib import Path

import pytest
import yaml

from accelerate.commands.launch import launch_command_parser
from accelerate.commands.utils import typed_options
from accelerate.launching.machine import Machine
from accelerate.launching.plan import resolve
from accelerate.launching.select import select
from accelerate.options.config_file import parse
from accelerate.options.field import options
from accelerate.options.launch import LaunchPlan
from tests.reference.launch_cases import CASES

RECORDED = json.loads(Path("tests/reference/data/launch.json").read_text())["cases"]

OTHERWISE = {"OMP_NUM_THREADS"}  # cores are shared out here
DYNAMO_TOO: dict[str, tuple[str | None, str | None]] = {
    "ACCELERATE_DYNAMO_BACKEND": (None, "NO"),
    "ACCELERATE_DYNAMO_MODE": (None, "default"),
    "ACCELERATE_DYNAMO_USE_DYNAMIC": (None, "False"),
    "ACCELERATE_DYNAMO_USE_FULLGRAPH": (None, "False"),
    "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION": (None, "False"),
}
# case -> variable -> (there, here): a caller's own torch.compile variables do not reach DeepSpeed runs.
DIFFERENT = {"deepspeed": DYNAMO_TOO, "file: deepspeed": DYNAMO_TOO}


def ours(name: str) -> dict[str, str]:
    arguments, text = CASES[name]
    typed = launch_command_parser().parse_args([*shlex.split(arguments), "script.py"])
    file = None if text is None else parse(yaml.safe_load(text), "config.yaml")
    gpus = 2 if "num_processes: 2" in (text or "") or "num_processes 2" in arguments else 1
    machine = Machine(installed_gpus=gpus, gpus=gpus, evidence="made up", cores=4)
    found = resolve(typed_options(typed, options(LaunchPlan)), machine, {}, file)
    assert found.problems == ()
    return select(found.plan).environ(found.plan)


def canonical(text: str) -> str:
    """Return one spelling of a truth value: they are read in any."""
    return {"1": "true", "0": "false"}.get(text, text.lower())


@pytest.mark.parametrize("name", CASES)
def test_environment(name: str) -> None:
    there, here = RECORDED[name], ours(name)
    names = (there.keys() | here.keys()) - OTHERWISE
    differences = {
        variable: (there.get(variable), here.get(variable))
        for variable in sorted(names)
        if canonical(there.get(variable, "")) != canonical(here.get(variable, ""))
    }
    assert differences == DIFFERENT.get(name, {})
