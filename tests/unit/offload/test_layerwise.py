"""Weights lie in a small dtype and compute in a larger one."""

from typing import Any

import pytest
import torch
from torch import nn

from accelerate.offload.hooks import remove_hook_from_submodules
from accelerate.offload.layerwise import attach_layerwise_casting_hooks


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(3, 3, 1)
        self.norm = nn.LayerNorm(4)
        self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.head = nn.Linear(4, 2)
        self.embedding = nn.Embedding(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.norm(self.convolution(x))))


def cast(model: nn.Module) -> list[str]:
    return [name for name, part in model.named_modules() if "_hf_hook" in vars(part)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["convolution", "body.0", "head"]),
        ({"skip_modules_pattern": "head"}, ["convolution", "body.0"]),
        ({"skip_modules_pattern": ("^body", "ea")}, ["convolution"]),
        ({"skip_modules_pattern": ["^0"]}, ["convolution", "body.0", "head"]),
        ({"skip_modules_classes": (nn.Sequential,)}, ["convolution", "head"]),
        ({"skip_modules_classes": (Model,)}, []),
    ],
)
def test_which_layers(options: dict[str, Any], expected: list[str]) -> None:
    model = Model()
    attach_layerwise_casting_hooks(model, torch.float16, torch.float32, **options)
    assert cast(model) == expected
    kept = {name for name, parameter in model.named_parameters() if parameter.dtype == torch.float16}
    assert {name.rpartition(".")[0] for name in kept} == set(expected)


def test_numbers_are_those_of_the_stored_weights() -> None:
    model, x = Model(), torch.randn(2, 3, 4)
    attach_layerwise_casting_hooks(model, torch.float8_e4m3fn, torch.float32)
    result = model(x)
    remove_hook_from_submodules(model)
    assert torch.equal(model.to(torch.float32)(x), result)


def test_gradients_arrive() -> None:
    layer, x = nn.Linear(2, 2), torch.randn(3, 2)
    attach_layerwise_casting_hooks(layer, torch.bfloat16, torch.float32)
    weight = layer.weight
    layer(x).sum().backward()
    assert layer.weight is weight
    assert torch.equal(weight.grad, x.sum(0).expand(2, 2))


def test_a_failed_forward_pass_leaves_the_stored_dtype() -> None:
    layer = nn.Linear(2, 2)
    attach_layerwise_casting_hooks(layer, torch.bfloat16, torch.float32)
    with pytest.raises(RuntimeError, match="shapes"):
        layer(torch.randn(3, 7))
    assert layer.weight.dtype == torch.bfloat16
