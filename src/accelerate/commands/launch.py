"""`accelerate launch`: from arguments to a plan to processes. Called by accelerate_cli.py and from Python."""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from accelerate.commands.utils import (
    CustomArgumentParser,
    HelpFormatter,
    add_options,
    end_quietly_on_interrupt,
    is_console_script,
    print_error,
    typed_options,
)
from accelerate.compat import env
from accelerate.compat.streams import open_standard_streams
from accelerate.errors import ConfigurationError, LaunchError, listing
from accelerate.launching.base import Launcher
from accelerate.launching.elastic import ElasticLauncher
from accelerate.launching.machine import look
from accelerate.launching.plan import resolve
from accelerate.launching.select import select
from accelerate.launching.simple import SimpleLauncher
from accelerate.options.config_file import ConfigFile, default_config_file, read
from accelerate.options.field import options
from accelerate.options.launch import LaunchPlan

if TYPE_CHECKING:
    from accelerate.commands.config.config_args import SageMakerConfig

__all__ = [
    "CustomHelpFormatter",
    "clean_option",
    "deepspeed_launcher",
    "launch_command",
    "launch_command_parser",
    "main",
    "multi_gpu_launcher",
    "options_to_group",
    "sagemaker_launcher",
    "simple_launcher",
    "tpu_launcher",
    "tpu_pod_launcher",
]

_INTERRUPTED = 130
_ABOUT = "Launch a script on one or several processes. Options may be written with dashes: --num-processes."

# Option that chooses a platform -> heading of the options that belong to it.
options_to_group = {
    "multi_gpu": "Distributed GPUs",
    "tpu": "TPU",
    "use_deepspeed": "DeepSpeed Arguments",
    "use_fsdp": "FSDP Arguments",
    "use_megatron_lm": "Megatron-LM Arguments",
    "fp8_backend": "FP8 Arguments",
}


def clean_option(option: str) -> str | None:
    """Return the name that stands behind a long flag; None for anything else."""
    return option[2:].replace("-", "_") if option.startswith("--") else None


class CustomHelpFormatter(HelpFormatter):
    """Shows all options when only help is asked for, and else what belongs to the flags beside `--help`.

    Attributes:
        titles: headings that are always shown.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.titles = [
            "Hardware Selection Arguments",
            "Resource Selection Arguments",
            "Training Paradigm Arguments",
            "positional arguments",
            "options",
        ]
        words = sys.argv[2:] if sys.argv[1:2] == ["launch"] else sys.argv[1:]
        asked = {clean_option(word.partition("=")[0]) for word in words}
        self._shown = [*self.titles, *(title for name, title in options_to_group.items() if name in asked)]
        self._all = all(word in ("-h", "--help") for word in words)

    def add_argument(self, action: argparse.Action) -> None:
        """Add an option, if its heading is shown."""
        heading = getattr(self._current_section, "heading", None)
        if self._all or heading is None or heading in self._shown:
            super().add_argument(action)


def launch_command_parser(subparsers: Any = None) -> CustomArgumentParser:
    """Return the parser of `accelerate launch`.

    Args:
        subparsers: what `add_subparsers()` of a `CustomArgumentParser` gave, to add the command to it;
            None for a parser that stands alone.
    """
    shared: dict[str, Any] = {
        "description": _ABOUT,
        "allow_abbrev": False,
        "remembers": True,
        "formatter_class": CustomHelpFormatter,
    }
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
    if not decided.explained(args):
        _run(decided)


def main(arguments: Sequence[str] | None = None, prog: str = "accelerate-launch") -> int:
    """Launch what the arguments of this process say and return the exit status, that of the script.

    One process takes the place of this one, if this one is the console script; errors are told in a line.
    """
    if is_console_script():
        open_standard_streams()
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


def simple_launcher(args: argparse.Namespace) -> None:
    """Launch one process, whatever `args` say about others; see `launch_command` for what is raised."""
    _run(_decide(args, SimpleLauncher()))


def multi_gpu_launcher(args: argparse.Namespace) -> None:
    """Launch ranks through torch elastic; see `launch_command` for what is raised."""
    _run(_decide(args, ElasticLauncher()))


def deepspeed_launcher(args: argparse.Namespace) -> None:
    """Launch with DeepSpeed: its own launcher reaches other machines, torch elastic starts one machine's."""
    _run(_decide(args))


