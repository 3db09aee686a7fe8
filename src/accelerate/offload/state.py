"""The state dict of a model whose weights are elsewhere. Called by strategies, for saving, and by users."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from accelerate.offload.align import AlignDevicesHook
from accelerate.offload.hooks import SequentialHook

__all__ = ["full_state_dict", "get_state_dict_offloaded_model"]


def full_state_dict(model: nn.Module) -> dict[str, Any]:
    """Return the state dict of `model`, with the weights that its hooks keep elsewhere in their places.

    Weights in files are mapped, not read. Names that share one weight share it here, too. What has no value
    anywhere stays on the meta device.

    Args:
        model: it is not changed, and no weight is moved.
    """
    state: dict[str, Any] = model.state_dict()
    if not any(isinstance(value, Tensor) and value.is_meta for value in state.values()):
        return state
    placeholders = {id(held): name for name, held in _named_tensors(model)}
    first_names = {name: placeholders[id(held)] for name, held in _named_tensors(model)}
    kept = dict(_kept_by_hooks(model))
    found: dict[str, Tensor] = {}
    for name, value in state.items():
        if isinstance(value, Tensor) and value.is_meta and name in kept:
            first = first_names.get(name, name)
            if first not in found:
                found[first] = _fetch(kept[name], value)
            state[name] = found[first]
    return state


def _named_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _kept_by_hooks(model: nn.Module) -> Iterator[tuple[str, tuple[AlignDevicesHook, str]]]:
    """Yield the name of every weight that a hook keeps, with the hook and the name that it has there."""
    for prefix, module in model.named_modules(remove_duplicate=False):
        for hook in _hooks_of(vars(module).get("_hf_hook")):
            if isinstance(hook, AlignDevicesHook) and hook.offload:
                for name in hook.original_devices:
                    yield (f"{prefix}.{name}" if prefix else name), (hook, name)


def _hooks_of(hook: Any) -> Iterator[Any]:
    for one in hook.hooks if isinstance(hook, SequentialHook) else (hook,):
        if isinstance(one, SequentialHook):
            yield from _hooks_of(one)
        else:
            yield one


def _fetch(place: tuple[AlignDevicesHook, str], held: Tensor) -> Tensor:
    hook, name = place
    weight: Tensor = (hook.weights_map or {})[name].detach()
    # A model that was cast while its weights were away gets them in the new dtype.
    return weight.to(held.dtype) if weight.is_floating_point() or weight.is_complex() else weight


def get_state_dict_offloaded_model(model: nn.Module) -> dict[str, Any]:
    """Return the state dict of a model with offloaded weights, all of it on the CPU.

    Args:
        model: it is not changed.

    Example:
        >>> from accelerate.big_modeling import cpu_offload
        >>> {name: value.device.type for name, value in cpu_offload(nn.Linear(1, 1)).state_dict().items()}
        {'weight': 'meta', 'bias': 'meta'}
        >>> model = cpu_offload(nn.Linear(1, 1))
        >>> {name: value.device.type for name, value in get_state_dict_offloaded_model(model).items()}
        {'weight': 'cpu', 'bias': 'cpu'}
    """
    cpu = torch.device("cpu")
    return {
        name: value.to(cpu) if isinstance(value, Tensor) and not value.is_meta else value
        for name, value in full_state_dict(model).items()
    }
