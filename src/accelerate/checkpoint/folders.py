"""Which folder a checkpoint goes to or comes from, and which old ones go. Called by checkpointing."""

import logging
import os
import warnings
from pathlib import Path

from accelerate.checkpoint import disk, naming
from accelerate.checkpoint.manifest import MANIFEST
from accelerate.errors import ConfigurationError
from accelerate.options.project import ProjectConfiguration

__all__ = [
    "LATEST",
    "following_number",
    "home",
    "numbered",
    "remove_oldest",
    "staging_parent",
    "to_read",
    "to_write",
]

logger = logging.getLogger(__name__)

LATEST = "latest"
_STAGING = ".staging"


def to_write(output_dir: str | os.PathLike[str] | None, project: ProjectConfiguration) -> Path:
    """Return the folder of the next checkpoint, not yet made.

    Args:
        output_dir: what the user named; ignored under automatic naming.
        project: project folder, automatic naming and the number of the next checkpoint.

    Raises:
        TypeError: nothing was named, and automatic naming is off.
        ConfigurationError: the folder of automatic naming exists, or there is no project folder; or a file
            has the name, or it is empty.
    """
    if not project.automatic_checkpoint_naming:
        if output_dir is None:
            raise TypeError(
                "save_state(output_dir=None): name a folder, or let the Accelerator name them: "
                "ProjectConfiguration(project_dir=..., automatic_checkpoint_naming=True)."
            )
        if output_dir == "":
            raise ConfigurationError("save_state(output_dir=''): name a folder; '.' is the one you are in.")
        folder = _expanded(output_dir)
        if os.path.lexists(os.path.realpath(folder)) and not folder.is_dir():
            what = "a link to itself" if folder.is_symlink() and not folder.exists() else "a file"
            raise ConfigurationError(
                f"save_state(output_dir={str(folder)!r}): that is {what}; name a folder."
            )
        return folder
    folder = naming.checkpoint_folder(home(project), project.iteration)
    if folder.exists():
        raise ConfigurationError(
            f"Checkpoint directory {folder} ({project.iteration}) already exists. Please manually override "
            "`self.save_iteration` with what iteration to start with: set "
            "`accelerator.project_configuration.iteration`, or call `load_state()` to go on from the newest."
        )
    return folder


def staging_parent(project: ProjectConfiguration) -> Path | None:
    """Return the folder in which checkpoints of automatic naming are made; None without automatic naming.

    It is not in the folder of the checkpoints, whose every folder the interface takes for one, unless that
    one is on a file system of its own.
    """
    if not project.automatic_checkpoint_naming:
        return None
    above = Path(home(project))
    checkpoints = above / naming.CHECKPOINTS_FOLDER
    together = not checkpoints.exists() or checkpoints.stat().st_dev == above.stat().st_dev
    return (above if together else checkpoints) / _STAGING


def to_read(input_dir: str | os.PathLike[str] | None, project: ProjectConfiguration) -> Path | None:
    """Return the folder to load; None stands for the newest one of automatic naming.

    Args:
        input_dir: what the user named.
        project: project folder and automatic naming.

    Raises:
        ConfigurationError: it does not exist; or nothing was named and automatic naming is off.
    """
    if input_dir is None:
        if not project.automatic_checkpoint_naming:
            raise ConfigurationError(
                "No input_dir provided and automatic checkpoint naming is disabled. Pass the folder that "
                "`save_state` returned."
            )
        return None
    folder = _expanded(input_dir)
    if folder.is_dir() and input_dir != "":
        return folder
    if input_dir == LATEST and project.automatic_checkpoint_naming:
        return None
    hint = f" It is a file: name the folder that it is in, {folder.parent}." if folder.is_file() else ""
    raise ConfigurationError(f"Tried to find {input_dir} but folder does not exist.{hint}")


def numbered(project: ProjectConfiguration, *, staged: bool = False) -> dict[int, Path]:
    """Return the folders that automatic naming has made, by number, the highest first.

    Args:
        project: whose.
        staged: those that were not published yet instead.

    Raises:
        ConfigurationError: there is no project folder.
    """
    folder = Path(home(project)) / naming.CHECKPOINTS_FOLDER
    parent = staging_parent(project) if staged else folder
    names = naming.list_checkpoints(_subfolders(parent)) if parent is not None else []
    found = {naming.checkpoint_number(name): name for name in reversed(names)}
    return {number: Path(str(parent)) / name for number, name in found.items() if number is not None}


def following_number(project: ProjectConfiguration) -> int:
    """Return the number of the next checkpoint: one more than the highest that is there."""
    return max(numbered(project), default=-1) + 1


def home(project: ProjectConfiguration) -> str | os.PathLike[str]:
    """Return the project's folder, which stays what it was at first when the working directory changes.

    Raises:
        ConfigurationError: there is none.
    """
    if project.project_dir is None:
        raise ConfigurationError(
            "automatic_checkpoint_naming=True needs a project folder: pass project_dir to "
            "ProjectConfiguration or to Accelerator."
        )
    named = project.project_dir
    places = project.__dict__.setdefault("_places", {})  # name -> where that was when it was first asked for
    first: str = places.setdefault(os.fspath(named), os.path.abspath(named))
    return named if os.path.abspath(named) == first else first


def _expanded(folder: str | os.PathLike[str]) -> Path:
    # Unlike Path.expanduser this leaves a name as it is when there is no such user.
    return Path(os.path.expanduser(folder))


def _subfolders(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []


def remove_oldest(newest: Path, total_limit: int | None, staging: Path) -> None:
    """Remove the lowest numbered checkpoints beside `newest` until `total_limit` are left, it included.

    Called on the process that writes, once `newest` is committed everywhere. Each goes out of sight at once.
    What cannot be removed is warned about.

    Args:
        newest: the checkpoint that was just written; it stays.
        total_limit: how many stay; None keeps all.
        staging: a folder on the same file system that nobody looks into for checkpoints.
    """
    if total_limit is None:
        return
    others = [name for name in naming.list_checkpoints(_subfolders(newest.parent)) if name != newest.name]
    surplus = others[: max(0, len(others) + 1 - max(1, total_limit))]
    if surplus:
        logger.info("Deleting %d checkpoints beyond total_limit=%d: %s", len(surplus), total_limit, surplus)
    for name in surplus:
        try:
            _remove(newest.parent / name, staging)
        except OSError as error:
            warnings.warn(
                f"{newest.parent / name} is beyond total_limit={total_limit}, but could not be removed "
                f"({error}): what is left of it takes up space.",
                stacklevel=3,
            )


def _remove(checkpoint: Path, staging: Path) -> None:
    if checkpoint.is_symlink():
        disk.unlink(checkpoint)
        return
    hidden = staging / f"{checkpoint.name}.removed"
    if not staging.is_dir():
        disk.make_folders(staging, lasting=False)
    try:
        disk.remove_tree(hidden)
        disk.rename(checkpoint, hidden)
    except OSError:  # another file system: then the manifest goes last, which says what is missing
        hidden = checkpoint
    disk.remove_tree(hidden, last=MANIFEST)
