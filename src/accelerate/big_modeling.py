"""Models that do not fit: where each part computes, where its weights lie. Called by users and clients.

The home of these functions, since clients replace names in this module (`check_device_map`) to change what
`dispatch_model` does. What they do stands in `offload`.
"""

import logging
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from accelerate.errors import ConfigurationError
from accelerate.modules.tied import find_tied_parameters, retie_parameters
from accelerate.offload.align import AlignDevicesHook, TiedWeights
from accelerate.offload.attach import attach_align_device_hook, attach_align_device_hook_on_blocks
from accelerate.offload.hooks import StayHere, add_hook_to_module
from accelerate.offload.layerwise import attach_layerwise_casting_hooks
from accelerate.offload.storage import INDEX_NAME, offload_state_dict
from accelerate.offload.user import cpu_offload_with_hook
from accelerate.offload.weights import OffloadedWeightsLoader, extract_submodules_state_dict

__all__ = [
    "attach_layerwise_casting_hooks",
    "check_device_map",
    "cpu_offload",
    "cpu_offload_with_hook",
    "disk_offload",
    "dispatch_model",
]

logger = logging.getLogger(__name__)

Target = int | str | torch.device

_OFFLOADED = ("cpu", "disk")
_MOVES = ("to", "cuda", "npu", "xpu", "mlu", "sdaa", "musa")  # methods of modules, those that torch has


def cpu_offload(
    model: nn.Module,
    execution_device: torch.device | None = None,
    offload_buffers: bool = False,
    state_dict: dict[str, Tensor] | None = None,
    preload_module_classes: list[str] | None = None,
) -> nn.Module:
    """Keep all weights of `model` on the CPU, and bring those of each module to a device when it is called.

    Args:
        model: it is changed in place; between calls its parameters are on the meta device.
        execution_device: where it computes; that of the first parameter by default.
        offload_buffers: keep the buffers on the CPU as well.
        state_dict: the weights on the CPU, those of the model by default.
        preload_module_classes: names of classes whose instances get all weights inside them when they are
            called, because they use these without calling the modules that hold them.

    Returns:
        `model`.

    Raises:
        ConfigurationError: the model has no values to keep: it is on the meta device, or offloaded already.

    Example:
        >>> model = cpu_offload(nn.Linear(2, 1))
        >>> model.weight.device.type, model(torch.ones(1, 2)).device.type
        ('meta', 'cpu')
    """
    if execution_device is None:
        execution_device = next(iter(model.parameters())).device
    if state_dict is None:
        # The parameters themselves, so that removing the hooks gives the same objects back.
        named = model.state_dict(keep_vars=True)
        state_dict = {name: _on_cpu(value) for name, value in named.items() if isinstance(value, Tensor)}
        _refuse_meta(state_dict)
    return _offload(model, execution_device, state_dict, offload_buffers, preload_module_classes)


def _on_cpu(tensor: Tensor) -> Tensor:
    return tensor if tensor.device.type in ("cpu", "meta") else tensor.detach().cpu()


def disk_offload(
    model: nn.Module,
    offload_dir: str | os.PathLike[str],
    execution_device: torch.device | None = None,
    offload_buffers: bool = False,
    preload_module_classes: list[str] | None = None,
) -> nn.Module:
    """Keep all weights of `model` in files, and map those of each module when it is called.

    Writes the weights into the folder, unless it has an index already.

    Args:
        model: it is changed in place; between calls its parameters are on the meta device.
        offload_dir: the folder; it is created.
        execution_device: where it computes; that of the first parameter by default.
        offload_buffers: keep the buffers in files as well.
        preload_module_classes: as in `cpu_offload`.

    Returns:
        `model`.

    Raises:
        ConfigurationError: the model has no values to write: it is on the meta device, or offloaded already.
    """
    if not (Path(offload_dir) / INDEX_NAME).is_file():
        weights = model.state_dict()
        _refuse_meta(weights)
        offload_state_dict(offload_dir, weights)
    if execution_device is None:
        execution_device = next(iter(model.parameters())).device
    weights_map = OffloadedWeightsLoader(save_folder=offload_dir)
    return _offload(model, execution_device, weights_map, offload_buffers, preload_module_classes)


