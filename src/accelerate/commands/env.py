"""`accelerate env`: what this machine has, as text for a report. Reads files instead of importing torch."""

import argparse
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accelerate import __version__
from accelerate.commands.utils import CustomArgumentParser, print_error
from accelerate.compat import env
from accelerate.errors import ConfigurationError
from accelerate.launching.machine import Machine, TorchBuild, look, torch_build
from accelerate.options.config_file import default_config_file, parse_text

__all__ = ["env_command", "env_command_parser", "main"]

_GIB = 1024**3


def env_command_parser(subparsers: Any = None) -> CustomArgumentParser:
    """Return the parser of `accelerate env`, added to `subparsers` unless that is None."""
    about = "Print what this machine has and the default configuration, for bug reports."
    parser: CustomArgumentParser = (
        CustomArgumentParser("accelerate env", description=about)
        if subparsers is None
        else subparsers.add_parser("env", description=about)
    )
    parser.add_argument(
        "--config_file", default=None, help="Configuration file to print, not the default one."
    )
    parser.add_argument("--json", action="store_true", help="Print JSON, for programs.")
    if subparsers is not None:
        parser.set_defaults(func=env_command)
    return parser


def env_command(args: argparse.Namespace) -> dict[str, Any]:
    """Print the facts of this machine and return them by name.

    Raises:
        ConfigurationError: `args.config_file` names a file that is not there, or that cannot be read.
    """
    environ = env.snapshot()
    facts: dict[str, Any] = _facts(environ)
    title, path = _configuration_file(args.config_file, environ)
    content = None if path is None else parse_text(path)
    if getattr(args, "json", None):
        print(json.dumps(facts | {title: content}, indent=2, default=str))
        return facts | {title: content}
    config = "\tNot found" if path is None else _indented(path)
    print("\nCopy-and-paste the text below in your GitHub issue\n")
    print("\n".join(f"- {name}: {value}" for name, value in facts.items()))
    print(f"- {title}:\n{config}")
    return facts | {title: config}


def main(arguments: Sequence[str] | None = None, prog: str = "accelerate env") -> int:
    """Print the facts and return the exit status."""
    parser = env_command_parser()
    parser.prog = prog
    args = parser.parse_args(arguments)
    try:
        env_command(args)
    except ConfigurationError as error:
        print_error(prog, error)
        return 1
    return 0


def _facts(environ: Mapping[str, str]) -> dict[str, str]:
    build = torch_build()
    machine = look(environ, build=build)
    return {
        "`Accelerate` version": __version__,
        "Platform": platform.platform(),
        "`accelerate` bash location": shutil.which("accelerate") or "Not found",
        "Python version": platform.python_version(),
        "Numpy version": _version("numpy"),
        "PyTorch version": build.version or "Not installed",
        "PyTorch accelerator": _accelerator(build, machine),
        "System RAM": _memory(),
        **({"GPU type": _gpu_names(Path("/"))} if machine.gpus else {}),
    }


def _version(distribution: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return "Not installed"


def _accelerator(build: TorchBuild, machine: Machine) -> str:
    if sys.platform == "darwin" and platform.machine() == "arm64":
        return "MPS"
    if machine.gpus == 0 or build.platform is None:
        return f"N/A ({machine.evidence})"
    return f"{build.platform} ({machine.gpus} visible)"


def _memory() -> str:
    try:
        installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return "unknown"
    return f"{installed / _GIB:.2f} GB"


def _gpu_names(root: Path) -> str:
    """Return the models that the NVIDIA driver lists, each once."""
    names = []
    for file in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        model = re.search(r"^Model:\s*(.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
        names += [model[1].strip()] if model else []
    return ", ".join(dict.fromkeys(names)) or "unknown"


def _configuration_file(asked: str | None, environ: Mapping[str, str]) -> tuple[str, Path | None]:
    """Return a title, and the path of the configuration file; None where there is no default one."""
    if asked is not None:
        return f"`Accelerate` config passed ({asked})", Path(asked)
    default = default_config_file(environ)
    return "`Accelerate` default config", default if default.is_file() else None


def _indented(path: Path) -> str:
    return "\n".join(f"\t{line}" for line in path.read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    sys.exit(main())
