"""`accelerate config`: asks, writes the configuration file, shows it and how to launch with it."""

import argparse
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from accelerate.commands.config.cluster import get_cluster_input
from accelerate.commands.config.config_args import (
    ClusterConfig,
    SageMakerConfig,
    default_config_file,
)
from accelerate.commands.config.config_utils import SubcommandHelpFormatter
from accelerate.commands.config.default import default_command_parser
from accelerate.commands.config.interview import interview
from accelerate.commands.config.sagemaker import get_sagemaker_input
from accelerate.commands.config.update import update_command_parser
from accelerate.commands.utils import CustomArgumentParser, print_error
from accelerate.errors import ConfigurationError
from accelerate.options.config_file import to_text, write

__all__ = ["config_command", "config_command_parser", "get_config_parser", "get_user_input", "main"]

_ABOUT = (
    "Ask how this machine trains, and write the answers into a configuration file for `accelerate launch`."
)
_PLACES: Mapping[str, Callable[[], ClusterConfig | SageMakerConfig]] = {
    "This machine": get_cluster_input,
    "AWS (Amazon SageMaker)": get_sagemaker_input,
}
_INTERRUPTED = 130


def get_user_input() -> ClusterConfig | SageMakerConfig:
    """Ask everything, and return the configuration.

    Raises:
        ConfigurationError: standard input has ended before the last answer.
    """
    place = interview().choose("In which compute environment are you running?", list(_PLACES), "This machine")
    return _PLACES[place]()


def config_command_parser(subparsers: Any = None) -> CustomArgumentParser:
    """Return the parser of `accelerate config`, added to `subparsers` unless that is None."""
    parser: CustomArgumentParser = (
        CustomArgumentParser("accelerate config", description=_ABOUT)
        if subparsers is None
        else subparsers.add_parser("config", description=_ABOUT)
    )
    parser.add_argument(
        "--config_file",
        default=None,
        help="Where to write the answers: JSON if the name ends in .json, else YAML. Default: the file that "
        "`accelerate launch` reads by itself.",
    )
    if subparsers is not None:
        parser.set_defaults(func=config_command)
    return parser


def get_config_parser(subparsers: Any = None) -> CustomArgumentParser:
    """Return the parser of `accelerate config` with its subcommands, added to `subparsers` unless None."""
    parent = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser = config_command_parser(subparsers)
    parser.formatter_class = SubcommandHelpFormatter
    parser.set_defaults(func=config_command)
    subcommands = parser.add_subparsers(title="subcommands", dest="subcommand")
    default_command_parser(subcommands, parents=[parent])
    update_command_parser(subcommands, parents=[parent])
    return parser


def config_command(args: argparse.Namespace) -> None:
    """Ask, write the file, and show it and the command that uses it.

    Raises:
        ConfigurationError: standard input has ended before the last answer, and nothing is written; or the
            file cannot be written.
    """
    config = get_user_input()
    path: str = default_config_file if args.config_file is None else args.config_file
    text = to_text(config.to_dict(), path)
    print(f"\n{text}")  # first of all: the answers are not lost when the file cannot be written
    write(text, path)
    print(f"accelerate configuration saved at {path}")
    chosen = "" if path == default_config_file else f"--config_file {shlex.quote(path)} "
    print(f"Launch with it: accelerate launch {chosen}script.py")


def main(arguments: Sequence[str] | None = None, prog: str = "accelerate-config") -> int:
    """Run `accelerate config` or a subcommand of it, and return the exit status."""
    parser = get_config_parser()
    parser.prog = prog
    args = parser.parse_args(arguments)
    try:
        args.func(args)
    except ConfigurationError as error:
        print_error(prog, error)
        return 1
    except KeyboardInterrupt:
        print(f"\n{prog}: interrupted, nothing was written", file=sys.stderr)
        return _INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
