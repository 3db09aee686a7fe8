"""Publishing: what is there before, what of the user's stays, and what an interruption leaves."""

import os
import stat
from pathlib import Path

import pytest

from accelerate.checkpoint import commit, disk, manifest
from accelerate.checkpoint.commit import Staging, new_generation, own_files, recover
from accelerate.checkpoint.manifest import MANIFEST
from accelerate.checkpoint.place import Place, is_pinned, place_of


def sealed(target, place=None, **contents):
    """Return a staging folder that is sealed, with files of these contents ("__" stands for a folder)."""
    staging = Staging(place or place_of(target))
    staging.begin()
    stamps = {}
    for name, text in contents.items():
        path = staging.folder / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        stamps[name.replace("__", "/")] = disk.stamp(path)
    staging.seal(stamps, generation=new_generation(), step=1, world_size=1, rank=0)
    return staging


def publish(target, place=None, **contents):
    staging = sealed(target, place, **contents)
    old = staging.publish()
    if old is not None:
        disk.remove_tree(old)


def texts(folder):
    """Return the files of a folder with what they hold, the manifest aside."""
    found = manifest.files_in(folder, without=[MANIFEST])
    return {name: (folder / name).read_text() for name in found}


def is_whole(folder):
    return not list(manifest.problems(folder, manifest.read(folder).files))


def pinned_place(target):
    return place_of(target, pinned=True)


def without_exchange(target):
    place = place_of(target)
    return Place(target=place.target, staging=place.staging, journal=place.journal, renames=True)


@pytest.fixture(params=["exchange", "no exchange", "pinned"])
def place_for(request, monkeypatch):
    """Give each way to publish into a folder that is there."""
    if request.param == "no exchange":
        monkeypatch.setattr(disk, "_renameat2", lambda: None)
    return pinned_place if request.param == "pinned" else place_of


def test_a_new_folder(tmp_path):
    target = tmp_path / "deep" / "er" / "target"
    publish(target, a="1", inner__b="2")
    assert texts(target) == {"a": "1", "inner/b": "2"}
    assert is_whole(target)
    assert os.listdir(target.parent) == ["target"]


def test_an_empty_folder_is_replaced(tmp_path):
    (tmp_path / "target").mkdir()
    publish(tmp_path / "target", a="1")
    assert texts(tmp_path / "target") == {"a": "1"}


def test_what_is_the_users_stays_and_what_is_the_old_checkpoints_goes(tmp_path, place_for):
    target = tmp_path / "target"
    publish(target, place_for(target) if target.exists() else None, a="old", b="old", inner__c="old")
    (target / "mine").mkdir(mode=0o750)
    (target / "mine" / "deep").mkdir()
    (target / "mine" / "deep" / "file").write_text("mine")
    (target / "model.safetensors").write_text("mine")  # a checkpoint's name, but not of this one
    (target / "link").symlink_to("mine/deep/file")
    os.chmod(target, 0o751)
    inode = (target / "mine" / "deep" / "file").stat().st_ino
    publish(target, place_for(target), a="new", d="new", other__e="new")
    expected = {
        "a": "new",
        "d": "new",
        "other/e": "new",
        "mine/deep/file": "mine",
        "model.safetensors": "mine",
    }
    assert texts(target) == {**expected, "link": "mine"}
    assert os.readlink(target / "link") == "mine/deep/file"
    assert (target / "mine" / "deep" / "file").stat().st_ino == inode
    assert stat.S_IMODE((target / "mine").stat().st_mode) == 0o750
    assert stat.S_IMODE(target.stat().st_mode) == 0o751
    assert is_whole(target)
    assert not (target / "inner").exists()
    assert os.listdir(tmp_path) == ["target"]


def test_an_open_log_of_the_user_goes_on(tmp_path, place_for):
    target = tmp_path / "target"
    publish(target, a="old")
    with open(target / "log", "a") as log:
        print("before", file=log, flush=True)
        publish(target, place_for(target), a="new")
        print("after", file=log, flush=True)
    assert (target / "log").read_text() == "before\nafter\n"


def test_a_mapped_file_of_the_old_checkpoint_keeps_its_content(tmp_path, place_for):
    target = tmp_path / "target"
    publish(target, a="old")
    with open(target / "a") as mapped:
        publish(target, place_for(target), a="new")
        assert mapped.read() == "old"


def test_of_a_legacy_folder_the_names_of_checkpoints_go(tmp_path, place_for):
    target = tmp_path / "target"
    (target / "optimizer_0").mkdir(parents=True)
    names = ["model.safetensors", "optimizer_0/.metadata", "random_states_3.pkl", "custom_checkpoint_0.pkl"]
    for name in [*names, "notes", "model.safetensors.bak"]:
        (target / name).write_text("old")
    publish(target, place_for(target), a="new")
    assert texts(target) == {"a": "new", "notes": "old", "model.safetensors.bak": "old"}


def test_a_folder_takes_the_place_of_a_file_and_a_file_of_a_folder(tmp_path, place_for):
    target = tmp_path / "target"
    publish(target, a="old", b__c="old")
    publish(target, place_for(target), a__c="new", b="new")
    assert texts(target) == {"a/c": "new", "b": "new"}
    assert is_whole(target)


def test_what_comes_while_the_folder_is_replaced_is_not_lost(tmp_path):
    target = tmp_path / "target"
    publish(target, a="old")

    def observe(operation, *paths):
        if operation == "exchange":
            (target / "late").mkdir()
            (target / "late" / "comer").write_text("mine")

    with disk.observed(observe):
        publish(target, a="new")
    assert texts(target) == {"a": "new", "late/comer": "mine"}


