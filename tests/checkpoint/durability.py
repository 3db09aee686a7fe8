"""What a loss of power may undo: rules for the calls of the file layer, checked on a trace of them.

[Note: rules]
A file's content is on the disk after a sync of the file, a name after a sync of the folder that it is in. A
folder is *clean* when that holds for all in it. In a trace of a save
1. what is renamed or exchanged out of a staging folder is clean;
2. the manifest is written when all other files are on the disk, and when anything follows it, the staging
   folder is clean: it may be published later, by another process;
3. nothing of an old checkpoint is removed or replaced, and no journal ends, before the names of the new one,
   or of its journal, are on the disk;
4. the manifest of a journal moves when all that was moved before it is on the disk;
5. at the end every folder outside staging is clean.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from accelerate.checkpoint.manifest import MANIFEST

Call = tuple[str, ...]  # operation and paths


def is_hidden(path: Path) -> bool:
    """Return whether a path lies in a staging folder or a journal, or is one."""
    return any(part.startswith(".") for part in path.parts)


def is_journal(path: Path) -> bool:
    """Return whether this is a journal itself."""
    return path.name.endswith(".publish")


class Disk:
    """What is not on the disk yet."""

    def __init__(self) -> None:
        self.files: set[Path] = set()  # with content that is not there
        self.names: set[Path] = set()  # that are not in their folder
        self.sealing: Path | None = None  # the staging folder whose manifest is being written
        self.complaints: list[str] = []

    def within(self, folder: Path) -> list[Path]:
        """Return what is not on the disk of all in a folder, or of a file itself."""
        return sorted(
            [path for path in self.files if path == folder or folder in path.parents]
            + [path for path in self.names if folder in path.parents]
        )

    def require(self, rule: int, paths: Iterable[Path], call: Call) -> None:
        """Note a violation if there are any paths."""
        for path in paths:
            self.complaints.append(f"rule {rule}: {path} is not on the disk at {' '.join(call)}")

    def move(self, source: Path, target: Path) -> None:
        """Give what lies in a folder its new paths; the names in it come along."""
        for paths in (self.files, self.names):
            for path in [path for path in paths if path == source or source in path.parents]:
                paths.discard(path)
                paths.add(target / path.relative_to(source))


def violations(calls: Sequence[Call]) -> list[str]:
    """Return what breaks a rule of [Note: rules]; paths are relative to a folder that was there before."""
    disk = Disk()
    for call in calls:
        operation, paths = call[0], [Path(text) for text in call[1:]]
        if disk.sealing is not None and operation not in ("write", "sync"):
            disk.require(2, disk.within(disk.sealing), call)
            disk.sealing = None
        _STEPS[operation](disk, call, *paths)
    disk.require(5, [path for path in disk.files | disk.names if not is_hidden(path)], ("the end",))
    return disk.complaints


def _create(disk: Disk, call: Call, path: Path) -> None:
    if path.name == MANIFEST:
        disk.require(2, sorted(disk.files), call)
        disk.sealing = path.parent
    disk.files.add(path)
    disk.names.add(path)


def _write(disk: Disk, call: Call, path: Path) -> None:
    disk.files.add(path)


def _sync(disk: Disk, call: Call, path: Path) -> None:
    disk.files.discard(path)
    disk.names -= {name for name in disk.names if name.parent == path}


def _name(disk: Disk, call: Call, path: Path) -> None:
    disk.names.add(path)


def _link(disk: Disk, call: Call, source: Path, target: Path) -> None:
    disk.names.add(target)


def _rename(disk: Disk, call: Call, source: Path, target: Path) -> None:
    if is_hidden(source) and (not is_hidden(target) or is_journal(target)):
        disk.require(1, disk.within(source), call)
    if any(is_journal(parent) for parent in source.parents) and source.name == MANIFEST:
        disk.require(4, [path for path in disk.names if not is_hidden(path)], call)
    if any(is_journal(parent) for parent in source.parents):
        disk.require(3, [path for path in disk.names if is_journal(path)], call)
    if not is_hidden(source) and is_hidden(target):
        _require_published(disk, call)
    disk.move(source, target)
    disk.names.add(target)


def _exchange(disk: Disk, call: Call, source: Path, target: Path) -> None:
    disk.require(1, disk.within(source), call)
    disk.names |= {source, target}


def _remove(disk: Disk, call: Call, path: Path) -> None:
    # Names outside that only the old manifest knows go before the journal's manifest moves.
    if is_hidden(path) and path not in disk.names:
        _require_published(disk, call)
    disk.files.discard(path)
    disk.names.discard(path)


def _require_published(disk: Disk, call: Call) -> None:
    disk.require(3, [path for path in disk.names if not is_hidden(path) or is_journal(path)], call)


def _nothing(disk: Disk, call: Call, path: Path) -> None:
    """Permissions may be lost."""


_STEPS = {
    "create": _create,
    "write": _write,
    "sync": _sync,
    "mkdir": _name,
    "symlink": _name,
    "link": _link,
    "rename": _rename,
    "exchange": _exchange,
    "unlink": _remove,
    "rmdir": _remove,
    "chmod": _nothing,
}
