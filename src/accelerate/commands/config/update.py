"""`accelerate config update`: rewrites a configuration file with present keys and defaults."""

import argparse
import os
from typing import Any

from accelerate.commands.config.config_args import default_config_file, load_config_from_file
from accelerate.commands.config.config_utils import SubcommandHelpFormatter
from accelerate.commands.utils import CustomArgumentParser
from accelerate.errors import ConfigurationError

__all__ = ["update_command_parser", "update_config", "update_config_command"]

_ABOUT = (
    "Read a configuration file and write it again, with present keys and with defaults for what is missing."
)


def update_config(args: argparse.Namespace) -> str:
    """Rewrite the configuration file that `args.config_file` names, the default one when it is None.

    Returns:
        The path of the file.

    Raises:
        ConfigurationError: there is no such file, or it cannot be read.
    """
    path: str = default_config_file if args.config_file is None else args.config_file
    if not os.path.exists(path):
        raise ConfigurationError(
            f"the configuration file {path} does not exist: write one with `accelerate config`"
        )
    load_config_from_file(path).save(path)
    return path


def update_command_parser(parser: Any, parents: list[argparse.ArgumentParser]) -> CustomArgumentParser:
    """Return the parser of the command, added to the subparsers `parser`."""
    made: CustomArgumentParser = parser.add_parser(
        "update", parents=parents, help=_ABOUT, formatter_class=SubcommandHelpFormatter
    )
    made.add_argument("--config_file", default=None, help="The file. Default: the default configuration.")
    made.set_defaults(func=update_config_command)
    return made


def update_config_command(args: argparse.Namespace) -> None:
    """Rewrite the configuration file and say so."""
    print(f"Successfully updated the configuration file at {update_config(args)}.")
