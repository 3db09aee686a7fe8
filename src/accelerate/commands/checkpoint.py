"""`accelerate checkpoint`: what checkpoints there are, and whether they are whole. Works without torch."""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate.checkpoint.space import size_in_words
from accelerate.commands.utils import CustomArgumentParser, print_error
from accelerate.errors import CheckpointError, ConfigurationError

if TYPE_CHECKING:
    from accelerate.checkpoint.manifest import Manifest

__all__ = ["checkpoint_command", "checkpoint_command_parser", "main"]

_WHOLE, _DAMAGED, _UNKNOWN, _INTERRUPTED = "whole", "damaged", "unknown", "interrupted"
_AGES = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))  # seconds


@dataclass(frozen=True, kw_only=True)
class Found:
    """One checkpoint.

    Attributes:
        folder: where it is.
        state: "whole", "damaged", "unknown" (no manifest: another version wrote it) or "interrupted" (the
            next load or save will finish publishing it).
        problems: what is wrong, a sentence each.
        size: bytes of its files.
        step: the Accelerator's counter; None without manifest, as are the next three.
        world_size: number of ranks that saved.
        created: when, in seconds since 1970.
        versions: of what wrote it.
        files: name -> size in bytes and crc32 in hexadecimal digits.
    """

    folder: str
    state: str
    problems: Sequence[str]
    size: int
    step: int | None = None
    world_size: int | None = None
    created: float | None = None
    versions: Mapping[str, str] | None = None
    files: Mapping[str, Mapping[str, Any]] | None = None


def checkpoint_command_parser(subparsers: Any = None) -> CustomArgumentParser:
    """Return the parser of `accelerate checkpoint`, added to `subparsers` unless that is None."""
    text = "List, show and verify checkpoints."
    parser: CustomArgumentParser = (
        CustomArgumentParser("accelerate checkpoint", description=text)
        if subparsers is None
        else subparsers.add_parser("checkpoint", description=text)
    )
    actions = parser.add_subparsers(dest="action", metavar="<action>", required=True)
    for name, purpose, several, default in (
        ("ls", "List the checkpoints in a folder; sizes of files are compared.", False, "."),
        ("show", "Show one checkpoint with its files; sizes are compared.", False, None),
        ("verify", "Read checkpoints, and compare every file with its checksum.", True, None),
    ):
        action = actions.add_parser(name, help=purpose, description=purpose)
        where = "a project's folder, or one with checkpoints in it" if several or default else "a checkpoint"
        nargs = "+" if several else "?" if default else None
        action.add_argument("folder", nargs=nargs, default=default, help=f"{where}.")
        action.add_argument("--json", action="store_true", help="Print JSON.")
    if subparsers is not None:
        parser.set_defaults(func=checkpoint_command)
    return parser


def checkpoint_command(args: argparse.Namespace) -> int:
    """Do what was asked for; return the exit status: 1 when `verify` finds one that is not whole.

    Raises:
        ConfigurationError: there is no such folder, or no checkpoint in it.
    """
    verify = args.action == "verify"
    named = args.folder if isinstance(args.folder, list) else [args.folder]
    places = [Path(text) for text in named] if args.action == "show" else _places(named)
    for place in places:
        if not place.is_dir():
            raise ConfigurationError(f"{place}: there is no such folder")
        if not _is_checkpoint(place):
            raise ConfigurationError(f"{place}: that is no checkpoint; `ls` lists those that are in a folder")
    found = [_look(place, contents=verify) for place in places]
    if args.json:
        items = [asdict(item) for item in found]
        print(json.dumps(items[0] if args.action == "show" else items, indent=1))
    elif args.action == "show":
        _print_one(found[0])
    else:
        _print_table(found)
    return int(verify and any(item.state != _WHOLE for item in found))


def main(arguments: Sequence[str] | None = None, prog: str = "accelerate checkpoint") -> int:
    """Run the command and return the exit status."""
    parser = checkpoint_command_parser()
    parser.prog = prog
    args = parser.parse_args(arguments)
    try:
        return checkpoint_command(args)
    except ConfigurationError as error:
        print_error(prog, error)
        return 1


def _places(named: Sequence[str]) -> list[Path]:
    """Return the folders of checkpoints that some folders are, or hold; the newest first."""
    found = []
    for text in named:
        folder = Path(text)
        if not folder.is_dir():
            raise ConfigurationError(f"{folder}: there is no such folder")
        inside = [folder] if _is_checkpoint(folder) else _inside(folder)
        if not inside:
            raise ConfigurationError(f"{folder}: there is no checkpoint in it")
        found += inside
    return found


