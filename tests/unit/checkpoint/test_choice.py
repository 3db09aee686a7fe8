"""The newest whole checkpoint is found; damaged ones are named."""

import pytest

from accelerate.checkpoint import disk
from accelerate.checkpoint.agreement import Ranks
from accelerate.checkpoint.choice import choose
from accelerate.checkpoint.commit import Staging, new_generation
from accelerate.checkpoint.manifest import MANIFEST
from accelerate.checkpoint.place import place_of
from accelerate.errors import CheckpointError, MissingCheckpointFileError
from accelerate.options.project import ProjectConfiguration
from accelerate.runtime.world import World


def make(folder, legacy=False):
    """Make a checkpoint of one file."""
    staging = Staging(place_of(folder))
    staging.begin()
    (staging.folder / "file").write_text(folder.name)
    stamps = {"file": disk.stamp(staging.folder / "file")}
    staging.seal(stamps, generation=new_generation(), step=1, world_size=1, rank=0)
    staging.publish()
    if legacy:
        (folder / MANIFEST).unlink()
    return folder


@pytest.fixture
def project(tmp_path):
    return ProjectConfiguration(project_dir=str(tmp_path), automatic_checkpoint_naming=True)


@pytest.fixture
def checkpoints(tmp_path):
    return [make(tmp_path / "checkpoints" / f"checkpoint_{number}") for number in (8, 9, 10)]


def chosen(input_dir, project, strict=False):
    return choose(input_dir, project, Ranks(World()), strict=strict)


def test_the_newest_is_the_one_with_the_highest_number(project, checkpoints):
    assert chosen(None, project).folder == checkpoints[2]
    assert chosen("latest", project).folder == checkpoints[2]
    assert chosen(None, project).manifest.step == 1


def damage(folder, how):
    path = folder / (MANIFEST if how == "manifest" else "file")
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_text("")
    else:
        content = bytearray(path.read_bytes())
        content[10] ^= 1
        path.write_bytes(content)


@pytest.mark.parametrize("how", ["missing", "cut", "flipped", "manifest"])
def test_a_damaged_one_is_named_and_passed_over(project, checkpoints, how):
    damage(checkpoints[2], how)
    name = MANIFEST if how == "manifest" else "file"
    with pytest.warns(UserWarning, match=rf"Passed over.*checkpoint_10/{name} .*Loading .*checkpoint_9"):
        assert chosen(None, project).folder == checkpoints[1]
    with pytest.raises(CheckpointError, match=rf"checkpoint_10/{name} .*Nothing was loaded"):
        chosen(None, project, strict=True)


def test_when_all_are_damaged_all_are_named(project, checkpoints):
    for folder in checkpoints:
        damage(folder, "cut")
    with pytest.raises(CheckpointError, match=r"checkpoint_10/file .*checkpoint_9/file .*checkpoint_8/file "):
        chosen(None, project)


def test_a_folder_without_manifest_comes_last(project, checkpoints, tmp_path):
    legacy = make(tmp_path / "checkpoints" / "checkpoint_11", legacy=True)
    with pytest.warns(UserWarning, match=r"nothing tells whether they are whole: checkpoint_11\. Loading"):
        assert chosen(None, project).folder == checkpoints[2]
    found = chosen(legacy, project)
    assert (found.folder, found.manifest) == (legacy, None)
    for folder in checkpoints:
        damage(folder, "cut")
    with pytest.warns(UserWarning, match="Passed over"):
        assert chosen(None, project).folder == legacy


def test_there_is_no_checkpoint_yet(project, tmp_path):
    with pytest.raises(MissingCheckpointFileError, match="holds no folder named checkpoint_<number>"):
        chosen(None, project)
    (tmp_path / "checkpoints" / "foo").mkdir(parents=True)
    with pytest.raises(FileNotFoundError):
        chosen("latest", project)


@pytest.mark.parametrize("how", ["cut", "flipped", "manifest"])
def test_a_damaged_one_that_was_named_is_an_error(project, checkpoints, how):
    damage(checkpoints[0], how)
    with pytest.raises(
        CheckpointError, match=r"checkpoint_8 is not whole: .*/(file|accelerate_manifest\.json) "
    ):
        chosen(checkpoints[0], project)


def test_of_one_that_was_named_files_may_be_gone(project, checkpoints):
    damage(checkpoints[0], "missing")
    assert chosen(checkpoints[0], project).folder == checkpoints[0]
