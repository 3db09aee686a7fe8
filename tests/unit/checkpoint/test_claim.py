"""A folder belongs to one process while it works in it, and to nobody once that has ended."""

import errno
import os
import subprocess
import sys

import pytest

from accelerate.checkpoint import claim, disk
from accelerate.checkpoint.claim import Claim, wait_for
from accelerate.checkpoint.commit import Staging, recover
from accelerate.checkpoint.place import place_of
from accelerate.errors import CheckpointError

HOLD = "import sys; from pathlib import Path; from accelerate.checkpoint.claim import Claim\n"
HOLD += "held = Claim(Path(sys.argv[1])); print(flush=True); sys.stdin.read()"


@pytest.fixture
def held(tmp_path):
    """Give a folder that another process holds, and the process."""
    folder = tmp_path / "held"
    folder.mkdir()
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield folder, process
        process.kill()


def test_a_process_that_dies_lets_go(held):
    folder, process = held
    with pytest.raises(CheckpointError, match=f"^Another process works in {folder}: it saves into the same"):
        Claim(folder)
    process.kill()
    process.wait()
    Claim(folder).release()


def test_a_claim_goes_with_the_folder_under_any_name(tmp_path):
    (tmp_path / "a").mkdir()
    mine = Claim(tmp_path / "a")
    os.rename(tmp_path / "a", tmp_path / "b")
    assert mine.holds(tmp_path / "b")
    assert not mine.holds(tmp_path / "a")
    with pytest.raises(CheckpointError):
        Claim(tmp_path / "b")
    (tmp_path / "a").mkdir()
    assert not mine.holds(tmp_path / "a")
    mine.release()
    mine.release()
    Claim(tmp_path / "b").release()


def test_a_forked_child_does_not_keep_it(tmp_path):
    mine = Claim(tmp_path)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(reading, 1)
        os._exit(0)
    mine.release()
    Claim(tmp_path).release()
    os.write(writing, b"x")
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)


def test_a_file_system_without_locks_still_tells_that_a_folder_was_replaced(tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(claim.fcntl, "flock", refuse)
    staging = Staging(place_of(tmp_path / "run"))
    staging.begin()
    other = Staging(place_of(tmp_path / "run"))
    other.begin()
    with pytest.raises(CheckpointError, match="was removed or replaced while the checkpoint was written"):
        staging.seal({}, generation="1", step=0, world_size=1, rank=0)
    staging.discard()
    assert other.folder.is_dir()
    other.seal({}, generation="2", step=0, world_size=1, rank=0)
    other.publish()


def test_a_system_without_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(claim, "fcntl", None)
    assert Claim(tmp_path / "anything").holds(tmp_path)
    Claim(tmp_path).release()


def test_who_begins_leaves_what_another_one_makes(held, tmp_path):
    folder, _ = held
    (tmp_path / ".staging").mkdir()
    os.rename(folder, tmp_path / ".staging" / "checkpoint_1")
    (tmp_path / ".staging" / "checkpoint_0").mkdir()
    (tmp_path / ".staging" / "left").write_text("a file")
    with pytest.raises(CheckpointError, match="Another process works in"):
        Staging(place_of(tmp_path / "checkpoints" / "checkpoint_1", tmp_path / ".staging")).begin()
    staging = Staging(place_of(tmp_path / "checkpoints" / "checkpoint_2", tmp_path / ".staging"))
    staging.begin()
    assert sorted(os.listdir(tmp_path / ".staging")) == ["checkpoint_1", "checkpoint_2"]


def test_a_folder_that_appears_just_now_is_another_ones(tmp_path):
    staging = Staging(place_of(tmp_path / "run"))

    def be_first(operation, *paths):
        if operation == "mkdir":
            paths[0].mkdir()

    with disk.observed(be_first), pytest.raises(CheckpointError, match="Another process works in"):
        staging.begin()
    staging.discard()
    assert staging.folder.is_dir()


def test_who_finds_a_journal_waits_for_who_publishes(held, tmp_path, monkeypatch):
    folder, process = held
    place = place_of(tmp_path / "run")
    (folder / "accelerate_manifest.json").write_text("never read")
    os.rename(folder, place.journal)
    monkeypatch.setattr(claim, "PATIENCE", 0.2)
    with pytest.raises(CheckpointError, match="Another process works in"):
        recover(place)

    def finish(seconds):
        (place.journal / "accelerate_manifest.json").unlink()
        place.journal.rmdir()
        process.kill()

    monkeypatch.setattr(claim.time, "sleep", finish)
    monkeypatch.setattr(claim, "PATIENCE", 60)
    recover(place)
    assert not place.target.exists()


def test_nothing_to_wait_for(tmp_path):
    assert wait_for(tmp_path / "gone") is None
