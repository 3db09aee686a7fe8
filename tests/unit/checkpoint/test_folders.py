import shutil

import pytest

from accelerate.checkpoint import folders
from accelerate.errors import ConfigurationError, MissingCheckpointFileError
from accelerate.options.project import ProjectConfiguration


@pytest.fixture
def project(tmp_path):
    return ProjectConfiguration(project_dir=str(tmp_path), automatic_checkpoint_naming=True)


def make(tmp_path, *names):
    for name in names:
        (tmp_path / "checkpoints" / name).mkdir(parents=True)


def left(tmp_path):
    return sorted(path.name for path in (tmp_path / "checkpoints").iterdir())


def test_an_explicit_folder_is_taken_with_the_home_folder_expanded(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folders.to_write("~/here", ProjectConfiguration()) == tmp_path / "here"
    (tmp_path / "here").mkdir()
    assert folders.to_read("~/here", ProjectConfiguration()) == tmp_path / "here"


def test_no_folder_at_all():
    with pytest.raises(TypeError, match=r"output_dir=None.*automatic_checkpoint_naming=True"):
        folders.to_write(None, ProjectConfiguration())
    with pytest.raises(ValueError, match="No input_dir provided and automatic checkpoint naming is disabled"):
        folders.to_read(None, ProjectConfiguration())


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match=r"Tried to find .*nowhere but folder does not exist"):
        folders.to_read(tmp_path / "nowhere", ProjectConfiguration())


def test_automatic_naming_counts_and_ignores_what_was_named(project, tmp_path):
    project.iteration = 3
    assert folders.to_write("ignored", project) == tmp_path / "checkpoints" / "checkpoint_3"


def test_automatic_naming_does_not_overwrite(project, tmp_path):
    make(tmp_path, "checkpoint_0", "checkpoint_1")
    project.total_limit = 1
    with pytest.raises(
        ConfigurationError, match=r"checkpoint_0 \(0\) already exists. Please manually override"
    ):
        folders.to_write(None, project)
    assert left(tmp_path) == ["checkpoint_0", "checkpoint_1"]


def test_automatic_naming_needs_a_project():
    project = ProjectConfiguration(automatic_checkpoint_naming=True)
    with pytest.raises(ConfigurationError, match="needs a project folder"):
        folders.to_write("here", project)


def test_the_newest_is_the_one_with_the_highest_number(project, tmp_path):
    make(tmp_path, "checkpoint_9", "checkpoint_10", "foo")
    (tmp_path / "checkpoints" / "checkpoint_11").touch()
    assert folders.to_read(None, project).name == "checkpoint_10"


def test_there_is_no_checkpoint_yet(project, tmp_path):
    with pytest.raises(MissingCheckpointFileError, match="holds no folder named checkpoint_<number>"):
        folders.to_read(None, project)
    make(tmp_path, "foo")
    with pytest.raises(FileNotFoundError):
        folders.to_read(None, project)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (None, ["checkpoint_0", "checkpoint_10", "checkpoint_2", "checkpoint_9", "foo"]),
        (4, ["checkpoint_0", "checkpoint_10", "checkpoint_2", "checkpoint_9", "foo"]),
        (3, ["checkpoint_0", "checkpoint_10", "checkpoint_9", "foo"]),
        (1, ["checkpoint_0", "foo"]),
        (0, ["checkpoint_0", "foo"]),
    ],
)
def test_the_oldest_go_and_the_new_one_stays_whatever_its_number(tmp_path, limit, expected):
    make(tmp_path, "checkpoint_2", "checkpoint_10", "checkpoint_9", "foo", "checkpoint_0")
    folders.remove_oldest(tmp_path / "checkpoints" / "checkpoint_0", limit)
    assert left(tmp_path) == expected


def test_what_cannot_be_removed_is_named(tmp_path, monkeypatch):
    make(tmp_path, "checkpoint_0", "checkpoint_1")

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with pytest.warns(UserWarning, match=r"checkpoint_0 is beyond total_limit=1, but could not be removed"):
        folders.remove_oldest(tmp_path / "checkpoints" / "checkpoint_1", 1)
