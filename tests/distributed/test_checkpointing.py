"""Checkpoints of several ranks: who writes what, and that training goes on as if it had never stopped."""

import os
import time
from datetime import timedelta

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from accelerate.accelerator import Accelerator
from accelerate.checkpoint import disk, files
from accelerate.errors import AbsentRankError
from accelerate.options.handlers import GradScalerKwargs, InitProcessGroupKwargs
from accelerate.options.project import ProjectConfiguration


def training(accelerator, seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    torch.manual_seed(seed + 1 + accelerator.process_index)  # dropout and data of each rank

    def steps(num):
        for _ in range(num):
            accelerator.backward(model(torch.randn(5, 3)).square().mean())
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        return [parameter.detach().clone() for parameter in model.parameters()], optimizer.param_groups[0][
            "lr"
        ]

    return steps


def save_and_go_on(folder):
    accelerator = Accelerator(cpu=True)
    steps = training(accelerator, 0)
    steps(3)
    accelerator.save_state(folder)
    return steps(3)


def load_and_go_on(folder):
    accelerator = Accelerator(cpu=True)
    steps = training(accelerator, 100)
    steps(1)
    accelerator.load_state(folder)
    return steps(3)


def test_a_resumed_run_equals_one_that_never_stopped(rank_pool, tmp_path):
    folder = str(tmp_path / "folder")
    never_stopped = rank_pool.run(save_and_go_on, folder, num_ranks=2)
    resumed = rank_pool.run(load_and_go_on, folder, num_ranks=2)
    for (weights, rate), (resumed_weights, resumed_rate) in zip(never_stopped, resumed, strict=True):
        assert rate == resumed_rate
        assert all(torch.equal(*pair) for pair in zip(weights, resumed_weights, strict=True))
    assert sorted(os.listdir(folder)) == [
        "accelerate_manifest.json",
        "model.safetensors",
        "optimizer.bin",
        "random_states_0.pkl",
        "random_states_1.pkl",
        "scheduler.bin",
    ]
    assert sorted(load_file(f"{folder}/model.safetensors")) == ["0.bias", "0.weight", "2.bias", "2.weight"]
    states = [files.load(f"{folder}/random_states_{rank}.pkl")["torch_manual_seed"] for rank in range(2)]
    assert not torch.equal(*states)


def fp16_training():
    """Return a function that makes steps, with a scale that grows until they overflow, and what they gave."""
    scaling = GradScalerKwargs(init_scale=2.0**20, growth_interval=3)
    accelerator = Accelerator(cpu=True, mixed_precision="fp16", kwargs_handlers=[scaling])
    steps = training(accelerator, 0)

    def go_on():
        weights, rate = steps(8)
        return weights, rate, accelerator.scaler.state_dict()

    return accelerator, go_on


def save_fp16_and_go_on(folder):
    accelerator, go_on = fp16_training()
    *_, scaler = go_on()
    accelerator.save_state(folder)
    return scaler, go_on()


def load_fp16_and_go_on(folder):
    accelerator, go_on = fp16_training()
    accelerator.load_state(folder)
    return accelerator.scaler.state_dict(), go_on()


def test_a_resumed_fp16_run_goes_on_with_the_scale_it_had(rank_pool, tmp_path):
    folder = str(tmp_path / "folder")
    never_stopped = rank_pool.run(save_fp16_and_go_on, folder, num_ranks=2)
    resumed = rank_pool.run(load_fp16_and_go_on, folder, num_ranks=2)
    for (at_save, expected), (at_load, result) in zip(never_stopped, resumed, strict=True):
        assert at_load == at_save == torch.load(f"{folder}/scaler.pt", weights_only=True)
        assert at_save["_growth_tracker"] > 0
        assert at_save["scale"] != expected[2]["scale"]
        assert result[1:] == expected[1:]
        assert all(torch.equal(*pair) for pair in zip(result[0], expected[0], strict=True))


def save_often(project_dir):
    project = ProjectConfiguration(project_dir=project_dir, automatic_checkpoint_naming=True, total_limit=2)
    accelerator = Accelerator(cpu=True, project_config=project)
    training(accelerator, 0)
    folders = [accelerator.save_state().name for _ in range(4)]
    accelerator.wait_for_everyone()
    return folders, sorted(os.listdir(f"{project_dir}/checkpoints"))


def test_automatic_naming_agrees_on_all_ranks(rank_pool, tmp_path):
    names = [f"checkpoint_{number}" for number in range(4)]
    assert rank_pool.run(save_often, str(tmp_path), num_ranks=2) == [(names, names[2:])] * 2


def save_slowly(folder):
    """Save while the disk of rank 0 takes longer than the time-out of the run, and load so."""
    handler = InitProcessGroupKwargs(timeout=timedelta(seconds=2))
    accelerator = Accelerator(cpu=True, kwargs_handlers=[handler])
    steps = training(accelerator, 0)
    steps(1)
    slow = [3.0] if accelerator.is_main_process else []

    def observe(operation, *paths):
        if operation == "sync" and slow:
            time.sleep(slow.pop())

    with disk.observed(observe):
        accelerator.save_state(folder)
    accelerator.load_state(folder)
    steps(1)
    start = time.monotonic()
    if not accelerator.is_main_process:
        with pytest.raises(AbsentRankError):  # the time-out is what it was
            accelerator.save_state(folder)
    else:
        time.sleep(3.0)
    return time.monotonic() - start


def test_a_disk_that_is_slower_than_the_time_out_is_waited_for(rank_pool, tmp_path):
    for seconds in rank_pool.run(save_slowly, str(tmp_path / "folder"), num_ranks=2):
        assert seconds < 8


def save_model(folder):
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(nn.Linear(2, 2))
    accelerator.save_model(model, folder)
    return sorted(os.listdir(folder))


def test_save_model_is_whole_on_all_ranks_when_it_returns(rank_pool, tmp_path):
    assert rank_pool.run(save_model, str(tmp_path / "folder"), num_ranks=2) == [["model.safetensors"]] * 2
