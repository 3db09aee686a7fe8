"""`accelerate test`: launch the checks of this installation. Called by accelerate_cli.py and from Python."""

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accelerate.commands.launch import launch_command
from accelerate.commands.utils import CustomArgumentParser, add_options, print_error, typed_options
from accelerate.errors import ConfigurationError, LaunchError
from accelerate.options.field import OptionInfo, options
from accelerate.options.launch import LaunchPlan

__all__ = ["main", "test_command", "test_command_parser"]

_CHECKS = Path(__file__).resolve().parents[1] / "test_utils" / "scripts" / "__main__.py"
_ABOUT_THE_SCRIPT = frozenset({"training_script", "training_script_args", "module", "no_python"})
_SUCCESS = "Test is a success! You are ready for your distributed training!"


def test_command_parser(subparsers: Any = None) -> CustomArgumentParser:
    """Return the parser of `accelerate test`, added to `subparsers` unless that is None."""
    about = "Check this installation: start processes as `accelerate launch` does and let them work together."
    shared: dict[str, Any] = {"description": about, "allow_abbrev": False, "remembers": True}
    parser: CustomArgumentParser = (
        CustomArgumentParser("accelerate test", **shared)
        if subparsers is None
        else subparsers.add_parser("test", **shared)
    )
    add_options(parser, _launch_options())
    if subparsers is not None:
        parser.set_defaults(func=test_command)
    return parser


def test_command(args: argparse.Namespace) -> None:
    """Launch the checks, which print a line each, and return when all is well.

    Args:
        args: what `test_command_parser().parse_args()` gave.

    Raises:
        ConfigurationError: the arguments contradict each other or the machine.
        subprocess.CalledProcessError: a check failed.
    """
    print("\nRunning: ", shlex.join(_shown_command(args)), flush=True)
    launch_command(argparse.Namespace(**vars(args), training_script=str(_CHECKS), training_script_args=[]))
    print(_SUCCESS, flush=True)


def main(arguments: Sequence[str] | None = None, prog: str = "accelerate test") -> int:
    """Launch the checks and return the exit status, that of a failing one or 0."""
    parser = test_command_parser()
    parser.prog = prog
    args = parser.parse_args(arguments)
    try:
        test_command(args)
    except ConfigurationError as error:
        print_error(prog, error)
        return 2
    except LaunchError as error:
        print_error(prog, error)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"{prog}: a check failed, see above (exit status {error.returncode})", file=sys.stderr)
        return error.returncode
    return 0


def _launch_options() -> list[OptionInfo]:
    declared = options(LaunchPlan)
    return [info for info in declared if info.flags and info.name not in _ABOUT_THE_SCRIPT]


def _shown_command(args: argparse.Namespace) -> list[str]:
    """Return the `accelerate launch` that does the same, for users to run again."""
    declared = _launch_options()
    flag = {info.name: info.flags[-1] for info in declared}
    command = ["accelerate", "launch"]
    for name, value in typed_options(args, declared).items():
        command += [flag[name]] if value is True else [flag[name], str(value)]
    return [*command, str(_CHECKS)]


if __name__ == "__main__":
    sys.exit(main())