def _inside(folder: Path) -> list[Path]:
    from accelerate.checkpoint import naming

    if (folder / naming.CHECKPOINTS_FOLDER).is_dir() and not _is_checkpoint(folder / "checkpoints"):
        folder = folder / naming.CHECKPOINTS_FOLDER
    # Hidden ones are being written, or were left behind.
    visible = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    inside = [path for path in visible if _is_checkpoint(path)]
    numbers = {path: naming.checkpoint_number(path.name) for path in inside}
    return sorted(inside, key=lambda path: (-(numbers[path] or -1), path.name))


def _is_checkpoint(folder: Path) -> bool:
    from accelerate.checkpoint import naming
    from accelerate.checkpoint.manifest import MANIFEST

    names = {path.name for path in folder.iterdir()}
    return MANIFEST in names or any(naming.is_checkpoint_file(name) for name in names)


def _look(folder: Path, *, contents: bool) -> Found:
    """Return what a folder is.

    Args:
        folder: of the checkpoint.
        contents: read all files; otherwise their sizes are compared.
    """
    from accelerate.checkpoint import manifest
    from accelerate.checkpoint.place import journals, place_of

    names = manifest.files_in(folder)
    size = sum((folder / name).lstat().st_size for name in names)
    if journals(place_of(folder)):
        problem = "publishing was interrupted: the next load or save will finish it"
        return Found(folder=str(folder), state=_INTERRUPTED, problems=[problem], size=size)
    try:
        content = manifest.read(folder)
    except CheckpointError as error:
        return Found(folder=str(folder), state=_DAMAGED, problems=[str(error)], size=size)
    if content is None:
        problem = f"without {manifest.MANIFEST} nothing tells whether it is whole"
        return Found(folder=str(folder), state=_UNKNOWN, problems=[problem], size=size)
    problems = list(manifest.problems(folder, content.files, contents=contents))
    return _described(folder, content, problems)


def _described(folder: Path, content: "Manifest", problems: Sequence[str]) -> Found:
    return Found(
        folder=str(folder),
        state=_DAMAGED if problems else _WHOLE,
        problems=problems,
        size=content.size,
        step=content.step,
        world_size=content.world_size,
        created=content.created,
        versions=content.versions,
        files={
            name: {"size": file.size, "crc32": f"{file.crc32:08x}"} for name, file in content.files.items()
        },
    )


# ---- for people --------------------------------------------------------------------------------------------


def _print_table(found: Sequence[Found]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title, justify in (("checkpoint", "left"), ("step", "right"), ("size", "right"), ("age", "right")):
        table.add_column(title, justify=justify, overflow="fold")  # type: ignore[arg-type]
    table.add_column("ranks", justify="right")
    table.add_column("state")
    for item in found:
        table.add_row(
            item.folder,
            _or_unknown(item.step),
            size_in_words(item.size),
            _age(item),
            _or_unknown(item.world_size),
            item.state,
        )
    Console().print(table)
    for item in found:
        for problem in item.problems:
            print(f"{item.folder}: {problem}" if item.folder not in problem else problem, file=sys.stderr)


def _print_one(item: Found) -> None:
    from rich.console import Console
    from rich.table import Table

    facts = Table(box=None, pad_edge=False, show_header=False)
    facts.add_column()
    facts.add_column(overflow="fold")
    for name, text in (
        ("checkpoint", item.folder),
        ("state", item.state),
        ("step", _or_unknown(item.step)),
        ("size", size_in_words(item.size)),
        ("age", _age(item)),
        ("ranks", _or_unknown(item.world_size)),
        ("written by", ", ".join(f"{name} {text}" for name, text in (item.versions or {}).items()) or "?"),
    ):
        facts.add_row(name, text)
    console = Console()
    console.print(facts)
    files = Table(box=None, pad_edge=False)
    files.add_column("file", overflow="fold")
    files.add_column("size", justify="right")
    files.add_column("crc32")
    for name, file in (item.files or {}).items():
        files.add_row(name, size_in_words(file["size"]), file["crc32"])
    if item.files:
        console.print()
        console.print(files)
    for problem in item.problems:
        print(problem, file=sys.stderr)


def _or_unknown(number: int | None) -> str:
    return "?" if number is None else str(number)


def _age(item: Found) -> str:
    return "?" if item.created is None else age_in_words(time.time() - item.created)


def age_in_words(seconds: float) -> str:
    """Return a time span in its largest unit, such as "3 h"."""
    for length, unit in _AGES:
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return "0 s"


if __name__ == "__main__":
    sys.exit(main())
