"""The contract between `Strategy.save` and `load` and the commit, by an engine that writes its own folders.

As torch.distributed.checkpoint and DeepSpeed do, every rank writes files of its own, in folders, and one
writes what all of them need.
"""

import json
import os
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from accelerate.accelerator import Accelerator
from accelerate.checkpoint import manifest
from accelerate.errors import CheckpointError
from accelerate.runtime.accumulation import accumulation
from accelerate.strategies.base import Owned
from accelerate.strategies.ddp import DDP

NAMES = ("pytorch_model_fsdp_0", "optimizer_0")
LAYOUT = {
    "shards": ["pytorch_model_fsdp_0/.metadata", "optimizer_0/.metadata"],
    "tags": ["latest"],
}


class Engine(DDP):
    """Writes models and optimizers by itself, a shard a rank."""

    layout = "shards"
    fails_on = -1
    owns = Owned(models=True, optimizers=True)

    def save(self, models, optimizers, folder, **kwargs):
        rank = self.run.process_index
        assert folder.is_dir()
        if rank == self.fails_on:
            raise OSError(28, "No space left on device")
        for name, objects in zip(NAMES, (models, optimizers), strict=True):
            path = folder / self.place(name, rank)
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.save([item.state_dict() for item in objects], path)
        if rank == 0:
            for name in LAYOUT[self.layout]:
                (folder / name).write_text(json.dumps({"ranks": self.run.num_processes, **kwargs}))
        return self.owns

    def load(self, models, optimizers, folder):
        rank = self.run.process_index
        for name, objects in zip(NAMES, (models, optimizers), strict=True):
            states = torch.load(folder / self.place(name, rank), weights_only=True)
            for item, state in zip(objects, states, strict=True):
                item.load_state_dict(state)
        return self.owns

    def place(self, name, rank):
        if self.layout == "shards":
            return f"{name}/__{rank}_0.distcp"
        return f"pytorch_model/{name}_zero_pp_rank_{rank}.pt"


def training(layout="shards", fails_on=-1, owns=Engine.owns):
    accelerator = Accelerator(cpu=True)
    engine = accelerator._strategy
    engine.__class__ = Engine
    engine.layout, engine.fails_on, engine.owns = layout, fails_on, owns
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer = accelerator.prepare(model, optimizer)
    accelerator.backward(model(torch.ones(2, 3)).sum())
    optimizer.step()
    optimizer.zero_grad()
    return accelerator, model


def round_trip(folder, layout):
    accelerator, model = training(layout)
    accelerator.save_state(folder, note="kept")
    weight = model.module.weight.detach().clone()
    with torch.no_grad():
        model.module.weight.zero_()
    accelerator.load_state(folder)
    return torch.equal(model.module.weight, weight), manifest.files_in(Path(folder))


@pytest.mark.parametrize("layout", LAYOUT)
def test_folders_of_an_engine_are_part_of_the_checkpoint(rank_pool, tmp_path, layout):
    folder = tmp_path / "folder"
    (same, names), (same_too, _) = rank_pool.run(round_trip, str(folder), layout, num_ranks=2)
    assert same
    assert same_too
    content = manifest.read(folder)
    assert set(names) == {*content.files, manifest.MANIFEST}
    shards = {Engine.place(SimpleNamespace(layout=layout), *shard) for shard in product(NAMES, (0, 1))}
    rest = {"random_states_0.pkl", "random_states_1.pkl", manifest.MANIFEST}
    assert set(names) == shards | rest | set(LAYOUT[layout])
    assert list(manifest.problems(folder, content.files)) == []
    for name in LAYOUT[layout]:
        assert json.loads((folder / name).read_text()) == {"ranks": 2, "note": "kept"}
    assert os.listdir(tmp_path) == ["folder"]


def trace_of_syncs(folder):
    """Return which files this rank has brought to the disk."""
    from accelerate.checkpoint import disk

    accelerator, _ = training()
    synced = []
    with disk.observed(lambda operation, *paths: operation == "sync" and synced.append(paths[0].name)):
        accelerator.save_state(folder)
    return synced


def test_the_ranks_share_in_bringing_an_engines_files_to_the_disk(rank_pool, tmp_path):
    first, second = rank_pool.run(trace_of_syncs, str(tmp_path / "folder"), num_ranks=2)
    names = ["__0_0.distcp", "__1_0.distcp", ".metadata"]
    for name in names:
        assert (first + second).count(name) == 2  # one in each folder
    assert any(name in first for name in names)
    assert any(name in second for name in names)


def load_damaged(folder):
    accelerator, _ = training()
    accelerator.save_state(folder)
    if accelerator.is_main_process:
        with open(f"{folder}/optimizer_0/__1_0.distcp", "r+b") as file:
            file.seek(50)
            file.write(b"\xff\x00\xff")
    accelerator.wait_for_everyone()
    with pytest.raises(CheckpointError) as raised:
        accelerator.load_state(folder)
    return str(raised.value)


def test_a_damaged_shard_is_named_on_all_ranks(rank_pool, tmp_path):
    for message in rank_pool.run(load_damaged, str(tmp_path / "folder"), num_ranks=2):
        assert "optimizer_0/__1_0.distcp is damaged" in message


def overwrite(folder):
    accelerator, _ = training("tags")
    accelerator.save_state(folder)
    accelerator._strategy.layout = "shards"
    accelerator.save_state(folder)
    return manifest.files_in(Path(folder))


def test_another_layout_leaves_nothing_of_the_former(rank_pool, tmp_path):
    folder = tmp_path / "folder"
    names, _ = rank_pool.run(overwrite, str(folder), num_ranks=2)
    assert "latest" not in names
    assert not (folder / "pytorch_model").exists()


def fail(folder):
    accelerator, _ = training(fails_on=1)
    with pytest.raises(CheckpointError) as raised:
        accelerator.save_state(folder)
    accelerator.wait_for_everyone()
    return str(raised.value), os.listdir(os.path.dirname(folder))


def test_an_engine_that_fails_on_one_rank_is_named_on_all(rank_pool, tmp_path):
    for message, left in rank_pool.run(fail, str(tmp_path / "folder"), num_ranks=2):
        assert message.startswith("rank 1 failed while writing its files: CheckpointWriteError: Writing /")
        assert "failed: [Errno 28] No space left on device. " in message
        assert left == []


def save_inside_a_window(folder, owns):
    accelerator, _ = training(owns=owns)
    accumulation.sync_gradients = False
    try:
        accelerator.save_state(folder)
    except CheckpointError as error:
        return str(error)
    return sorted(os.listdir(folder))


def test_an_engine_that_keeps_its_gradients_refuses_inside_a_window(rank_pool, tmp_path):
    folder, owns = str(tmp_path / "folder"), Owned(models=True)
    for message in rank_pool.run(save_inside_a_window, folder, owns, num_ranks=2):
        assert "Save after the optimizer's step" in message
    owns = Owned(models=True, gradients=True)
    for names in rank_pool.run(save_inside_a_window, folder, owns, num_ranks=2):
        assert not any(name.startswith("gradients") for name in names)
        assert "optimizer.bin" in names