def _offload(
    model: nn.Module,
    execution_device: torch.device,
    weights_map: Mapping[str, Tensor],
    offload_buffers: bool,
    preload_module_classes: list[str] | None,
) -> nn.Module:
    tied = find_tied_parameters(model)
    add_hook_to_module(model, AlignDevicesHook(io_same_device=True), append=True)
    attach_align_device_hook(
        model,
        execution_device=execution_device,
        offload=True,
        offload_buffers=offload_buffers,
        weights_map=weights_map,
        preload_module_classes=preload_module_classes,
    )
    retie_parameters(model, tied)
    return model


def check_device_map(model: nn.Module, device_map: Mapping[str, Target]) -> None:
    """Raise unless a map gives every parameter and buffer of `model` a device.

    Args:
        model: the model.
        device_map: dotted name of a module, parameter or buffer -> device; the name "" stands for the rest.

    Raises:
        ConfigurationError: parameters are left out.

    Warns:
        UserWarning: the map has names that the model has not.
    """
    names = list(model.state_dict())
    known = {name for name, _ in model.named_modules(remove_duplicate=False)}
    known |= {name for name, _ in model.named_parameters(remove_duplicate=False)}
    known |= {name for name, _ in model.named_buffers(remove_duplicate=False)}
    unknown = [name for name in device_map if name not in known]
    if unknown:
        warnings.warn(
            f"The following device_map keys do not match any submodules in the model: {unknown}", stacklevel=3
        )
    left_out = [name for name in names if not any(prefix in device_map for prefix in _prefixes(name))]
    if left_out:
        raise ConfigurationError(
            "The device_map provided does not give any device for the following parameters: "
            f"{', '.join(left_out)}"
        )


def _prefixes(name: str) -> Iterable[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]
    yield ""


def dispatch_model(
    model: nn.Module,
    device_map: dict[str, Target],
    main_device: torch.device | str | int | None = None,
    state_dict: dict[str, Tensor] | None = None,
    offload_dir: str | os.PathLike[str] | None = None,
    offload_index: dict[str, Any] | None = None,
    offload_buffers: bool = False,
    skip_keys: str | list[str] | None = None,
    preload_module_classes: list[str] | None = None,
    force_hooks: bool = False,
) -> nn.Module:
    """Let each part of `model` compute on its device, with the weights of some parts on the CPU or in files.

    Notes the map in `model.hf_device_map`. A map with one device moves the model and attaches no hooks.
    Writes the weights that go to "disk" into `offload_dir`, unless that has an index or `offload_index` says
    where they are.

    Args:
        model: it is changed in place; parts that are offloaded are on the meta device between calls.
        device_map: dotted name of a module -> device, "cpu" or "disk".
        main_device: where offloaded parts compute; the first device of the map that is neither "cpu" nor
            "disk" by default, else the CPU, which uses weights where they lie.
        state_dict: the weights that stay on the CPU, those of the model by default.
        offload_dir: the folder of weights in files.
        offload_index: where each weight on "disk" is: entries of an offload folder, or of safetensors files.
        offload_buffers: offload the buffers as well.
        skip_keys: names of arguments, at any depth, that are not moved.
        preload_module_classes: names of classes whose offloaded instances get all weights inside them when
            they are called, because they use these without calling the modules that hold them.
        force_hooks: attach hooks for a map with one device, too.

    Returns:
        `model`.

    Raises:
        ConfigurationError: the map leaves parameters out, or says "disk" and there is no `offload_dir`.

    Example:
        >>> model = dispatch_model(nn.Sequential(nn.Linear(2, 1)), {"": "cpu"})
        >>> model.hf_device_map
        {'': 'cpu'}
    """
    check_device_map(model, device_map)
    on_disk = [name for name, device in device_map.items() if device == "disk"]
    if len(set(device_map.values())) > 1 or on_disk or force_hooks or _is_bound(model):
        main_device = _main_device(device_map) if main_device is None else main_device
        weights_map = _weights_map(
            model, device_map, main_device, state_dict, offload_dir, offload_index, on_disk
        )
        _attach(
            model,
            device_map,
            main_device,
            weights_map,
            offload_buffers=offload_buffers,
            skip_keys=skip_keys,
            preload_module_classes=preload_module_classes,
        )
    else:
        model.to(next(iter(device_map.values())))
    vars(model)["hf_device_map"] = dict(device_map)
    return model


