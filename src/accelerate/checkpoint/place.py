"""Where a checkpoint goes, and where it is made: names only. Called by commit and by what loads.

The words are those of [Note: commit] in commit.py.
"""

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["INNER", "Place", "is_pinned", "journals", "place_of"]

_STAGING, _JOURNAL = INNER = (".accelerate.staging", ".accelerate.publish")  # of a pinned target


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a checkpoint goes and where it is made; see [Note: commit].

    Attributes:
        target: the folder itself, no symbolic link to it.
        staging: the folder that is written to.
        journal: the name of a staging folder that is being moved into the target.
        renames: whether the target may be replaced as a whole.
    """

    target: Path
    staging: Path
    journal: Path
    renames: bool


def place_of(folder: Path, staging_parent: Path | None = None, *, pinned: bool | None = None) -> Place:
    """Return where the checkpoint of a folder is made.

    Args:
        folder: the folder; it may not exist yet.
        staging_parent: folder on the same file system in which to stage; beside `folder` when None.
        pinned: whether the folder has to stay itself; what `is_pinned` says when None.
    """
    target = Path(os.path.realpath(folder))
    if is_pinned(target) if pinned is None else pinned:
        staging, journal = target / _STAGING, target / _JOURNAL
        return Place(target=target, staging=staging, journal=journal, renames=False)
    staging = target.parent / f".{target.name}.staging"
    if staging_parent is not None:
        staging = staging_parent / target.name
    return Place(target=target, staging=staging, journal=_journal_beside(target), renames=True)


def _journal_beside(target: Path) -> Path:
    return target.parent / f".{target.name}.publish"


def is_pinned(folder: Path) -> bool:
    """Return whether a folder has to stay itself; see [Note: commit]."""
    target = Path(os.path.realpath(folder))
    if not target.is_dir():
        return False
    try:
        here = Path.cwd()
    except FileNotFoundError:  # somebody has removed it
        here = Path(os.sep)
    alone = os.path.ismount(target) or not os.access(target.parent, os.W_OK | os.X_OK)
    return alone or target == here or target in here.parents


def journals(place: Place) -> list[Path]:
    """Return what tells that a checkpoint is being published into a folder, or that this was interrupted."""
    # Whether the target was a working directory then, nobody knows.
    names = {place.journal, place.target / _JOURNAL, _journal_beside(place.target)}
    return [journal for journal in names if journal.is_dir()]
