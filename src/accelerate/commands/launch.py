"""`accelerate launch`: from arguments to a plan to processes. Called by accelerate_cli.py and from Python."""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from accelerate.errors import ConfigurationError, LaunchError, listing
from accelerate.launching.base import Launcher
from accelerate.launching.explain import explain
from accelerate.launching.machine import look
from accelerate.launching.plan import resolve
from accelerate.launching.select import select
from accelerate.launching.simple import SimpleLauncher
from accelerate.options.config_file import ConfigFile, default_config_file, read
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
        ConfigurationError: the arguments or the configuration file contradict each other or the machine, or
            there is no script; the message has all that is wrong.
        subprocess.CalledProcessError: the script failed; `returncode` is its exit status. With `--quiet`
            this ends the program with that status instead (SystemExit).
    """
    decided = _decide(args)
    if decided.explained(args):
        return
    status = decided.launcher.run(decided.checked())
    if status == 0:
        return
    if decided.plan.quiet:
        sys.exit(status)
    raise subprocess.CalledProcessError(status, decided.launcher.command(decided.plan))


def main(arguments: Sequence[str] | None = None, prog: str = "accelerate-launch") -> int:
    """Launch what the arguments of this process say and return the exit status, that of the script.

    One process takes the place of this one, if this one is the console script; errors are told in a line.
    """
    end_quietly_on_interrupt(prog)
    parser = launch_command_parser()
    parser.prog = prog
    parser.usage = f"{prog} [options] training_script [arguments of the script]"
    args = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    try:
        decided = _decide(args)
        if decided.explained(args):
            return 0
        plan, launcher = decided.checked(), decided.launcher
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


@dataclass(frozen=True, kw_only=True)
class _Decided:
    """A launch that is decided and not started.

    Attributes:
        plan: what is launched.
        launcher: what starts it.
        problems: all that speaks against starting it.
        warnings: what was asked for and has no effect.
        file: the configuration file that was read.
    """

    plan: LaunchPlan
    launcher: Launcher
    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    file: str | None

    def checked(self) -> LaunchPlan:
        """Return the plan, after the warnings; a ConfigurationError lists all problems."""
        if self.problems:
            raise ConfigurationError(listing(self.problems))
        if not self.plan.quiet:
            for warning in self.warnings:
                print(f"accelerate launch: {warning}", file=sys.stderr)
        return self.plan

    def explained(self, args: argparse.Namespace) -> bool:
        """Show the launch, if that is all that `args` ask for; its problems come after it, as an error."""
        if not getattr(args, "explain", None):
            return False
        from accelerate.commands.explain import show

        show(explain(self.plan, self.launcher, self.file), self.warnings)
        if self.problems:
            raise ConfigurationError(listing(self.problems))
        return True


def _decide(args: argparse.Namespace) -> _Decided:
    environ = env.snapshot()
    file = _file(args, environ)
    typed = typed_options(args, options(LaunchPlan))
    resolution = resolve(typed, look(environ), environ, file)
    launcher = select(resolution.plan)
    return _Decided(
        plan=resolution.plan,
        launcher=launcher,
        problems=(*resolution.problems, *launcher.problems(resolution.plan)),
        warnings=resolution.warnings,
        file=None if file is None else file.path,
    )


def _file(args: argparse.Namespace, environ: Mapping[str, str]) -> ConfigFile | None:
    """Return the configuration file that was asked for, else the default one if there is one.

    `--cpu` without a file is asked for by those who try something out: what was configured for the machine's
    accelerators is no part of that.
    """
    asked: str | None = getattr(args, "config_file", None)
    if asked is not None:
        return read(asked)
    default = default_config_file(environ)
    if getattr(args, "cpu", False) or not default.is_file():
        return None
    return read(default)


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
