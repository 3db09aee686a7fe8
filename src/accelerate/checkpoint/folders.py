"""Which folder a checkpoint goes to or comes from, and which old ones go. Called by checkpointing."""

import logging
import os
import shutil
import warnings
from pathlib import Path

from accelerate.checkpoint import naming
from accelerate.errors import ConfigurationError, MissingCheckpointFileError
from accelerate.options.project import ProjectConfiguration

__all__ = ["remove_oldest", "to_read", "to_write"]

logger = logging.getLogger(__name__)


def to_write(output_dir: str | os.PathLike[str] | None, project: ProjectConfiguration) -> Path:
    """Return the folder of the next checkpoint, not yet made.

    Args:
        output_dir: what the user named; ignored under automatic naming.
        project: project folder, automatic naming and the number of the next checkpoint.

    Raises:
        TypeError: nothing was named, and automatic naming is off.
        ConfigurationError: the folder of automatic naming exists, or there is no project folder.
    """
    if not project.automatic_checkpoint_naming:
        if output_dir is None:
            raise TypeError(
                "save_state(output_dir=None): name a folder, or let the Accelerator name them: "
                "ProjectConfiguration(project_dir=..., automatic_checkpoint_naming=True)."
            )
        return Path(output_dir).expanduser()
    folder = naming.checkpoint_folder(_project_dir(project), project.iteration)
    if folder.exists():
        raise ConfigurationError(
            f"Checkpoint directory {folder} ({project.iteration}) already exists. Please manually override "
            "`self.save_iteration` with what iteration to start with: set "
            "`accelerator.project_configuration.iteration`, or call `load_state()` to go on from the newest."
        )
    return folder


def to_read(input_dir: str | os.PathLike[str] | None, project: ProjectConfiguration) -> Path:
    """Return the folder to load: the one that was named, else the newest of automatic naming.

    Args:
        input_dir: what the user named.
        project: project folder and automatic naming.

    Raises:
        ConfigurationError: it does not exist; or nothing was named and automatic naming is off or has no
            project folder.
        MissingCheckpointFileError: nothing was named, and there is no checkpoint yet.
    """
    if input_dir is not None:
        folder = Path(input_dir).expanduser()
        if not folder.is_dir():
            raise ConfigurationError(f"Tried to find {input_dir} but folder does not exist.")
        return folder
    if not project.automatic_checkpoint_naming:
        raise ConfigurationError(
            "No input_dir provided and automatic checkpoint naming is disabled. Pass the folder that "
            "`save_state` returned."
        )
    checkpoints = Path(_project_dir(project)) / naming.CHECKPOINTS_FOLDER
    newest = naming.newest_checkpoint(_subfolders(checkpoints))
    if newest is None:
        raise MissingCheckpointFileError(
            f"load_state(): {checkpoints} holds no folder named checkpoint_<number>."
        )
    return checkpoints / newest


def _project_dir(project: ProjectConfiguration) -> str | os.PathLike[str]:
    if project.project_dir is None:
        raise ConfigurationError(
            "automatic_checkpoint_naming=True needs a project folder: pass project_dir to "
            "ProjectConfiguration or to Accelerator."
        )
    return project.project_dir


def _subfolders(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []


def remove_oldest(newest: Path, total_limit: int | None) -> None:
    """Remove the lowest numbered checkpoints beside `newest` until `total_limit` are left, it included.

    Called on the process that writes, once `newest` is whole. What cannot be removed is warned about.

    Args:
        newest: the checkpoint that was just written; it stays.
        total_limit: how many stay; None keeps all.
    """
    if total_limit is None:
        return
    others = [name for name in naming.list_checkpoints(_subfolders(newest.parent)) if name != newest.name]
    surplus = others[: max(0, len(others) + 1 - max(1, total_limit))]
    if surplus:
        logger.info("Deleting %d checkpoints beyond total_limit=%d: %s", len(surplus), total_limit, surplus)
    for name in surplus:
        try:
            shutil.rmtree(newest.parent / name)
        except OSError as error:
            warnings.warn(
                f"{newest.parent / name} is beyond total_limit={total_limit}, but could not be removed "
                f"({error}): what is left of it takes up space.",
                stacklevel=3,
            )
