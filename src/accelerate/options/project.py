"""ProjectConfiguration: where a run writes. Passed to `Accelerator`, read by checkpointing and trackers."""

import dataclasses
import os

from accelerate.errors import ConfigurationError
from accelerate.options.field import option

__all__ = ["ProjectConfiguration"]


@dataclasses.dataclass
class ProjectConfiguration:
    """Choose where checkpoints and logs go, and how many checkpoints stay.

    Args:
        project_dir: folder of the run.
        logging_dir: folder of the trackers; `project_dir` when None.
        automatic_checkpoint_naming: whether `save_state` numbers checkpoints under `project_dir/checkpoints`.
        total_limit: how many numbered checkpoints stay; None keeps all.
        iteration: number of the next checkpoint.
        save_on_each_node: whether the first rank of every node writes, for folders that are not shared.

    Raises:
        ConfigurationError: `total_limit` is negative.

    Example:
        >>> from accelerate.utils import ProjectConfiguration
        >>> ProjectConfiguration("runs/1").logging_dir
        'runs/1'
    """

    project_dir: str | os.PathLike[str] | None = option(None, help="folder of the run")
    logging_dir: str | os.PathLike[str] | None = option(None, help="folder of the trackers")
    automatic_checkpoint_naming: bool = option(False, help="number checkpoints under project_dir")
    total_limit: int | None = option(None, help="how many numbered checkpoints stay")
    iteration: int = option(0, help="number of the next checkpoint")
    save_on_each_node: bool = option(False, help="the first rank of every node writes")

    def __post_init__(self) -> None:
        if self.total_limit is not None and self.total_limit < 0:
            raise ConfigurationError(
                f"ProjectConfiguration(total_limit={self.total_limit}): use the number of checkpoints to "
                "keep, or None to keep all"
            )
        self.set_directories(self.project_dir)

    def set_directories(self, project_dir: str | os.PathLike[str] | None = None) -> None:
        """Set the folder of the run, and the folder of the trackers where it was not chosen.

        Args:
            project_dir: new folder of the run.
        """
        self.project_dir = project_dir
        if self.logging_dir is None:
            self.logging_dir = project_dir
