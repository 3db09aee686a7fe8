"""The state dict of an offloaded model is that of the resident one, and is saved like it."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from accelerate import Accelerator
from accelerate.big_modeling import cpu_offload, disk_offload, dispatch_model
from accelerate.offload.hooks import ModelHook, add_hook_to_module
from accelerate.offload.state import full_state_dict, get_state_dict_offloaded_model


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.words(ids)))


def place(model: nn.Module, how: str, folder: Path) -> nn.Module:
    if how == "cpu":
        return cpu_offload(model)
    if how == "buffers":
        return cpu_offload(model, offload_buffers=True, preload_module_classes=["Tied"])
    if how == "disk":
        return disk_offload(model, folder)
    device_map: dict[str, Any] = {"words": "cpu", "norm": "disk", "head": "cpu"}
    return dispatch_model(model, device_map, offload_dir=folder)


@pytest.mark.parametrize("how", ["cpu", "buffers", "disk", "mixed"])
def test_all_weights_are_there(tmp_path: Path, how: str) -> None:
    model = Tied()
    expected = copy.deepcopy(model.state_dict())
    place(model, how, tmp_path / "offload")
    add_hook_to_module(model.norm, ModelHook(), append=True)
    model.eval()(torch.tensor([1, 2]))
    assert any(value.is_meta for value in model.state_dict().values())
    for state in (full_state_dict(model), get_state_dict_offloaded_model(model)):
        assert list(state) == list(expected)
        assert all(torch.equal(value, expected[name]) for name, value in state.items())
    accelerator = Accelerator(cpu=True)
    accelerator.save_model(model, tmp_path / "saved")
    saved = load_file(tmp_path / "saved" / "model.safetensors")
    assert all(torch.equal(value, expected[name]) for name, value in saved.items())
    assert len({"words.weight", "head.weight"} & saved.keys()) == 1
    assert any(value.is_meta for value in model.state_dict().values())


def test_the_dtype_is_that_of_the_model() -> None:
    assert full_state_dict(cpu_offload(nn.Linear(2, 2)).half())["weight"].dtype == torch.float16


def test_what_has_no_value_stays_away(tmp_path: Path) -> None:
    model = nn.Linear(2, 2, device="meta")
    assert full_state_dict(model)["weight"].is_meta
    assert get_state_dict_offloaded_model(model)["bias"].is_meta
    with pytest.raises(RuntimeError, match="some parameters are on the meta device"):
        Accelerator(cpu=True).save_model(model, tmp_path)
