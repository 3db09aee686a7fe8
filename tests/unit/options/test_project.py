from pathlib import Path

import pytest

from accelerate.errors import ConfigurationError
from accelerate.options.project import ProjectConfiguration


def test_defaults() -> None:
    assert repr(ProjectConfiguration()) == (
        "ProjectConfiguration(project_dir=None, logging_dir=None, automatic_checkpoint_naming=False, "
        "total_limit=None, iteration=0, save_on_each_node=False)"
    )


def test_logs_go_to_the_project_unless_they_are_told_to_go_elsewhere(tmp_path: Path) -> None:
    assert ProjectConfiguration("x").logging_dir == "x"
    assert ProjectConfiguration(tmp_path).logging_dir == tmp_path
    assert ProjectConfiguration("x", "y").logging_dir == "y"


def test_set_directories_keeps_a_logging_folder_that_is_set() -> None:
    empty = ProjectConfiguration()
    empty.set_directories("z")
    assert (empty.project_dir, empty.logging_dir) == ("z", "z")
    chosen = ProjectConfiguration(logging_dir="l")
    chosen.set_directories("w")
    assert (chosen.project_dir, chosen.logging_dir) == ("w", "l")
    chosen.set_directories()
    assert (chosen.project_dir, chosen.logging_dir) == (None, "l")


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"total_limit=-1\): .*or None to keep all"):
        ProjectConfiguration(total_limit=-1)