def test_an_empty_folder_of_the_user_stays(tmp_path, place_for):
    target = tmp_path / "target"
    publish(target, a="old", inner__b="old")
    (target / "logs" / "deep").mkdir(parents=True)
    publish(target, place_for(target), a="new")
    assert (target / "logs" / "deep").is_dir()
    assert not (target / "inner").exists()


def test_a_folder_full_of_the_users_files_is_left_where_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(commit, "MANY", 3)
    target = tmp_path / "target"
    publish(target, a="old")
    for number in range(4):
        (target / f"mine{number}").write_text("mine")
    inode = target.stat().st_ino
    publish(target, a="new")
    assert target.stat().st_ino == inode
    assert texts(target) == {"a": "new", **{f"mine{number}": "mine" for number in range(4)}}
    (target / "mine0").unlink()
    publish(target, a="newer")
    assert target.stat().st_ino != inode


def test_a_link_to_the_folder_stays_one(tmp_path):
    (tmp_path / "elsewhere" / "target").mkdir(parents=True)
    (tmp_path / "link").symlink_to("elsewhere/target")
    for text in ("old", "new"):
        publish(tmp_path / "link", a=text)
        assert texts(tmp_path / "elsewhere" / "target") == {"a": text}
    assert (tmp_path / "link").is_symlink()
    assert os.listdir(tmp_path / "elsewhere") == ["target"]


def test_the_working_directory_and_mount_points_have_to_stay(tmp_path, monkeypatch):
    (tmp_path / "here" / "below").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here" / "below")
    assert is_pinned(tmp_path / "here" / "below")
    assert is_pinned(tmp_path / "here")
    assert not is_pinned(tmp_path / "here" / "other")
    (tmp_path / "beside").mkdir()
    assert not is_pinned(tmp_path / "beside")
    mounted = [path for path in (Path("/dev/shm"), Path("/proc")) if os.path.ismount(path)]
    for path in mounted:
        assert is_pinned(path)
        assert place_of(path).staging.parent == path


def test_a_folder_in_one_that_may_not_be_written_to_has_to_stay(tmp_path, monkeypatch):
    (tmp_path / "target").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    assert is_pinned(tmp_path / "target")
    publish(tmp_path / "target", a="1")
    assert texts(tmp_path / "target") == {"a": "1"}


def test_a_removed_working_directory_is_no_obstacle(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    (tmp_path / "target").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert not is_pinned(tmp_path / "target")


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("pinned_later", [True, False])
def test_whoever_comes_next_finishes_an_interrupted_publishing(tmp_path, monkeypatch, pinned, pinned_later):
    monkeypatch.setattr(disk, "_renameat2", lambda: None)
    target = tmp_path / "target"
    publish(target, a="old", b="old", c="old")
    (target / "mine").write_text("mine")
    staging = sealed(target, place_of(target, pinned=pinned), a="new", b="new", d="new")
    moved = []

    def observe(operation, *paths):
        moved.append(operation)
        if moved.count("rename") == 3:
            raise KeyboardInterrupt

    with disk.observed(observe), pytest.raises(KeyboardInterrupt):
        staging.publish()
    staging.release()  # as its process does when it ends
    assert texts(target)["b"] == "old"
    assert texts(target)["a"] == "new"
    recover(place_of(target, pinned=pinned_later))
    assert texts(target) == {"a": "new", "b": "new", "d": "new", "mine": "mine"}
    assert is_whole(target)
    assert os.listdir(tmp_path) == ["target"]
    recover(place_of(target))
    assert is_whole(target)


def test_a_staging_folder_that_was_left_is_not_taken_over(tmp_path):
    target = tmp_path / "target"
    sealed(target, a="abandoned", b="abandoned")
    publish(target, a="new")
    assert texts(target) == {"a": "new"}
    assert os.listdir(tmp_path) == ["target"]


def test_leftovers_in_a_shared_staging_folder_go_too(tmp_path):
    parent = tmp_path / ".staging"
    (parent / "checkpoint_7.removed").mkdir(parents=True)
    target = tmp_path / "checkpoints" / "checkpoint_0"
    staging = sealed(target, place_of(target, parent), a="new")
    assert os.listdir(parent) == ["checkpoint_0"]
    staging.publish()
    staging.remove_parent()
    assert sorted(os.listdir(tmp_path)) == ["checkpoints"]


def test_discarding_leaves_nothing(tmp_path):
    target = tmp_path / "checkpoints" / "checkpoint_0"
    sealed(target, place_of(target, tmp_path / ".staging"), a="new").discard()
    assert os.listdir(tmp_path) == ["checkpoints"]
    assert not os.listdir(tmp_path / "checkpoints")


def test_whose_files_are_whose(tmp_path):
    publish(tmp_path / "target", a="1", inner__b="2")
    (tmp_path / "target" / "optimizer.bin").touch()
    assert own_files(tmp_path / "target") == {"a", "inner/b", MANIFEST}
    (tmp_path / "target" / MANIFEST).write_text("damaged")
    assert own_files(tmp_path / "target") == {"optimizer.bin", MANIFEST}


def test_generations_are_in_the_order_of_saves(monkeypatch):
    times = iter([999.5, 10000.25])
    monkeypatch.setattr("time.time", lambda: next(times))
    assert new_generation() < new_generation()
