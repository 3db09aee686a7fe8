"""Whether the script, module or program that is to be launched is there. Called by Launcher.validate."""

import importlib.machinery
import importlib.util
import os
import shutil
import sys
from difflib import get_close_matches
from pathlib import Path

from accelerate.errors import ConfigurationError
from accelerate.options.launch import LaunchPlan

__all__ = ["check_target"]


def check_target(plan: LaunchPlan, path: str | None) -> None:
    """Refuse a script, module or program that cannot be started.

    Args:
        plan: the launch.
        path: folders in which programs are looked for, as in the variable PATH.

    Raises:
        ConfigurationError: it is not there; the message names what looks like it.
    """
    if plan.module:
        _check_module(plan.training_script)
    elif plan.no_python:
        _check_program(plan.training_script, path)
    else:
        _check_script(plan)


def _check_script(plan: LaunchPlan) -> None:
    script, file = plan.training_script, Path(plan.training_script)
    if script == "-":
        if plan.distributed:
            raise ConfigurationError(
                "-: a script on standard input can be read by one process only; write it to a file"
            )
        return
    if file.is_dir() and not (file / "__main__.py").is_file():
        raise ConfigurationError(f"{script} is a folder without a __main__.py: give the path of a script")
    if file.exists():
        return
    # A flag that the parser does not know leaves its value behind as the script.
    raise ConfigurationError(f"there is no script {script} (looked in {os.getcwd()}){_similar(file)}")


def _similar(missing: Path) -> str:
    folder = missing.parent
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    near = get_close_matches(missing.name, [name for name in names if name.endswith(".py")], n=1)
    return f"; did you mean {folder / near[0]}?" if near else ""


def _check_module(module: str) -> None:
    top = module.partition(".")[0]
    # `python -m` looks in the working folder first, which this process does not have on its own path.
    found = importlib.machinery.PathFinder.find_spec(top, [os.getcwd(), *sys.path])
    if found is None and top not in sys.builtin_module_names and importlib.util.find_spec(top) is None:
        raise ConfigurationError(
            f"-m {module}: there is no module {top} in {os.getcwd()} or among the installed ones"
        )


def _check_program(program: str, path: str | None) -> None:
    if shutil.which(program, path=path) is None:
        hint = "" if os.sep in program else "; a program in this folder is written ./" + program
        raise ConfigurationError(
            f"--no_python {program}: there is no such program that may be executed{hint}"
        )
