"""Each file and folder of a checkpoint is on the disk before it is published; no flush is there in vain."""

import errno
import os

import pytest
import torch
from torch import nn

from accelerate.accelerator import Accelerator
from accelerate.checkpoint import disk
from accelerate.options.project import ProjectConfiguration
from accelerate.state import AcceleratorState, GradientState
from tests.checkpoint.durability import violations


@pytest.fixture(autouse=True)
def fresh():
    yield
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


def traced(folder, action):
    """Return the calls to the file layer, with paths relative to a folder."""
    calls = []

    def observe(operation, *paths):
        calls.append((operation, *(os.path.relpath(path, folder) for path in paths)))

    with disk.observed(observe):
        HOOKS_CALLS[:] = [observe]
        action()
    return calls


HOOKS_CALLS = []  # what notes the calls that a hook makes past the file layer


def accelerator_for(project=None):
    accelerator = Accelerator(cpu=True, project_config=project)
    model = nn.Linear(2, 2)
    accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    return accelerator


def numbered(folder, num_before):
    project = ProjectConfiguration(
        project_dir=str(folder / "new"), automatic_checkpoint_naming=True, total_limit=1
    )
    accelerator = accelerator_for(project)
    for _ in range(num_before):
        accelerator.save_state()
    return accelerator.save_state


def named(folder, num_before, *, inner=False, hook=False):
    accelerator = accelerator_for()
    target = folder / "runs" / "checkpoint"
    for _ in range(num_before):
        accelerator.save_state(target)
    if inner:
        (target / "mine" / "deep").mkdir(parents=True)
        (target / "mine" / "deep" / "file").write_text("mine")
        (target / "mine" / "link").symlink_to("deep/file")
        (target / "notes").write_text("mine")
    if hook:
        accelerator.register_save_state_pre_hook(write_elsewhere)
    return lambda: accelerator.save_state(target)


def write_elsewhere(models, weights, folder):
    """Write a folder of one's own, past the file layer."""
    (tell,) = HOOKS_CALLS or [lambda operation, path: None]
    for name in ("unet", "unet/parts"):
        tell("mkdir", f"{folder}/{name}")
        os.mkdir(f"{folder}/{name}")
    tell("create", f"{folder}/unet/parts/weights")
    with open(f"{folder}/unet/parts/weights", "w") as file:
        file.write("x" * 100)


def journal(folder, num_before, monkeypatch, **kwargs):
    monkeypatch.setattr(disk, "_renameat2", lambda: None)
    return named(folder, num_before, **kwargs)


def inside(folder, num_before, monkeypatch, **kwargs):
    (folder / "runs" / "checkpoint").mkdir(parents=True)
    monkeypatch.chdir(folder / "runs" / "checkpoint")
    return named(folder, num_before, **kwargs)


CASES = {
    "the first of a project": lambda folder, patch: numbered(folder, 0),
    "the second of a project": lambda folder, patch: numbered(folder, 1),
    "a new folder": lambda folder, patch: named(folder, 0),
    "a folder that is used again": lambda folder, patch: named(folder, 1),
    "a folder with files of the user": lambda folder, patch: named(folder, 1, inner=True),
    "files of a hook": lambda folder, patch: named(folder, 1, hook=True),
    "no exchange": lambda folder, patch: journal(folder, 1, patch, inner=True, hook=True),
    "the working directory": lambda folder, patch: inside(folder, 1, patch, inner=True),
}


@pytest.mark.parametrize("case", CASES)
def test_all_is_on_the_disk_before_it_is_published(tmp_path, monkeypatch, case):
    save = CASES[case](tmp_path, monkeypatch)
    calls = traced(tmp_path, save)
    assert violations(calls) == []
    syncs = [index for index, call in enumerate(calls) if call[0] == "sync"]
    assert len(syncs) >= 6
    for index in syncs:
        assert violations(calls[:index] + calls[index + 1 :]), f"{calls[index]} is there in vain"


def test_a_file_that_is_replaced_by_itself_is_on_the_disk(tmp_path):
    from accelerate.checkpoint import files

    calls = traced(tmp_path, lambda: files.save({"a": 1}, tmp_path / "file"))
    assert [call[0] for call in calls] == ["create", "write", "sync", "rename", "sync"]
    assert violations(calls) == []


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK])
def test_without_hard_links_files_are_moved_one_by_one(tmp_path, number):
    save = named(tmp_path, 1, inner=True)

    def refuse(operation, *paths):
        if operation == "link":
            raise OSError(number, os.strerror(number))

    with disk.observed(refuse):
        calls = traced(tmp_path, save)
    assert ("rename", "runs/.checkpoint.staging", "runs/.checkpoint.publish") in calls
    assert violations(calls) == []
    assert (tmp_path / "runs" / "checkpoint" / "mine" / "deep" / "file").read_text() == "mine"
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["checkpoint"]
