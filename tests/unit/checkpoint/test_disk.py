"""Files are summed up while they are written, and each change on the disk is told before it is made."""

import errno
import os
import zlib

import pytest
import torch

from accelerate.checkpoint import disk
from accelerate.checkpoint.disk import Stamp


@pytest.mark.parametrize("sizes", [[], [0], [1, 2, 3], [3 << 20], [5, 3 << 20, 7, 1 << 20, 1]])
def test_a_written_file_is_summed_up(tmp_path, sizes):
    pieces = [os.urandom(size) for size in sizes]
    with disk.Writer(tmp_path / "file") as writer:
        assert [writer.write(piece) for piece in pieces] == sizes
    content = b"".join(pieces)
    assert (tmp_path / "file").read_bytes() == content
    assert writer.stamp == Stamp(size=len(content), crc32=zlib.crc32(content))
    assert disk.stamp(tmp_path / "file") == writer.stamp


def test_torch_writes_into_a_writer(tmp_path):
    state = {"a": torch.randn(1000, 1000), "b": [torch.ones(3), 7]}
    with disk.Writer(tmp_path / "file") as writer:
        torch.save(state, writer)
    loaded = torch.load(tmp_path / "file", weights_only=True)
    assert torch.equal(loaded["a"], state["a"])
    assert disk.stamp(tmp_path / "file") == writer.stamp


def test_a_file_that_is_there_is_not_written_over(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileExistsError):
        disk.Writer(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_failed_write_is_an_error_and_closes_the_file(tmp_path):
    def full(operation, *paths):
        if operation == "write":
            raise OSError(errno.ENOSPC, "No space left on device")

    opened = len(os.listdir("/proc/self/fd"))
    with (
        disk.observed(full),
        pytest.raises(OSError, match="No space left"),
        disk.Writer(tmp_path / "file") as writer,
    ):
        writer.write(os.urandom(2 << 20))
    assert len(os.listdir("/proc/self/fd")) == opened


def test_every_change_is_told_before_it_is_made(tmp_path):
    events = []

    def observe(operation, *paths):
        events.append((operation, *(path.relative_to(tmp_path).as_posix() for path in paths)))
        assert operation != "create" or not paths[0].exists()

    with disk.observed(observe):
        disk.make_folders(tmp_path / "a" / "b")
        with disk.Writer(tmp_path / "a" / "file") as writer:
            writer.write(b"x")
        disk.link(tmp_path / "a" / "file", tmp_path / "a" / "b" / "second")
        disk.symlink("nowhere", tmp_path / "a" / "link")
        disk.change_mode(tmp_path / "a" / "file", 0o600)
        disk.rename(tmp_path / "a" / "file", tmp_path / "a" / "other")
        disk.remove_tree(tmp_path / "a")
        disk.remove_tree(tmp_path / "a")
    assert events == [
        ("mkdir", "a"),
        ("sync", "."),
        ("mkdir", "a/b"),
        ("sync", "a"),
        ("create", "a/file"),
        ("write", "a/file"),
        ("sync", "a/file"),
        ("link", "a/file", "a/b/second"),
        ("symlink", "a/link"),
        ("chmod", "a/file"),
        ("rename", "a/file", "a/other"),
        ("unlink", "a/b/second"),
        ("rmdir", "a/b"),
        ("unlink", "a/link"),
        ("unlink", "a/other"),
        ("rmdir", "a"),
    ]
    assert not os.listdir(tmp_path)
    disk.make_folder(tmp_path / "unobserved")
    assert len(events) == 16


def test_a_tree_is_removed_without_following_links(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "mine")
    disk.remove_tree(tmp_path / "tree")
    assert (tmp_path / "mine" / "file").exists()


def test_two_folders_change_names_at_once(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    if not disk.can_exchange():
        pytest.skip("this system has no exchange")
    disk.exchange(tmp_path / "one", tmp_path / "other")
    assert os.listdir(tmp_path / "one") == ["other"]
    assert os.listdir(tmp_path / "other") == ["one"]
    with pytest.raises(FileNotFoundError):
        disk.exchange(tmp_path / "one", tmp_path / "nowhere")


def test_a_system_without_exchange_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "_renameat2", lambda: None)
    assert not disk.can_exchange()
    with pytest.raises(OSError, match=os.strerror(errno.ENOSYS)):
        disk.exchange(tmp_path, tmp_path)


@pytest.mark.parametrize(("number", "fails"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_file_system_that_cannot_flush_folders_is_fine(tmp_path, monkeypatch, number, fails):
    def fsync(descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    if fails:
        with pytest.raises(OSError, match="Input/output"):
            disk.sync(tmp_path)
    else:
        disk.sync(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=os.strerror(number)):
        disk.sync(tmp_path / "file")
