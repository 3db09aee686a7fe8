"""Which module gets which hook. The expected placements were seen on the interface's reference."""

from typing import Any

import pytest
import torch
from torch import nn

from accelerate.offload.attach import (
    attach_align_device_hook,
    attach_align_device_hook_on_blocks,
    attach_execution_device_hook,
)
from accelerate.offload.hooks import (
    ModelHook,
    SequentialHook,
    add_hook_to_module,
    remove_hook_from_submodules,
)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pair = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        self.drop = nn.Dropout(0.0)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.pair(x)) * self.scale


def _flags(*is_set: bool) -> str:
    return "".join(letter for letter, here in zip("ois", is_set, strict=True) if here) or "-"


def placement(model: nn.Module) -> dict[str, list[str]]:
    """Return, for every module with hooks, the flags of each: o(ffload), i(o), s(ubmodules); - for none."""
    found = {}
    for name, part in model.named_modules():
        hook: Any = vars(part).get("_hf_hook")
        if hook is not None:
            hooks = hook.hooks if isinstance(hook, SequentialHook) else [hook]
            found[name] = [_flags(one.offload, one.io_same_device, one.place_submodules) for one in hooks]
    return found


CASES = [
    ("cpu", False, {}, {"": ["is"]}),
    ("cpu", True, {}, {"0": ["o"], "0.pair.0": ["o"], "0.pair.1": ["o"]}),
    (
        {"0": "cpu"},
        {"0": True},
        {},
        {"": ["i"], "0": ["o"], "0.pair": ["-"], "0.pair.0": ["o"], "0.pair.1": ["o"]},
    ),
    ({"0": "cpu"}, True, {"preload_module_classes": ["Block"]}, {"": ["i"], "0": ["os"]}),
    (
        {"0": "cpu"},
        False,
        {"preload_module_classes": ["Block"]},
        {"": ["i"], "0": ["s"], "0.pair": ["-"], "0.pair.0": ["-"], "0.pair.1": ["-"]},
    ),
    (
        {"": "cpu", "0.pair.1": "cpu"},
        {"": False, "0.pair.1": True},
        {},
        {"": ["is"], "0": ["-"], "0.pair": ["-"], "0.pair.0": ["-"], "0.pair.1": ["-", "o"]},
    ),
    (
        "cpu",
        {"0.pair": True},
        {},
        {"": ["i"], "0.pair": ["-"], "0.pair.0": ["o"], "0.pair.1": ["o"]},
    ),
]


@pytest.mark.parametrize(("devices", "offload", "options", "expected"), CASES)
def test_on_blocks(
    devices: Any, offload: Any, options: dict[str, Any], expected: dict[str, list[str]]
) -> None:
    model, x = nn.Sequential(Block()).eval(), torch.randn(2, 3)
    output = model(x)
    attach_align_device_hook_on_blocks(model, devices, offload, weights_map=model.state_dict(), **options)
    assert placement(model) == expected
    assert torch.equal(model(x), output)
    remove_hook_from_submodules(model)
    assert placement(model) == {}
    assert torch.equal(model(x), output)


def test_execution_hooks_leave_those_that_are_there() -> None:
    model = Block()
    add_hook_to_module(model.pair, ModelHook())
    attach_execution_device_hook(model, "cpu", skip_keys="kept", preload_module_classes=["Other"])
    assert type(model.pair._hf_hook) is ModelHook
    assert model.pair[0]._hf_hook.skip_keys == "kept"
    assert "_hf_hook" not in vars(model.drop)
    model = Block()
    attach_execution_device_hook(model, "cpu", preload_module_classes=["Block"])
    assert placement(model) == {"": ["-"]}


def test_align_hooks_join_those_that_are_there() -> None:
    model = Block()
    weights = model.state_dict()
    add_hook_to_module(model.pair[0], ModelHook())
    attach_align_device_hook(model, "cpu", offload=True, weights_map=weights, module_name="")
    assert [type(hook).__name__ for hook in model.pair[0]._hf_hook.hooks] == ["ModelHook", "AlignDevicesHook"]
    assert model.pair[1]._hf_hook.weights_map.prefix == "pair.1."
    assert model.pair[1]._hf_hook.weights_map.dataset is weights
    assert "_hf_hook" not in vars(model.pair)
