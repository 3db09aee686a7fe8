"""`accelerate launch`: from arguments to a plan to processes. Called by accelerate_cli.py and from Python."""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from accelerate.commands.utils import (
    CustomArgumentParser,
    add_options,
    end_quietly_on_interrupt,
    is_console_script,
    print_error,
    typed_options,
)
from accelerate.compat import env
from accelerate.errors import ConfigurationError, LaunchError
from accelerate.launching.machine import look
from accelerate.launching.plan import resolve
from accelerate.launching.select import select
from accelerate.launching.simple import SimpleLauncher
from accelerate.options.field import options
from accelerate.options.launch import LaunchPlan

__all__ = ["launch_command", "launch_command_parser", "main"]

_INTERRUPTED = 130


def launch_command_parser(subparsers: Any = None) -> CustomArgumentParser:
    """Return the parser of `accelerate launch`.

    Args:
        subparsers: what `add_subparsers()` of a `CustomArgumentParser` gave, to add the command to it;
            None for a parser that stands alone.
    """
    about = (
        "Launch a script on one or several processes. Options may be written with dashes: --num-processes."
    )
    shared: dict[str, Any] = {"description": about, "allow_abbrev": False, "remembers": True}
    parser: CustomArgumentParser = (
        CustomArgumentParser("accelerate launch", **shared)
        if subparsers is None
        else subparsers.add_parser("launch", **shared)
    )
    parser.usage = f"{parser.prog} [options] training_script [arguments of the script]"
    add_options(parser, options(LaunchPlan))
    if subparsers is not None:
        parser.set_defaults(func=launch_command)
    return parser


def launch_command(args: argparse.Namespace) -> None:
    """Launch what `args` say, from Python: start processes, wait for them and return when all is well.

    Args:
        args: what `launch_command_parser().parse_args()` gave; values that were set on it by hand count too.

    Raises:
        ConfigurationError: the arguments contradict each other or the machine, or there is no script.
        subprocess.CalledProcessError: the script failed; `returncode` is its exit status. With `--quiet`
            this ends the program with that status instead (SystemExit).
    """
    plan = _plan(args)
    launcher = select(plan)
    launcher.validate(plan)
    status = launcher.run(plan)
    if status == 0:
        return
    if plan.quiet:
        sys.exit(status)
    raise subprocess.CalledProcessError(status, launcher.command(plan))


def main(arguments: Sequence[str] | None = None, prog: str = "accelerate-launch") -> int:
    """Launch what the arguments of this process say and return the exit status, that of the script.

    One process takes the place of this one, if this one is the console script; errors are told in a line.
    """
    end_quietly_on_interrupt(prog)
    parser = launch_command_parser()
    parser.prog = prog
    parser.usage = f"{prog} [options] training_script [arguments of the script]"
    args = parser.parse_args(arguments)
    try:
        plan = _plan(args)
        launcher = select(plan)
        launcher.validate(plan)
        _tell_defaults(plan)
        if not is_console_script():
            return launcher.run(plan)
        if isinstance(launcher, SimpleLauncher):
            launcher.replace_this_process(plan)
        _leave(launcher.run(plan))
    except ConfigurationError as error:
        print_error(prog, error)
        return 2
    except LaunchError as error:
        print_error(prog, error)
        return 1
    except KeyboardInterrupt:
        print(f"{prog}: interrupted", file=sys.stderr)
        return _INTERRUPTED


def _plan(args: argparse.Namespace) -> LaunchPlan:
    environ = env.snapshot()
    return resolve(typed_options(args, options(LaunchPlan)), look(environ), environ)


def _tell_defaults(plan: LaunchPlan) -> None:
    """Say in one line what was decided for the user, where it is more than one ordinary process."""
    if plan.quiet or plan.num_processes == 1:
        return
    if plan.sources["num_processes"] == "detected":
        decided = f"{plan.num_processes} processes, one per GPU (choose with --num_processes)"
    elif plan.sources["cpu"] == "detected":
        decided = f"no GPU found, {plan.num_processes} processes on the CPU (as with --cpu)"
    else:
        return
    print(f"accelerate launch: {decided}", file=sys.stderr)


def _leave(status: int) -> NoReturn:
    """End this process, which has nothing left to tidy up: unloading torch would take half a second."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
