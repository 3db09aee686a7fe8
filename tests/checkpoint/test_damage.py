"""A damaged checkpoint is an error that names the file, never a wrong load; a crafted one does not run."""

import copy
import json
import os
import random
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from accelerate.accelerator import Accelerator
from accelerate.checkpoint import manifest
from accelerate.checkpoint.manifest import MANIFEST
from accelerate.errors import CheckpointError, UnsafeCheckpointError
from accelerate.state import AcceleratorState, GradientState

FILES = [
    "model.safetensors",
    "pytorch_model.bin",
    "optimizer.bin",
    "scheduler.bin",
    "dl_state_dict.bin",
    "scaler.pt",
    "random_states_0.pkl",
    "custom_checkpoint_0.pkl",
    "gradients_0.safetensors",
    MANIFEST,
]
PICKLES = [name for name in FILES if not name.endswith((".safetensors", ".json"))]


class Registered:
    """A registered object."""

    def __init__(self):
        self.state = {"numbers": [1, 2.5], "tensor": torch.arange(4.0)}

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


class RunsOnLoad:
    """Pickles as a call that makes a folder."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


class Training:
    """A run inside an accumulation window, with an object of every kind."""

    def __init__(self, seed):
        self.accelerator = Accelerator(cpu=True, mixed_precision="fp16", gradient_accumulation_steps=3)
        torch.manual_seed(seed)
        model = nn.Linear(4, 4)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
        self.objects = self.accelerator.prepare(model, optimizer, scheduler)
        self.loader = self.accelerator.prepare(DataLoader(torch.arange(20.0), batch_size=2, shuffle=True))
        for _ in zip(range(1 + seed), self.loader, strict=False):
            continue
        self.registered = Registered()
        self.accelerator.register_for_checkpointing(self.registered)
        model, optimizer, scheduler = self.objects
        for _ in range(4):
            with self.accelerator.accumulate(model):
                self.accelerator.backward(model(torch.randn(2, 4)).square().mean())
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()

    def state(self):
        """Return all that loading may change."""
        states = [item.state_dict() for item in (*self.objects, self.loader)]
        gradients = [parameter.grad for parameter in self.objects[0].parameters()]
        scaler = self.accelerator.scaler.state_dict()
        generators = (random.getstate(), torch.get_rng_state())
        return copy.deepcopy([*states, self.registered.state, gradients, scaler, generators])


def equal(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(equal(*pair) for pair in zip(one, other, strict=True))
    return one == other


@pytest.fixture(autouse=True)
def fresh():
    yield
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


def saved(folder, name):
    """Save a checkpoint that has a file of this name."""
    Training(0).accelerator.save_state(folder, safe_serialization=name != "pytorch_model.bin")
    assert (folder / name).exists()
    return folder / name


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_named_and_nothing_is_loaded(tmp_path, name):
    path = saved(tmp_path, name)
    content = path.read_bytes()
    training = Training(1)
    before = training.state()
    chance = random.Random(0)
    damages = [content[: int(part * len(content))] for part in (0, 0.01, 0.5, 0.99)] + [content + b"\0"]
    for _ in range(12):
        flipped = bytearray(content)
        flipped[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        damages.append(bytes(flipped))
    for damaged in damages:
        path.write_bytes(damaged)
        if name == MANIFEST and _is_the_same(damaged, content):
            continue
        with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
            training.accelerator.load_state(tmp_path)
        assert equal(training.state(), before)
    path.write_bytes(content)
    training.accelerator.load_state(tmp_path)
    assert not equal(training.state(), before)


def _is_the_same(text, other):
    """Return whether two texts are the same JSON: a space may have become another one."""
    try:
        return json.loads(text) == json.loads(other)
    except ValueError:
        return False


@pytest.mark.parametrize("name", [name for name in FILES if name != MANIFEST])
@pytest.mark.parametrize("part", [0, 0.01, 0.5, 0.99])
def test_without_a_manifest_a_cut_file_is_still_named(tmp_path, name, part):
    path = saved(tmp_path, name)
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    (tmp_path / MANIFEST).unlink()
    training = Training(1)
    if name.startswith("random_states"):
        with pytest.warns(UserWarning, match=r"random_states_0\.pkl cannot be read: it is damaged"):
            training.accelerator.load_state(tmp_path)
    else:
        with pytest.raises(CheckpointError, match=rf"{name} cannot be read: it is damaged"):
            training.accelerator.load_state(tmp_path)


def load(training, folder):
    """Load, and return what is said against it."""
    try:
        training.accelerator.load_state(folder)
    except CheckpointError as error:
        return [str(error)]
    return []


@pytest.mark.parametrize("name", PICKLES)
def test_without_a_manifest_the_checksums_inside_a_pickle_count(tmp_path, name):
    path = saved(tmp_path, name)
    (tmp_path / MANIFEST).unlink()
    training = Training(1)
    training.accelerator.load_state(tmp_path)
    right = training.state()
    content, chance, found = path.read_bytes(), random.Random(1), 0
    for _ in range(25):
        flipped = bytearray(content)
        flipped[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            said = load(training, tmp_path)
        said += [str(warning.message) for warning in caught]
        assert all(name in text for text in said)
        assert said or equal(training.state(), right)  # a byte that means nothing
        found += bool(said)
    assert found > 3


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("name", PICKLES)
def test_a_crafted_file_does_not_run(tmp_path, name, signed):
    path, marker = saved(tmp_path, name), tmp_path / "marker"
    torch.save({"a": RunsOnLoad(marker)}, path)
    content = manifest.read(tmp_path)
    if signed:  # who can write the file can write its checksum
        stamps = {**content.files, name: manifest.disk.stamp(path)}
        (tmp_path / MANIFEST).write_bytes(manifest.Manifest(**{**vars(content), "files": stamps}).encode())
    else:
        (tmp_path / MANIFEST).unlink()
    training = Training(1)
    if name.startswith("random_states"):
        with pytest.warns(UserWarning, match="was not loaded: it needs"):
            training.accelerator.load_state(tmp_path)
    else:
        with pytest.raises(
            UnsafeCheckpointError, match=rf"{name} was not loaded: it needs (posix|nt)\.mkdir"
        ):
            training.accelerator.load_state(tmp_path)
    assert not marker.exists()


def test_the_explicit_way_out_runs_what_it_is_told_to(tmp_path):
    path, marker = saved(tmp_path, "custom_checkpoint_0.pkl"), tmp_path / "marker"
    torch.save({"a": RunsOnLoad(marker)}, path)
    (tmp_path / MANIFEST).unlink()
    training = Training(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        training.accelerator.load_state(tmp_path, load_kwargs={"weights_only": False})
    assert marker.exists()


def test_what_is_ours_alone_is_no_pickle(tmp_path):
    saved(tmp_path, MANIFEST)
    interface = {
        "optimizer.bin",
        "scheduler.bin",
        "dl_state_dict.bin",
        "scaler.pt",
        "random_states_0.pkl",
        "custom_checkpoint_0.pkl",
    }
    ours = {path.name for path in tmp_path.iterdir()} - interface
    assert ours == {"model.safetensors", "gradients_0.safetensors", MANIFEST}
    json.loads((tmp_path / MANIFEST).read_text())
