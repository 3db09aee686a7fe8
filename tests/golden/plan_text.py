"""Write plans/*.txt anew: `python -m tests.golden.plan_text` (or `make golden`). Review the difference.

Each file holds what a launch would do: every value that somebody or something decided, with its source, the
command, the environment, and what speaks against starting it.
"""

import shlex
import sys
from pathlib import Path

from accelerate.commands.launch import launch_command_parser
from accelerate.commands.utils import typed_options
from accelerate.launching.base import Launcher
from accelerate.launching.explain import explain
from accelerate.launching.plan import resolve
from accelerate.launching.sagemaker import SageMakerLauncher
from accelerate.launching.select import select
from accelerate.launching.unsupported import find_unsupported
from accelerate.options.config_file import ConfigFile, parse, parse_text
from accelerate.options.field import options
from accelerate.options.launch import LaunchPlan
from tests.golden.plan_cases import CASES, MACHINES, Case

__all__ = ["FOLDER", "render", "write_all"]

FOLDER = Path(__file__).with_name("plans")
CONFIGS = Path(__file__).with_name("configs")


def render(case: Case) -> str:
    """Return the plan of a case as text."""
    args = launch_command_parser().parse_args(shlex.split(case.arguments))
    file = None if case.file is None else parse(parse_text(CONFIGS / case.file), case.file)
    typed = typed_options(args, options(LaunchPlan))
    found = resolve(typed, MACHINES[case.machine], case.environ, file)
    launcher = _launcher(found.plan, file)
    explanation = explain(found.plan, launcher, None if file is None else file.path)
    on_sagemaker = file is not None and file.on_sagemaker
    problems = [*found.problems, *([] if on_sagemaker else find_unsupported(found.plan))]
    command = explanation.command_line().replace(sys.executable, "python")
    blocks = {
        "values": [
            f"{row.option} = {row.value} ({row.source})"
            for row in explanation.rows
            if row.source != "default"
        ],
        "command": [command],
        "environment": explanation.environ_lines(),
        "warnings": found.warnings,
        "problems": problems,
    }
    lines = [f"$ accelerate launch {case.arguments}", f"machine: {case.machine}"]
    lines += [f"file: {case.file}"] if case.file is not None else []
    lines += [f"caller: {name}={text}" for name, text in sorted(case.environ.items())]
    lines += [f"launcher: {launcher.name}"]
    for title, items in blocks.items():
        lines += ["", f"{title}:", *(f"  {item}" for item in items)] if items else []
    return "\n".join(lines) + "\n"


def _launcher(plan: LaunchPlan, file: ConfigFile | None) -> Launcher:
    if file is not None and file.on_sagemaker:
        return SageMakerLauncher({**file.rest, **file.values, "distributed_type": file.distributed_type})
    return select(plan)


def write_all() -> None:
    """Write every file, and remove those of cases that are gone."""
    FOLDER.mkdir(exist_ok=True)
    for name, case in CASES.items():
        (FOLDER / f"{name}.txt").write_text(render(case), encoding="utf-8")
    for file in FOLDER.glob("*.txt"):
        if file.stem not in CASES:
            file.unlink()


if __name__ == "__main__":
    write_all()
