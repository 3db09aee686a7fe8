"""Attach hooks that align devices to a model, module by module. Called by `big_modeling` and by clients."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from accelerate.offload.align import AlignDevicesHook, Target, TiedWeights
from accelerate.offload.hooks import add_hook_to_module
from accelerate.offload.weights import PrefixedDataset

__all__ = [
    "attach_align_device_hook",
    "attach_align_device_hook_on_blocks",
    "attach_execution_device_hook",
]


def attach_execution_device_hook(
    module: nn.Module,
    execution_device: Target,
    skip_keys: str | list[str] | None = None,
    preload_module_classes: list[str] | None = None,
    tied_params_map: TiedWeights | None = None,
) -> None:
    """Bring the inputs of `module`, and of everything in it that has weights, to the device of each call.

    Modules that have a hook are left alone; their children are not.

    Args:
        module: it is changed in place.
        execution_device: where the modules compute.
        skip_keys: names of arguments that are not moved.
        preload_module_classes: names of classes whose instances are left alone from their children on.
        tied_params_map: copies of weights that modules share.
    """
    if "_hf_hook" not in vars(module) and _has_state(module):
        hook = AlignDevicesHook(execution_device, skip_keys=skip_keys, tied_params_map=tied_params_map)
        add_hook_to_module(module, hook)
    if type(module).__name__ in (preload_module_classes or ()):
        return
    for child in module.children():
        attach_execution_device_hook(
            child, execution_device, skip_keys, preload_module_classes, tied_params_map
        )


def _has_state(module: nn.Module) -> bool:
    if next(module.parameters(), None) is not None:
        return True
    return any(part._buffers.keys() - part._non_persistent_buffers_set for part in module.modules())


def attach_align_device_hook(
    module: nn.Module,
    execution_device: torch.device | str | int | None = None,
    offload: bool = False,
    weights_map: Mapping[str, Tensor] | None = None,
    offload_buffers: bool = False,
    module_name: str = "",
    skip_keys: str | list[str] | None = None,
    preload_module_classes: list[str] | None = None,
    tied_params_map: TiedWeights | None = None,
) -> None:
    """Attach an `AlignDevicesHook` to every module in `module` that has weights of its own.

    Args:
        module: it is changed in place.
        execution_device: where the modules compute.
        offload: take the weights away between calls.
        weights_map: where offloaded weights lie, by their names in the whole model.
        offload_buffers: take the buffers away as well.
        module_name: dotted name of `module` in the whole model.
        skip_keys: names of arguments that are not moved.
        preload_module_classes: names of classes whose offloaded instances get all weights inside them when
            they are called, because they use these without calling the modules that hold them.
        tied_params_map: copies of weights that modules share.
    """
    whole = offload and type(module).__name__ in (preload_module_classes or ())
    if whole or _has_own_tensors(module):
        prefix = f"{module_name}." if module_name else ""
        hook = AlignDevicesHook(
            execution_device,
            offload=offload,
            weights_map=None if weights_map is None else PrefixedDataset(weights_map, prefix),
            offload_buffers=offload_buffers,
            place_submodules=whole,
            skip_keys=skip_keys,
            tied_params_map=tied_params_map,
        )
        add_hook_to_module(module, hook, append=True)
    if whole:
        return
    for child_name, child in module.named_children():
        attach_align_device_hook(
            child,
            execution_device,
            offload,
            weights_map,
            offload_buffers,
            f"{module_name}.{child_name}" if module_name else child_name,
            skip_keys,
            preload_module_classes,
            tied_params_map,
        )


def _has_own_tensors(module: nn.Module) -> bool:
    return any(tensor is not None for tensor in (*module._parameters.values(), *module._buffers.values()))


def attach_align_device_hook_on_blocks(
    module: nn.Module,
    execution_device: torch.device | Mapping[str, Any] | str | int | None = None,
    offload: bool | Mapping[str, bool] = False,
    weights_map: Mapping[str, Tensor] | None = None,
    offload_buffers: bool = False,
    module_name: str = "",
    skip_keys: str | list[str] | None = None,
    preload_module_classes: list[str] | None = None,
    tied_params_map: TiedWeights | None = None,
) -> None:
    """Let each block of a model compute on its device, and the whole answer where it is asked.

    Args:
        module: it is changed in place.
        execution_device: one device, or dotted name of a block -> device.
        offload: whether weights are taken away between calls, for all or by block.
        weights_map: where offloaded weights lie, by their names in the whole model.
        offload_buffers: take the buffers away as well.
        module_name: dotted name of `module` in the whole model.
        skip_keys: names of arguments that are not moved.
        preload_module_classes: names of classes whose offloaded instances get all weights inside them when
            they are called.
        tied_params_map: copies of weights that modules share.
    """
    if not isinstance(execution_device, Mapping) and not isinstance(offload, Mapping):
        if offload:
            attach_align_device_hook(
                module,
                execution_device,
                True,
                weights_map,
                offload_buffers,
                module_name,
                skip_keys,
                preload_module_classes,
                tied_params_map,
            )
        else:
            hook = AlignDevicesHook(
                execution_device,
                io_same_device=True,
                skip_keys=skip_keys,
                place_submodules=True,
                tied_params_map=tied_params_map,
            )
            add_hook_to_module(module, hook)
        return
    blocks = execution_device if isinstance(execution_device, Mapping) else offload
    assert isinstance(blocks, Mapping)
    plan = _Plan(
        devices=_by_block(execution_device, blocks),
        offload=_by_block(offload, blocks),
        weights_map=weights_map,
        offload_buffers=offload_buffers,
        skip_keys=skip_keys,
        preload_module_classes=preload_module_classes,
        tied_params_map=tied_params_map,
    )
    _attach_on_blocks(module, module_name, plan)


def _by_block(value: Any, blocks: Mapping[str, Any]) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else dict.fromkeys(blocks, value)


@dataclass(frozen=True, kw_only=True)
class _Plan:
    devices: Mapping[str, Any]
    offload: Mapping[str, bool]
    weights_map: Mapping[str, Tensor] | None
    offload_buffers: bool
    skip_keys: str | list[str] | None
    preload_module_classes: list[str] | None
    tied_params_map: TiedWeights | None


def _attach_on_blocks(module: nn.Module, name: str, plan: _Plan) -> None:
    if name in plan.devices and name in plan.offload:
        _attach_to_block(module, name, plan)
    elif name == "":
        _align(module, plan.devices.get(""), plan, io_same_device=True)
    for child_name, child in module.named_children():
        _attach_on_blocks(child, f"{name}.{child_name}" if name else child_name, plan)


def _attach_to_block(module: nn.Module, name: str, plan: _Plan) -> None:
    device, is_root = plan.devices[name], name == ""
    if plan.offload[name]:
        attach_align_device_hook(
            module,
            device,
            True,
            plan.weights_map,
            plan.offload_buffers,
            name,
            plan.skip_keys,
            plan.preload_module_classes,
            plan.tied_params_map,
        )
        if "_hf_hook" not in vars(module):
            _align(module, device, plan, io_same_device=is_root)
        preload = plan.preload_module_classes
    else:
        _align(module, device, plan, io_same_device=is_root, place_submodules=True)
        preload = None
    attach_execution_device_hook(module, device, plan.skip_keys, preload, plan.tied_params_map)


def _align(
    module: nn.Module, device: Any, plan: _Plan, *, io_same_device: bool, place_submodules: bool = False
) -> None:
    hook = AlignDevicesHook(
        device,
        offload_buffers=plan.offload_buffers,
        skip_keys=plan.skip_keys,
        tied_params_map=plan.tied_params_map,
        io_same_device=io_same_device,
        place_submodules=place_submodules,
    )
    add_hook_to_module(module, hook)
