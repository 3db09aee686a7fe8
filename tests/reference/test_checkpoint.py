"""Checkpoints of accelerate 1.15.0 load here, and ours load there.

The first direction uses folders recorded by record_checkpoint.py. The second runs the reference itself,
where ACCELERATE_REFERENCE_PYTHON names a Python that has it.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
from safetensors.torch import load_file

from accelerate.accelerator import Accelerator
from accelerate.checkpoint.manifest import MANIFEST
from accelerate.options.project import ProjectConfiguration
from accelerate.state import AcceleratorState, GradientState
from tests.reference.checkpoint_objects import describe, make

RECORDED = Path(__file__).parent / "data" / "checkpoint_1_15_0"
REFERENCE = os.environ.get("ACCELERATE_REFERENCE_PYTHON")


@pytest.fixture
def accelerator():
    yield Accelerator(cpu=True)
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


def prepared(accelerator, seed):
    objects = make(seed)
    objects.models = list(accelerator.prepare(*objects.models))
    objects.optimizers = list(accelerator.prepare(*objects.optimizers))
    objects.scheduler = accelerator.prepare(objects.scheduler)
    accelerator.register_for_checkpointing(*objects.counters)
    return objects


def as_json(value):
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("folder", ["safetensors", "pickles"])
def test_folders_of_the_reference_load_here(accelerator, folder):
    objects = prepared(accelerator, seed=2)
    accelerator.load_state(RECORDED / folder)
    expected = json.loads((RECORDED / "expected.json").read_text())
    assert expected.pop("recorded from") == "accelerate 1.15.0"
    assert as_json({"step": accelerator.step, **describe(objects)}) == expected


def test_the_same_objects_give_the_same_file_names(accelerator, tmp_path):
    prepared(accelerator, seed=1)
    for folder, safe in (("safetensors", True), ("pickles", False)):
        accelerator.save_state(tmp_path / folder, safe_serialization=safe)
    accelerator.save_model(accelerator._models[1], tmp_path / "shards", max_shard_size=24)
    for folder in ("safetensors", "pickles", "shards"):
        ours = {path.name for path in (tmp_path / folder).iterdir() if path.name != MANIFEST}
        assert ours == {path.name for path in (RECORDED / folder).iterdir()}
    for path in (RECORDED / "shards").glob("*.safetensors"):
        assert load_file(tmp_path / "shards" / path.name).keys() == load_file(path).keys()
    index = "model.safetensors.index.json"
    assert (tmp_path / "shards" / index).read_text() == (RECORDED / "shards" / index).read_text()


def run_reference(script, *arguments):
    """Return what a script prints with the reference's Python."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(
        [REFERENCE, str(Path(__file__).parent / script), *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(result.stdout.splitlines()[-1])


needs_reference = pytest.mark.skipif(
    REFERENCE is None, reason="ACCELERATE_REFERENCE_PYTHON names no Python with the reference"
)


@needs_reference
@pytest.mark.parametrize("safe", [True, False])
def test_ours_load_in_the_reference(accelerator, tmp_path, safe):
    objects = prepared(accelerator, seed=1)
    accelerator.step = 9
    accelerator.save_state(tmp_path / "folder", safe_serialization=safe)
    expected = as_json({"step": 9, **describe(objects)})
    assert run_reference("load_checkpoint.py", tmp_path / "folder") == expected


@needs_reference
def test_ours_from_inside_a_window_load_in_the_reference(accelerator, tmp_path):
    objects = prepared(accelerator, seed=1)
    accelerator.gradient_state._set_sync_gradients(False)
    accelerator.save_state(tmp_path / "folder")
    assert (tmp_path / "folder" / "gradients_0.safetensors").exists()
    expected = as_json({"step": 0, **describe(objects)})
    assert run_reference("load_checkpoint.py", tmp_path / "folder") == expected


@needs_reference
def test_both_number_checkpoints_in_one_project(accelerator, tmp_path):
    objects = prepared(accelerator, seed=1)
    accelerator.project_configuration = ProjectConfiguration(
        project_dir=str(tmp_path), automatic_checkpoint_naming=True, total_limit=2
    )
    for step in (8, 9):
        accelerator.step = step
        accelerator.save_state()
    expected = as_json({"step": 9, **describe(objects)})
    # What a save that was killed leaves is not in the way of the reference.
    left = tmp_path / ".staging" / "checkpoint_2"
    left.mkdir(parents=True)
    (left / "model.safetensors").write_bytes(b"half")
    assert run_reference("go_on_in_project.py", tmp_path, 2) == expected
    names = ["checkpoint_1", "checkpoint_2"]
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == names
    # Nothing tells whether that of the reference is whole, so that ours comes first, but its number counts.
    with pytest.warns(UserWarning, match=r"nothing tells whether they are whole: checkpoint_2\. Loading"):
        accelerator.load_state()
    assert accelerator.step == 9
    assert accelerator.save_iteration == 3
    accelerator.load_state(tmp_path / "checkpoints" / "checkpoint_2")
    assert accelerator.save_state().name == "checkpoint_3"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints"]
