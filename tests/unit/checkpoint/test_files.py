"""A file is whole or absent, the right process writes it, and reading never runs what it holds."""

import collections
import io
import os
import pickle
import random
import signal
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from accelerate.checkpoint import files
from accelerate.errors import CheckpointError, MissingCheckpointFileError, UnsafeCheckpointError


class RunsOnLoad:
    """Pickles as a call that makes a file."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


class Plain:
    """A class that torch does not know."""


@pytest.mark.parametrize("safe", [True, False])
def test_round_trip_is_bit_for_bit(tmp_path, safe):
    state = {"weight": torch.randn(3, 4), "half": torch.randn(3).half(), "count": torch.tensor(3)}
    files.save(state, tmp_path / "file", safe_serialization=safe)
    loaded = files.read_safetensors(tmp_path / "file") if safe else files.load(tmp_path / "file")
    assert set(loaded) == set(state)
    for name, value in state.items():
        assert loaded[name].dtype == value.dtype
        assert torch.equal(loaded[name], value)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_safetensors_say_that_they_are_torchs(tmp_path):
    files.save({"a": torch.ones(1)}, tmp_path / "file", safe_serialization=True)
    header = (tmp_path / "file").read_bytes()
    assert b'"__metadata__":{"format":"pt"}' in header


def test_safetensors_take_tied_and_transposed_tensors(tmp_path, caplog):
    weight = torch.randn(2, 3)
    files.save(
        {"a": weight, "b": weight, "t": torch.randn(2, 3).t()}, tmp_path / "file", safe_serialization=True
    )
    assert list(load_file(tmp_path / "file")) == ["a", "t"]
    assert "'b'" in caplog.text


@pytest.mark.parametrize("safe", [True, False])
def test_open_files_are_written_to(safe):
    buffer = io.BytesIO()
    files.save({"a": torch.arange(3)}, buffer, safe_serialization=safe)
    buffer.seek(0)
    if safe:
        assert b'"format":"pt"' in buffer.getvalue()
    else:
        assert torch.equal(files.load(buffer)["a"], torch.arange(3))


@pytest.mark.parametrize(("obj", "named"), [({"a": 3}, "'a' is a int"), ([torch.ones(1)], "obj is a list")])
def test_safetensors_refuse_what_they_cannot_hold(tmp_path, obj, named):
    with pytest.raises(TypeError, match=named):
        files.save(obj, tmp_path / "file", safe_serialization=True)
    assert not list(tmp_path.iterdir())


def test_permissions_are_those_of_any_new_file(tmp_path):
    (tmp_path / "plain").touch()
    expected = stat.S_IMODE((tmp_path / "plain").stat().st_mode)
    for safe in (True, False):
        files.save({"a": torch.ones(1)}, tmp_path / "file", safe_serialization=safe)
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == expected


# ---- who writes


@pytest.mark.parametrize(
    ("variables", "on_each_node", "writes"),
    [
        ({}, False, True),
        ({"RANK": "0", "LOCAL_RANK": "0"}, False, True),
        ({"RANK": "1", "LOCAL_RANK": "1"}, False, False),
        ({"RANK": "2", "LOCAL_RANK": "0"}, False, False),
        ({"RANK": "2", "LOCAL_RANK": "0"}, True, True),
        ({"RANK": "3", "LOCAL_RANK": "1"}, True, False),
    ],
)
def test_the_main_process_writes(tmp_path, monkeypatch, variables, on_each_node, writes):
    if variables:
        variables = {**variables, "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    files.save({"a": 1}, tmp_path / "file", save_on_each_node=on_each_node)
    assert (tmp_path / "file").exists() == writes


# ---- whole or absent


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(MissingCheckpointFileError, match=r"the folder .*nowhere does not exist"):
        files.save({}, tmp_path / "nowhere" / "file")


class Unpicklable:
    def __reduce__(self):
        raise OSError("disk full")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    files.save("old", tmp_path / "file")
    with pytest.raises(OSError, match="disk full"):
        files.save([torch.ones(1000), Unpicklable()], tmp_path / "file")
    assert files.load(tmp_path / "file") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


KILLED = """
import os, signal, sys, time, torch
from accelerate.checkpoint import files
class Killer:
    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGKILL)
