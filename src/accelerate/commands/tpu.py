"""`accelerate tpu-config`: runs start-up commands on the machines of a TPU pod through gcloud."""

import argparse
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from accelerate.commands.utils import CustomArgumentParser, print_error
from accelerate.compat import env
from accelerate.errors import ConfigurationError, listing
from accelerate.options.config_file import ConfigFile, default_config_file, read

__all__ = ["main", "pod_command", "tpu_command_launcher", "tpu_command_parser"]

_ABOUT = "Run commands on all machines of a TPU pod, to prepare them for training."


def tpu_command_parser(subparsers: Any = None) -> CustomArgumentParser:
    """Return the parser of `accelerate tpu-config`, added to `subparsers` unless that is None."""
    parser: CustomArgumentParser = (
        CustomArgumentParser("accelerate tpu-config", description=_ABOUT)
        if subparsers is None
        else subparsers.add_parser("tpu-config", description=_ABOUT)
    )
    config = parser.add_argument_group("Config Arguments")
    config.add_argument("--config_file", type=str, default=None, help="Configuration file with defaults.")
    config.add_argument("--tpu_name", default=None, help="Name of the pod. Default: that of the file.")
    config.add_argument("--tpu_zone", default=None, help="Zone of the pod. Default: that of the file.")
    pod = parser.add_argument_group("TPU Arguments")
    pod.add_argument("--use_alpha", action="store_true", default=False, help="Call `gcloud alpha`.")
    pod.add_argument("--command_file", default=None, help="File with commands, one a line.")
    pod.add_argument("--command", action="append", nargs="+", help="A command; repeat the option for more.")
    pod.add_argument(
        "--install_accelerate",
        action="store_true",
        default=False,
        help="Install accelerate before the commands.",
    )
    pod.add_argument(
        "--accelerate_version",
        default="latest",
        help="Which one: latest (default) or a version number.",
    )
    pod.add_argument("--debug", action="store_true", default=False, help="Print the call and do not make it.")
    if subparsers is not None:
        parser.set_defaults(func=tpu_command_launcher)
    return parser


def tpu_command_launcher(args: argparse.Namespace) -> None:
    """Run the commands on every machine of the pod; with `args.debug`, print the call instead.

    Raises:
        ConfigurationError: there is no pod or no command; all that is missing is listed.
        subprocess.CalledProcessError: gcloud failed.
    """
    command = pod_command(args, _file(args.config_file))
    if args.debug:
        print(f"Running {shlex.join(command)}")
        return
    try:
        subprocess.run(command, check=True)
    except FileNotFoundError:
        raise ConfigurationError(
            "gcloud is not installed here: install the Google Cloud CLI, or pass --debug to see the call"
        ) from None
    print("Successfully setup pod.")


def pod_command(args: argparse.Namespace, file: ConfigFile | None) -> list[str]:
    """Return the argument list of the call to gcloud. It reads the command file, and does nothing else.

    Args:
        args: what the parser gave.
        file: the configuration file; None for none.

    Raises:
        ConfigurationError: there is no pod or no command; all that is missing is listed.
    """
    file = file or ConfigFile(path="")
    name = str(args.tpu_name or file.values.get("tpu_name") or "")
    zone = str(args.tpu_zone or file.values.get("tpu_zone") or "")
    typed = [" ".join(words) for words in args.command or []]
    command_file = args.command_file or (None if typed else file.rest.get("command_file"))
    commands = typed or ([] if command_file else list(file.rest.get("commands") or []))
    problems = [*file.problems, *_problems(args, name, zone, command_file, commands)]
    if problems:
        raise ConfigurationError(listing(problems))
    lines = ["cd /usr/share"]
    if args.install_accelerate:
        lines.append(f"pip install {_requirement(args.accelerate_version)}")
    lines += _lines(Path(command_file)) if command_file else commands
    gcloud = ["gcloud", *(["alpha"] if args.use_alpha else []), "compute", "tpus", "tpu-vm", "ssh"]
    return [*gcloud, name, "--zone", zone, "--command", "; ".join(lines), "--worker", "all"]


def _problems(
    args: argparse.Namespace, name: str, zone: str, command_file: str | None, commands: list[str]
) -> Iterator[str]:
    if not name:
        yield "--tpu_name: pass the name of the pod, or write tpu_name into the file"
    if not zone:
        yield "--tpu_zone: pass the zone of the pod, or write tpu_zone into the file"
    if command_file and not Path(command_file).is_file():
        yield f"--command_file {command_file}: there is no such file"
    if not (command_file or commands or args.install_accelerate):
        yield "--command: pass a command, --command_file or --install_accelerate"
    if args.install_accelerate and args.accelerate_version == "dev":
        yield "--accelerate_version dev: give a version number, or install from your checkout with --command"


def main(arguments: Sequence[str] | None = None, prog: str = "accelerate tpu-config") -> int:
    """Run the command and return the exit status."""
    parser = tpu_command_parser()
    parser.prog = prog
    args = parser.parse_args(arguments)
    try:
        tpu_command_launcher(args)
    except ConfigurationError as error:
        print_error(prog, error)
        return 1
    except subprocess.CalledProcessError as error:
        return error.returncode
    return 0


def _file(asked: str | None) -> ConfigFile | None:
    default = default_config_file(env.snapshot())
    if asked is None and not default.is_file():
        return None
    return read(default if asked is None else asked)


def _lines(file: Path) -> list[str]:
    return [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]


def _requirement(version: str) -> str:
    """Return what pip is to install."""
    return "accelerate -U" if version == "latest" else f"accelerate=={version}"


if __name__ == "__main__":
    sys.exit(main())
