"""Which folder is written to or read from, and which old ones go."""

import shutil
from pathlib import Path

import pytest

from accelerate.checkpoint import disk, folders, manifest
from accelerate.errors import ConfigurationError
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


def test_the_numbered_folders_come_with_the_highest_first(project, tmp_path):
    make(tmp_path, "checkpoint_9", "checkpoint_10", "foo")
    (tmp_path / "checkpoints" / "checkpoint_11").touch()
    assert list(folders.numbered(project)) == [10, 9]
    assert folders.numbered(project)[10] == tmp_path / "checkpoints" / "checkpoint_10"
    assert folders.following_number(project) == 11


def test_there_is_no_checkpoint_yet(project, tmp_path):
    assert folders.numbered(project) == {}
    assert folders.following_number(project) == 0
    make(tmp_path, "foo")
    assert folders.numbered(project) == {}


def test_the_newest_is_asked_for_by_no_name_or_as_latest(project, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert folders.to_read(None, project) is None
    assert folders.to_read("latest", project) is None
    with pytest.raises(ConfigurationError, match="Tried to find latest"):
        folders.to_read("latest", ProjectConfiguration())
    (tmp_path / "latest").mkdir()
    assert folders.to_read("latest", project) == Path("latest")


def test_a_file_is_no_folder_to_write_to(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="that is a file"):
        folders.to_write(tmp_path / "file", ProjectConfiguration())


def test_an_empty_name_is_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"output_dir=''\): name a folder"):
        folders.to_write("", ProjectConfiguration())
    with pytest.raises(ConfigurationError, match="folder does not exist"):
        folders.to_read("", ProjectConfiguration())
    assert folders.to_write(".", ProjectConfiguration()) == Path(".")


def test_a_link_to_itself_is_no_folder(tmp_path):
    (tmp_path / "link").symlink_to("link")
    with pytest.raises(ConfigurationError, match="that is a link to itself"):
        folders.to_write(tmp_path / "link", ProjectConfiguration())


def test_a_link_to_what_is_not_there_yet_is_one(tmp_path):
    (tmp_path / "link").symlink_to("later")
    assert folders.to_write(tmp_path / "link", ProjectConfiguration()) == tmp_path / "link"


def test_a_home_that_nobody_has_is_a_name_like_any_other(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folders.to_write("~/run", ProjectConfiguration()) == tmp_path / "run"
    assert folders.to_write("~nobody at all/run", ProjectConfiguration()) == Path("~nobody at all/run")


def test_who_names_a_file_of_a_checkpoint_is_told_the_folder(tmp_path):
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ConfigurationError, match=rf"It is a file: name the folder .*, {tmp_path}\."):
        folders.to_read(tmp_path / "model.safetensors", ProjectConfiguration())


def test_a_relative_project_stays_where_it_was(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    project = ProjectConfiguration(project_dir="run", automatic_checkpoint_naming=True)
    first = folders.to_write(None, project)
    assert first == Path("run/checkpoints/checkpoint_0")
    first.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "elsewhere")
    project.iteration = 1
    assert folders.to_write(None, project) == tmp_path / "run" / "checkpoints" / "checkpoint_1"
    assert folders.staging_parent(project) == tmp_path / "run" / ".staging"
    assert folders.numbered(project) == {0: tmp_path / first}
    assert project.project_dir == "run"
    project.set_directories("other")
    assert folders.to_write(None, project) == Path("other/checkpoints/checkpoint_1")


def test_checkpoints_are_made_outside_the_folder_that_is_searched(project, tmp_path):
    assert folders.staging_parent(project) == tmp_path / ".staging"
    assert folders.staging_parent(ProjectConfiguration()) is None


def test_a_mounted_folder_of_checkpoints_has_its_own_staging(project, tmp_path):
    elsewhere = Path("/dev/shm")
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system")
    (tmp_path / "checkpoints").symlink_to(elsewhere)
    assert folders.staging_parent(project) == tmp_path / "checkpoints" / ".staging"


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
    folders.remove_oldest(tmp_path / "checkpoints" / "checkpoint_0", limit, tmp_path / ".staging")
    assert left(tmp_path) == expected


def test_what_cannot_be_removed_is_named(tmp_path):
    make(tmp_path, "checkpoint_0", "checkpoint_1")

    def refuse(operation, *paths):
        if operation in ("rmdir", "rename"):
            raise PermissionError(13, "Permission denied", str(paths[0]))

    warned = pytest.warns(
        UserWarning, match=r"checkpoint_0 is beyond total_limit=1, but could not be removed"
    )
    with disk.observed(refuse), warned:
        folders.remove_oldest(tmp_path / "checkpoints" / "checkpoint_1", 1, tmp_path / ".staging")


def test_an_old_checkpoint_goes_out_of_sight_at_once_or_manifest_last(tmp_path):
    for renames in (True, False):
        make(tmp_path, "checkpoint_0", "checkpoint_1")
        for name in (manifest.MANIFEST, "z", "a"):
            (tmp_path / "checkpoints" / "checkpoint_0" / name).touch()
        events = []

        def observe(operation, *paths, renames=renames, events=events):
            events.append((operation, paths[0].name))
            if operation == "rename" and not renames:
                raise OSError(18, "Invalid cross-device link")

        with disk.observed(observe):
            folders.remove_oldest(tmp_path / "checkpoints" / "checkpoint_1", 1, tmp_path / ".staging")
        removed = [event for event in events if event[0] in ("rename", "unlink")]
        assert removed[0] == ("rename", "checkpoint_0")
        assert removed[1:] == [("unlink", "a"), ("unlink", "z"), ("unlink", manifest.MANIFEST)]
        assert not list((tmp_path / ".staging").iterdir())
        shutil.rmtree(tmp_path / "checkpoints")