files.save({"first": torch.ones(100_000), "second": Killer()}, sys.argv[1])
"""


@pytest.mark.parametrize("old", [True, False])
def test_killed_while_writing(tmp_path, old):
    path = tmp_path / "file"
    if old:
        files.save("old", path)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    left = [other.name for other in tmp_path.iterdir() if other != path]
    assert len(left) == 1
    assert left[0].startswith(".file.")
    assert left[0].endswith(".partial")
    assert path.exists() == old
    if old:
        assert files.load(path) == "old"


def test_the_file_and_its_name_are_on_the_disk_before_save_returns(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace

    def recorded_fsync(descriptor):
        events.append(("fsync", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def recorded_replace(source, target):
        events.append(("replace", str(source)))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    files.save({"a": torch.ones(1)}, tmp_path / "file", safe_serialization=True)
    temporary = events[0][1]
    assert events == [("fsync", temporary), ("replace", temporary), ("fsync", str(tmp_path))]


def test_a_mapped_file_keeps_its_values(tmp_path):
    path = tmp_path / "file"
    files.save({"a": torch.ones(100_000)}, path)
    mapped = torch.load(path, mmap=True, weights_only=True)["a"]
    files.save({"a": torch.zeros(1)}, path)
    assert torch.equal(mapped, torch.ones(100_000))


def test_a_pipe_is_written_to_not_replaced(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE) as reader:
        files.save({"a": 1}, path)
        assert torch.load(io.BytesIO(reader.communicate(timeout=30)[0]), weights_only=True) == {"a": 1}
    assert stat.S_ISFIFO(path.stat().st_mode)


# ---- reading


def test_a_missing_file_is_named_with_what_is_there(tmp_path):
    (tmp_path / "other.bin").touch()
    with pytest.raises(MissingCheckpointFileError, match=r"optimizer\.bin does not exist.*holds other\.bin"):
        files.load(tmp_path / "optimizer.bin")
    with pytest.raises(FileNotFoundError, match="its folder does not exist"):
        files.load(tmp_path / "nowhere" / "optimizer.bin")


def test_numbers_of_numpy_and_plain_containers_load(tmp_path):
    obj = {
        "states": (random.getstate(), np.random.get_state()),
        "arrays": [np.arange(3.0), np.arange(3, dtype=np.int8), np.array(True)],
        "numbers": [np.float64(0.5), np.int64(3), 1.5, None, "text"],
        "ordered": collections.OrderedDict(a=1),
    }
    files.save(obj, tmp_path / "file")
    loaded = files.load(tmp_path / "file")
    assert loaded["states"][0] == random.getstate()
    assert np.array_equal(loaded["states"][1][1], np.random.get_state()[1])
    assert all(np.array_equal(*pair) for pair in zip(loaded["arrays"], obj["arrays"], strict=True))
    assert loaded["numbers"] == obj["numbers"]
    assert files.unsafe_names(tmp_path / "file") == []


def test_arrays_pickled_by_the_other_major_version_of_numpy_load(tmp_path):
    files.save({"a": np.arange(3), "b": np.float32(2)}, tmp_path / "new")
    here, there = ("numpy._core", "numpy.core") if np.__version__ >= "2" else ("numpy.core", "numpy._core")
    with zipfile.ZipFile(tmp_path / "new") as source, zipfile.ZipFile(tmp_path / "old", "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith("data.pkl"):
                assert here.encode() in content
                content = content.replace(here.encode(), there.encode())
            target.writestr(name, content)
    loaded = files.load(tmp_path / "old")
    assert np.array_equal(loaded["a"], np.arange(3))
    assert loaded["b"] == 2


@pytest.mark.parametrize("kind", ["torch.save", "legacy torch.save", "pickle"])
def test_a_crafted_file_does_not_run(tmp_path, kind):
    marker, path = tmp_path / "marker", tmp_path / "file"
    crafted = {"a": RunsOnLoad(marker)}
    if kind == "pickle":
        path.write_bytes(pickle.dumps(crafted, protocol=2))
    else:
        torch.save(crafted, path, _use_new_zipfile_serialization=kind == "torch.save")
    with pytest.raises(UnsafeCheckpointError, match=r"file was not loaded: it needs (posix|nt)\.mkdir"):
        files.load(path)
    assert not marker.exists()
    if kind == "torch.save":
        files.load(path, weights_only=False)
        assert marker.exists()  # it would have run


def test_the_ways_out_of_a_refusal(tmp_path):
    path = tmp_path / "file"
    files.save(Plain(), path)
    with pytest.raises(pickle.UnpicklingError, match=r"Plain.*add_safe_globals.*weights_only=False"):
        files.load(path)
    assert files.unsafe_names(path) == [f"{Plain.__module__}.Plain"]
    assert isinstance(files.load(path, weights_only=False), Plain)
    with torch.serialization.safe_globals([Plain]):
        assert isinstance(files.load(path), Plain)
        assert files.unsafe_names(path) == []


def test_what_the_user_allowed_stays_allowed_and_nothing_else_does(tmp_path):
    files.save(np.arange(3), tmp_path / "file")
    before = set(torch.serialization.get_safe_globals())
    with torch.serialization.safe_globals([np.ndarray]):
        files.load(tmp_path / "file")
        assert np.ndarray in torch.serialization.get_safe_globals()
    assert set(torch.serialization.get_safe_globals()) == before


@pytest.mark.parametrize("damage", ["empty", "cut", "text"])
@pytest.mark.parametrize("safe", [True, False])
def test_a_damaged_file_is_named(tmp_path, damage, safe):
    path = tmp_path / "file"
    files.save({"a": torch.ones(100)}, path, safe_serialization=safe)
    content = path.read_bytes()
    path.write_bytes(
        {"empty": b"", "cut": content[: len(content) // 2], "text": b"hello world\n" * 9}[damage]
    )
    with pytest.raises(CheckpointError, match="file cannot be read: it is damaged"):
        files.read_safetensors(path) if safe else files.load(path)


@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parametrize("device", ["cpu", "cpu:0", torch.device("cpu", 0)])
def test_the_device_of_a_cpu_rank_is_a_place_to_load_to(tmp_path, device, safe):
    files.save({"a": torch.ones(2)}, tmp_path / "file", safe_serialization=safe)
    read = files.read_safetensors if safe else files.load
    assert read(tmp_path / "file", device)["a"].device.type == "cpu"


def test_the_interfaces_list_of_safe_names():
    assert [item.__name__ for item in files.TORCH_SAFE_GLOBALS] == [
        "_reconstruct",
        "ndarray",
        "encode",
        "dtype",
        "UInt32DType",
    ]


def test_paths_of_every_kind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files.save({"a": 1}, "relative")
    files.save({"a": 1}, Path("other"))
    assert files.load("relative") == files.load(tmp_path / "other") == {"a": 1}
