"""Keep weights in a small dtype and compute in another, layer by layer. Called by users and by diffusers."""

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from accelerate.offload.hooks import ModelHook, add_hook_to_module

__all__ = ["LayerwiseCastingHook", "attach_layerwise_casting_hooks"]

# Layers of few kinds hold nearly all weights; norms and embeddings lose too much in eight bits.
_CAST = (
    nn.Linear,
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)


class LayerwiseCastingHook(ModelHook):
    """Keep the weights of a module in one dtype, and have them in another while it computes.

    Args:
        storage_dtype: of the weights between forward passes.
        compute_dtype: of the weights during the forward pass; the arguments are not cast.
        non_blocking: do not wait for the casts, on devices that queue their work.
    """

    def __init__(self, storage_dtype: torch.dtype, compute_dtype: torch.dtype, non_blocking: bool) -> None:
        self.storage_dtype = storage_dtype
        self.compute_dtype = compute_dtype
        self.non_blocking = non_blocking

    def init_hook(self, module: nn.Module) -> nn.Module:
        """Cast the weights to the dtype of storage."""
        return module.to(dtype=self.storage_dtype, non_blocking=self.non_blocking)

    def pre_forward(
        self, module: nn.Module, *args: Any, **kwargs: Any
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Cast the weights to the dtype of the computation."""
        module.to(dtype=self.compute_dtype, non_blocking=self.non_blocking)
        return args, kwargs

    def post_forward(self, module: nn.Module, output: Any) -> Any:
        """Cast the weights back."""
        module.to(dtype=self.storage_dtype, non_blocking=self.non_blocking)
        return output

    def _abandon(self, module: nn.Module) -> None:
        """Cast the weights back."""
        module.to(dtype=self.storage_dtype, non_blocking=self.non_blocking)


def attach_layerwise_casting_hooks(
    module: nn.Module,
    storage_dtype: torch.dtype,
    compute_dtype: torch.dtype,
    skip_modules_pattern: str | tuple[str, ...] | None = None,
    skip_modules_classes: tuple[type[nn.Module], ...] | None = None,
    non_blocking: bool = False,
) -> None:
    """Keep the weights of all linear and convolution layers of `module` in a small dtype between their calls.

    Args:
        module: it is changed in place.
        storage_dtype: of the weights between forward passes, such as `torch.float8_e4m3fn`.
        compute_dtype: of the weights while their layer computes, such as `torch.bfloat16`.
        skip_modules_pattern: regular expressions; a layer is left alone, with everything inside it, when one
            is found in its dotted name.
        skip_modules_classes: classes of modules that are left alone, with everything inside them.
        non_blocking: do not wait for the casts, on devices that queue their work.

    Example:
        >>> model = nn.ModuleDict({"body": nn.Linear(2, 2), "head": nn.Linear(2, 2)})
        >>> attach_layerwise_casting_hooks(model, torch.float8_e4m3fn, torch.float32, "head")
        >>> model["body"].weight.dtype, model["head"].weight.dtype
        (torch.float8_e4m3fn, torch.float32)
        >>> model["body"](torch.ones(1, 2)).dtype
        torch.float32
    """
    patterns = (
        (skip_modules_pattern,) if isinstance(skip_modules_pattern, str) else skip_modules_pattern or ()
    )
    for layer in list(_layers(module, "", patterns, skip_modules_classes or ())):
        hook = LayerwiseCastingHook(storage_dtype, compute_dtype, non_blocking)
        add_hook_to_module(layer, hook, append=True)


def _layers(
    module: nn.Module, name: str, patterns: tuple[str, ...], classes: tuple[type[nn.Module], ...]
) -> Iterator[nn.Module]:
    if isinstance(module, classes) or any(re.search(pattern, name) for pattern in patterns):
        return
    if isinstance(module, _CAST):
        yield module
        return
    for child_name, child in module.named_children():
        yield from _layers(child, f"{name}.{child_name}" if name else child_name, patterns, classes)
