"""`accelerate config default`: a configuration for this machine without questions; `write_basic_config`."""

import argparse
import json
from pathlib import Path
from typing import Any

from accelerate.commands.config.config_args import ClusterConfig
from accelerate.commands.config.config_args import default_json_config_file as _default_path
from accelerate.commands.config.config_utils import SubcommandHelpFormatter
from accelerate.commands.utils import CustomArgumentParser
from accelerate.compat import env
from accelerate.errors import ConfigurationError
from accelerate.launching.machine import Machine, look
from accelerate.options.config_file import write
from accelerate.options.enums import ComputeEnvironment, DistributedType

__all__ = ["basic_config", "default_command_parser", "default_config_command", "write_basic_config"]

_ABOUT = "Write a configuration for this machine without asking anything: all its GPUs, or its CPU."
_PRECISIONS = ("no", "fp16", "bf16", "fp8")


def write_basic_config(mixed_precision: str = "no", save_location: str = _default_path) -> Path | bool:
    """Write a configuration for all GPUs of this machine, or for its CPU where it has none.

    Args:
        mixed_precision: no, fp16, bf16 or fp8.
        save_location: where it is written, as JSON, which is YAML too.

    Returns:
        The path of the file; False when there is one already, which is left alone and said.

    Raises:
        ConfigurationError: `mixed_precision` is something else, or there can be no such file.
    """
    precision = mixed_precision.lower()
    if precision not in _PRECISIONS:
        raise ConfigurationError(f"mixed_precision={mixed_precision!r}: use one of {', '.join(_PRECISIONS)}")
    path = Path(save_location)
    if path.exists():
        print(
            f"Configuration already exists at {save_location}, will not override. Run `accelerate config` "
            "manually or pass a different `save_location`."
        )
        return False
    config = basic_config(precision, look(env.snapshot()))
    write(json.dumps(config.to_dict(), indent=2, sort_keys=True) + "\n", path)
    return path


def basic_config(mixed_precision: str, machine: Machine) -> ClusterConfig:
    """Return the configuration that uses all of a machine. Pure."""
    return ClusterConfig(
        compute_environment=ComputeEnvironment.LOCAL_MACHINE,
        distributed_type=DistributedType.MULTI_GPU if machine.gpus > 1 else DistributedType.NO,
        mixed_precision=mixed_precision,
        use_cpu=machine.gpus == 0,
        debug=False,
        num_processes=max(1, machine.gpus),
    )


def default_command_parser(parser: Any, parents: list[argparse.ArgumentParser]) -> CustomArgumentParser:
    """Return the parser of the command, added to the subparsers `parser`."""
    made: CustomArgumentParser = parser.add_parser(
        "default", parents=parents, help=_ABOUT, formatter_class=SubcommandHelpFormatter
    )
    made.add_argument(
        "--config_file",
        dest="save_location",
        default=_default_path,
        help="Where to write it. Default: the default configuration.",
    )
    made.add_argument(
        "--mixed_precision",
        choices=["no", "fp16", "bf16"],
        type=str,
        default="no",
        help="Precision that is written into it.",
    )
    made.set_defaults(func=default_config_command)
    return made


def default_config_command(args: argparse.Namespace) -> None:
    """Write the configuration and say where; a file that is there already is left alone."""
    path = write_basic_config(args.mixed_precision, args.save_location)
    if path:
        print(f"accelerate configuration saved at {path}")
