"""`accelerate config` and its subcommands `default` and `update`. Called by accelerate_cli.py."""

from accelerate.commands.config.config import config_command_parser, get_config_parser, main
from accelerate.commands.config.config_args import default_config_file, load_config_from_file
from accelerate.commands.config.default import default_command_parser
from accelerate.commands.config.update import update_command_parser

__all__ = [
    "config_command_parser",
    "default_command_parser",
    "default_config_file",
    "get_config_parser",
    "load_config_from_file",
    "main",
    "update_command_parser",
]