def tpu_launcher(args: argparse.Namespace) -> None:
    """Call the script's function in one process per TPU core of this machine.

    Raises:
        MissingPackageError: torch_xla is not installed.
    """
    from accelerate.launching import tpu

    tpu.run_processes(_decide(args).plan)


def tpu_pod_launcher(args: argparse.Namespace) -> None:
    """Run the launch on every machine of a TPU pod.

    Raises:
        ConfigurationError: no pod is named.
        subprocess.CalledProcessError: a machine failed.
    """
    from accelerate.launching import tpu

    subprocess.run(tpu.pod_command(_decide(args).plan), check=True)


def sagemaker_launcher(sagemaker_config: "SageMakerConfig", args: argparse.Namespace) -> None:
    """Submit a training job to Amazon SageMaker, and wait for it.

    Args:
        sagemaker_config: machine type, role, versions.
        args: what the parser gave.

    Raises:
        MissingPackageError: the package sagemaker is not installed.
        ConfigurationError: what SageMaker needs is missing.
    """
    from accelerate.launching.sagemaker import SageMakerLauncher

    _run(_decide(args, SageMakerLauncher(sagemaker_config.to_dict())))


def _run(decided: "_Decided") -> None:
    plan, launcher = decided.checked(), decided.launcher
    status = launcher.run(plan)
    if status == 0:
        return
    if plan.quiet:
        sys.exit(status)
    raise subprocess.CalledProcessError(status, launcher.command(plan))


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
        from accelerate.launching.explain import explain

        local = self.launcher.local_environ(self.plan)
        show(explain(self.plan, self.launcher, self.file, local), self.warnings)
        if self.problems:
            raise ConfigurationError(listing(self.problems))
        return True


def _decide(args: argparse.Namespace, launcher: Launcher | None = None) -> _Decided:
    """Return what `args` amount to on this machine, with a given launcher or the one that is made for it."""
    environ = env.snapshot()
    file = _file(args, environ)
    typed = typed_options(args, options(LaunchPlan))
    resolution = resolve(typed, look(environ), environ, file)
    if launcher is None:
        launcher = _on_sagemaker(file) or select(resolution.plan)
    return _Decided(
        plan=resolution.plan,
        launcher=launcher,
        problems=(*resolution.problems, *launcher.problems(resolution.plan)),
        warnings=resolution.warnings,
        file=None if file is None else file.path,
    )


def _on_sagemaker(file: ConfigFile | None) -> Launcher | None:
    """Return the launcher for a file that says AMAZON_SAGEMAKER; None for any other."""
    if file is None or not file.on_sagemaker:
        return None
    from accelerate.launching.sagemaker import SageMakerLauncher

    return SageMakerLauncher({**file.rest, **file.values, "distributed_type": file.distributed_type})


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
    """Say in a line each what was decided for the user, where it is more than one ordinary process."""
    # Then a job or a list has decided, and not the GPUs of this machine.
    placed = plan.slurm not in (None, "no") or plan.mpirun_hostfile is not None
    if plan.quiet or plan.num_processes == 1 or placed:
        return
    if plan.sources["num_cpu_threads_per_process"] == "detected" and env.get("OMP_NUM_THREADS") is None:
        print(
            f"accelerate launch: {plan.num_cpu_threads_per_process} thread(s) for each process "
            "(OMP_NUM_THREADS; choose with --num_cpu_threads_per_process)",
            file=sys.stderr,
        )
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