def _is_bound(model: nn.Module) -> bool:
    """Return whether a model cannot be moved: bitsandbytes has quantized it in eight bits."""
    return bool(getattr(model, "is_loaded_in_8bit", False))


def _main_device(device_map: Mapping[str, Target]) -> Target:
    return next((device for device in device_map.values() if device not in _OFFLOADED), "cpu")


def _is_host(device: Target) -> bool:
    return torch.device(device).type in ("cpu", "mps")


def _weights_map(
    model: nn.Module,
    device_map: Mapping[str, Target],
    main_device: Target,
    state_dict: dict[str, Tensor] | None,
    offload_dir: str | os.PathLike[str] | None,
    offload_index: dict[str, Any] | None,
    on_disk: list[str],
) -> OffloadedWeightsLoader | None:
    """Return where the weights of offloaded parts are, after those of "disk" have been written."""
    on_cpu = [name for name, device in device_map.items() if device == "cpu"]
    if state_dict is None and on_cpu and not _is_host(main_device):
        state_dict = {name: _on_cpu(value) for name, value in _weights_of(model, on_cpu).items()}
        _refuse_meta(state_dict)
    if on_disk and offload_index is None:
        if offload_dir is None:
            raise ConfigurationError(
                "We need an `offload_dir` to dispatch this model according to this `device_map`, the "
                f"following submodules need to be offloaded: {', '.join(on_disk)}."
            )
        if not (Path(offload_dir) / INDEX_NAME).is_file():
            weights = _weights_of(model, on_disk)
            _refuse_meta(weights)
            offload_state_dict(offload_dir, weights)
    folder = offload_dir if on_disk else None
    if state_dict is None and folder is None and offload_index is None:
        return None
    return OffloadedWeightsLoader(state_dict=state_dict, save_folder=folder, index=offload_index)


def _weights_of(model: nn.Module, modules: list[str]) -> dict[str, Tensor]:
    named = model.state_dict(keep_vars=True)
    weights = {name: value for name, value in named.items() if isinstance(value, Tensor)}
    return weights if "" in modules else extract_submodules_state_dict(weights, modules)


def _refuse_meta(weights: Mapping[str, Tensor]) -> None:
    empty = [name for name, weight in weights.items() if weight.is_meta]
    if empty:
        raise ConfigurationError(
            f"These weights are to be offloaded and have no values: {', '.join(empty)}. Load the model first "
            "(`load_checkpoint_and_dispatch`), or remove the hooks of a model that is offloaded already "
            "(`accelerate.hooks.remove_hook_from_submodules`)."
        )


def _attach(
    model: nn.Module,
    device_map: Mapping[str, Target],
    main_device: Target,
    weights_map: OffloadedWeightsLoader | None,
    **options: Any,
) -> None:
    offloaded = ("disk",) if _is_host(main_device) else _OFFLOADED
    devices = {name: main_device if device in _OFFLOADED else device for name, device in device_map.items()}
    tied = find_tied_parameters(model)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    copies: TiedWeights = {
        parameters[group[0]].data_ptr(): {} for group in tied if not parameters[group[0]].is_meta
    }
    attach_align_device_hook_on_blocks(
        model,
        execution_device={"": main_device, **devices},
        offload={name: device in offloaded for name, device in device_map.items()},
        weights_map=weights_map,
        tied_params_map=copies,
        **options,
    )
    retie_parameters(model, tied)
    places = sorted({str(device) for device in device_map.values() if device in offloaded})
    if places:
        logger.warning(
            "Some parameters are on the meta device because they were offloaded to the %s.",
            " and ".join(places),
        )
    for name in _MOVES:
        if hasattr(model, name):
            vars(model)[name] = StayHere(getattr(model, name))
