"""A refusal of the system names the file, what it takes and what is free; nothing is lost by it."""

import errno
import os
import pickle
import resource
import signal
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from accelerate.checkpoint import disk, files
from accelerate.checkpoint.space import explained, size_in_words
from accelerate.errors import AccelerateError, CheckpointError, CheckpointWriteError

BIG = {"a": torch.ones(1_000_000)}  # more than what is gathered before it is written


@contextmanager
def limited(size):
    """Let no file of this process grow beyond a size, so that the kernel itself refuses.

    Not for a whole test: the report of the tests may go to a file, too.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parametrize("size", [0, 300, 2_000_000])
def test_the_kernels_refusal_is_what_is_said(tmp_path, size, safe):
    path = tmp_path / "file"
    path.write_text("as it was")
    with pytest.raises(CheckpointWriteError) as raised, limited(size):
        files.save(BIG, path, safe_serialization=safe)
    text = str(raised.value)
    assert text.startswith(f"Writing failed: [Errno {errno.EFBIG}] File too large: '{tmp_path}/.file.")
    assert "see `ulimit -f`. What this rank writes takes 4.0 MB, and " in text
    assert raised.value.errno == errno.EFBIG
    assert path.read_text() == "as it was"
    assert os.listdir(tmp_path) == ["file"]


def test_it_is_the_error_that_callers_catch():
    error = CheckpointWriteError("text", number=errno.ENOSPC, path="name")
    assert isinstance(error, OSError)
    assert isinstance(error, CheckpointError)
    assert isinstance(error, AccelerateError)
    assert (str(error), error.errno, error.filename) == ("text", errno.ENOSPC, "name")
    assert str(pickle.loads(pickle.dumps(error))) == "text"


@pytest.mark.parametrize("operation", ["write", "sync"])
@pytest.mark.parametrize("safe", [True, False])
def test_every_call_names_its_file(tmp_path, monkeypatch, operation, safe):
    def refuse(*args):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, {"write": "write", "sync": "fsync"}[operation], refuse)
    with pytest.raises(OSError, match=rf"^\[Errno 5\] Input/output error: '{tmp_path}/file'$"):
        files.write_new(BIG, tmp_path / "file", safe_serialization=safe)
    monkeypatch.undo()
    monkeypatch.setattr(os, "fsync", refuse)
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(OSError, match=rf"^\[Errno 5\] Input/output error: '{path}'$"):
            disk.sync(path)


def refused(place, number, needed=None):
    with pytest.raises(CheckpointWriteError) as raised, explained(place, needed):
        raise OSError(number, os.strerror(number))
    return str(raised.value)


def test_what_is_needed_and_what_was_free(tmp_path, monkeypatch):
    (tmp_path / "staging" / "deep").mkdir(parents=True)
    (tmp_path / "staging" / "deep" / "half").write_bytes(bytes(5_000))
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=1_000))
    place = tmp_path / "staging"
    text = refused(place, errno.ENOSPC, lambda: 20_000)
    expected = "What this rank writes takes 20.0 kB, and 6.0 kB were free on that file system."
    assert text == f"Writing {place} failed: [Errno 28] No space left on device. {expected}"
    assert refused(place, errno.ENOSPC).endswith(". 6.0 kB were free on that file system.")
    assert refused(place, errno.EDQUOT).endswith(". A quota is used up, which may be less than what is free.")
    assert (
        refused(place, errno.EACCES, lambda: 20_000)
        == f"Writing {place} failed: [Errno 13] Permission denied."
    )


def test_a_folder_that_has_gone_is_no_hindrance(tmp_path):
    assert "were free on that file system" in refused(tmp_path / "gone" / "staging", errno.ENOSPC)


def test_what_is_no_refusal_stays_what_it_is(tmp_path):
    for error in (CheckpointError("damaged"), ValueError("no")):
        with pytest.raises(type(error)) as raised, explained(tmp_path):
            raise error
        assert raised.value is error


def test_memory_that_is_shared_counts_once():
    tensor = torch.ones(100)
    assert files.size_of({"a": tensor, "b": [tensor, {"c": torch.ones(3)}], "d": "text"}) == 412
    assert files.size_of(torch.ones(3, device="meta")) == 0


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (99_940, "99.9 kB"),
        (123_456_789, "123 MB"),
        (5e18, "5000.0 PB"),
    ],
)
def test_sizes_in_words(size, words):
    assert size_in_words(size) == words
