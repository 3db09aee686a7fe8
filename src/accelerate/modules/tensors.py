"""Single tensors of a module: list them, tell their storage, put them somewhere else.

Called by everything that places weights (loading, hooks) and by client libraries.
"""

import contextlib
from collections.abc import Iterator, MutableMapping
from typing import Any

import torch
from torch import Tensor, nn

__all__ = [
    "align_module_device",
    "check_device_same",
    "get_non_persistent_buffers",
    "has_offloaded_params",
    "id_tensor_storage",
    "named_module_tensors",
    "owner_of",
    "set_module_tensor_to_device",
    "to_dtype",
]

Place = int | str | torch.device
TiedTensors = MutableMapping[int, dict[Any, Tensor]]  # data pointer -> device -> the copy that is there

# Classes of bitsandbytes: a parameter is made anew from its own attributes, and quantized by the move.
_QUANTIZED = ("Int8Params", "FP4Params", "Params4bit")


def check_device_same(first_device: torch.device, second_device: torch.device) -> bool:
    """Return whether two devices are one; an accelerator without an index is the first of its kind.

    Example:
        >>> check_device_same(torch.device("cuda"), torch.device("cuda:0"))
        True
    """
    if first_device.type != second_device.type:
        return False
    if first_device.type == "cpu":
        return first_device.index == second_device.index
    return (first_device.index or 0) == (second_device.index or 0)


def id_tensor_storage(tensor: Tensor) -> tuple[torch.device, int, int]:
    """Return device, address and size in bytes of the memory behind a tensor, which tell who shares it."""
    if tensor.device.type == "xla":
        address = id(tensor)
        return tensor.device, address, tensor.numel() * tensor.element_size()
    storage = tensor.untyped_storage()
    return tensor.device, storage.data_ptr(), storage.nbytes()


def named_module_tensors(
    module: nn.Module,
    include_buffers: bool = True,
    recurse: bool = False,
    remove_non_persistent: bool = False,
) -> Iterator[tuple[str, Tensor]]:
    """Yield name and tensor of the parameters of a module, then of its buffers.

    Args:
        module: the module.
        include_buffers: also the buffers.
        recurse: also what the modules inside hold; a tensor with several names comes once.
        remove_non_persistent: leave out buffers that a state dict does not hold.

    Example:
        >>> [name for name, _ in named_module_tensors(nn.BatchNorm1d(2))]
        ['weight', 'bias', 'running_mean', 'running_var', 'num_batches_tracked']
    """
    yield from module.named_parameters(recurse=recurse)
    if not include_buffers:
        return
    left_out: set[str] = set()
    if remove_non_persistent:
        left_out = get_non_persistent_buffers(module, recurse=recurse, fqns=True)
    for name, buffer in module.named_buffers(recurse=recurse):
        if name not in left_out:
            yield name, buffer


def get_non_persistent_buffers(module: nn.Module, recurse: bool = False, fqns: bool = False) -> set[str]:
    """Return the names of buffers that a state dict does not hold.

    Args:
        module: the module.
        recurse: also in the modules inside.
        fqns: give dotted names from `module` on, instead of the names inside each module.
    """
    if not recurse:
        return set(module._non_persistent_buffers_set)
    return {
        f"{prefix}.{name}" if fqns and prefix else name
        for prefix, part in module.named_modules()
        for name in part._non_persistent_buffers_set
    }


def owner_of(module: nn.Module, tensor_name: str) -> tuple[nn.Module, str]:
    """Return the module inside `module` that holds a tensor given by its dotted name, and the last part.

    Raises:
        AttributeError: there is no such module.
        ValueError: that module holds no such parameter or buffer.
    """
    path, _, name = tensor_name.rpartition(".")
    for part in filter(None, path.split(".")):
        module = getattr(module, part)
    if name not in module._parameters and name not in module._buffers:
        raise ValueError(f"{module} does not have a parameter or a buffer named {name}.")
    return module, name


def to_dtype(dtype: Any) -> Any:
    """Return the dtype of torch that a text such as "float16" or "torch.float16" names; others as they are.

    Raises:
        AttributeError: torch has no dtype of that name.
    """
    return getattr(torch, dtype.replace("torch.", "")) if isinstance(dtype, str) else dtype


def set_module_tensor_to_device(
    module: nn.Module,
    tensor_name: str,
    device: Place,
    value: Tensor | None = None,
    dtype: str | torch.dtype | None = None,
    fp16_statistics: Tensor | None = None,
    tied_params_map: TiedTensors | None = None,
    non_blocking: bool = False,
    clear_cache: bool = True,
) -> None:
    """Put a parameter or buffer of a module on a device, where asked for with another value.

    The module holds a new tensor afterwards, unless it is already there. A value that is where it should be,
    in the right dtype, is taken over without a copy.

    Args:
        module: holds the tensor, itself or in a module inside.
        tensor_name: dotted name from `module` on.
        device: where the tensor goes; "meta" to drop its memory.
        value: what the tensor holds afterwards; needed when it is on the meta device.
        dtype: of the new tensor; without it that of the old one. Values of integers are not cast.
        fp16_statistics: the scales of a weight that bitsandbytes holds in eight bits.
        tied_params_map: copies of tied weights by the address of the first and device; one that is there is
            used, a new one is noted, where the address is a key.
        non_blocking: let the copy run beside the host.
        clear_cache: give back the memory that the allocator keeps, when a tensor leaves an accelerator.

    Raises:
        AttributeError: there is no module of that name.
        ValueError: there is no such tensor, it has another shape than `value`, or it has no value.

    Example:
        >>> layer = nn.Linear(2, 1, device="meta")
        >>> set_module_tensor_to_device(layer, "bias", "cpu", value=torch.ones(1))
        >>> layer.bias
        Parameter containing:
        tensor([1.], requires_grad=True)
    """
    owner, name = owner_of(module, tensor_name)
    old: Any = owner._buffers[name] if name in owner._buffers else owner._parameters[name]
    found = _already_there(value if value is not None else old, device, tied_params_map)
    if found is not None:
        _assign(owner, name, found)
        return
    _check_value(tensor_name, old, device, value)
    if value is None and old.device == _device_of(device) and dtype is None:
        return
    new = _moved(old, value, device, to_dtype(dtype), non_blocking)
    if name in owner._parameters:
        new = _as_parameter(new, old, device)
    _assign(owner, name, new)
    if fp16_statistics is not None:
        vars(owner._parameters[name])["SCB"] = fp16_statistics.to(device)
    _note(value if value is not None else old, device, new, tied_params_map)
    if clear_cache and _left_accelerator(old, new):
        torch.accelerator.empty_cache()


def _device_of(device: Place) -> torch.device:
    return device if isinstance(device, torch.device) else torch.device(device)


def _already_there(tensor: Tensor | None, device: Place, tied: TiedTensors | None) -> Tensor | None:
    return (tied or {}).get(tensor.data_ptr(), {}).get(device) if tied and tensor is not None else None


def _note(source: Tensor | None, device: Place, new: Tensor, tied: TiedTensors | None) -> None:
    if tied and source is not None and str(device) != "meta" and source.data_ptr() in tied:
        tied[source.data_ptr()].setdefault(device, new)


def _check_value(name: str, old: Tensor | None, device: Place, value: Tensor | None) -> None:
    if value is None:
        if old is not None and old.is_meta and _device_of(device).type != "meta":
            raise ValueError(f"{name} is on the meta device, we need a `value` to put in on {device}.")
        return
    if old is not None and value.shape != old.shape and type(old).__name__ != "Params4bit":
        raise ValueError(
            f'Trying to set a tensor of shape {value.shape} in "{name}" (which has shape {old.shape}), this '
            "looks incorrect. Check that the checkpoint belongs to this model and its configuration."
        )


def _moved(
    old: Any, value: Tensor | None, device: Place, dtype: torch.dtype | None, non_blocking: bool
) -> Tensor:
    source = old if value is None else value
    if dtype is None and old is not None and type(old).__name__ not in _QUANTIZED:
        dtype = old.dtype
    if not (source.is_floating_point() or source.is_complex()) or type(old).__name__ in _QUANTIZED:
        dtype = None  # quantized, an index, or a mask: another dtype would be another number
    detached: Tensor = source.detach()
    return detached.to(device=device, dtype=dtype, non_blocking=non_blocking)


def _as_parameter(new: Tensor, old: Any, device: Place) -> Tensor:
    if isinstance(new, nn.Parameter) and type(new) is type(old):
        return new
    can_learn = new.is_floating_point() or new.is_complex()
    requires_grad = bool(old is not None and old.requires_grad and can_learn)
    if type(old).__name__ in _QUANTIZED:
        parameter: Tensor = type(old)(new, requires_grad=requires_grad, **vars(old)).to(device)
        return parameter
    parameter = nn.Parameter(new, requires_grad=requires_grad)
    if old is not None:
        vars(parameter).update(vars(old))
    return parameter


def _assign(owner: nn.Module, name: str, tensor: Tensor) -> None:
    if name in owner._buffers:
        owner._buffers[name] = tensor
    else:
        owner._parameters[name] = tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor)


def _left_accelerator(old: Tensor | None, new: Tensor) -> bool:
    return old is not None and old.device.type not in ("cpu", "meta") and new.device.type in ("cpu", "meta")


def has_offloaded_params(module: nn.Module) -> bool:
    """Return whether a hook keeps the parameters of a module elsewhere and brings them for each forward pass.

    Args:
        module: one module; those inside are not asked.
    """
    return bool(getattr(getattr(module, "_hf_hook", None), "offload", False))


@contextlib.contextmanager
def align_module_device(module: nn.Module, execution_device: torch.device | None = None) -> Iterator[None]:
    """Hold the own parameters of a module on a device for as long as the context lasts.

    An offloaded module is brought by its hook and taken back by it, so changes to the values last only where
    the hook keeps them. Other modules are moved and moved back.

    Args:
        module: the module; those inside are left where they are.
        execution_device: where the parameters are meanwhile; without it the device of the hook, and those of
            modules that are not offloaded stay where they are.
    """
    if has_offloaded_params(module):
        with _brought(module._hf_hook, module, execution_device):
            yield
        return
    if execution_device is None:
        yield
        return
    devices = {name: tensor.device for name, tensor in module.named_parameters(recurse=False)}
    for name in devices:
        set_module_tensor_to_device(module, name, execution_device)
    try:
        yield
    finally:
        for name, device in devices.items():
            set_module_tensor_to_device(module, name, device)


@contextlib.contextmanager
def _brought(hook: Any, module: nn.Module, device: torch.device | None) -> Iterator[None]:
    usual = hook.execution_device
    if device is not None:
        hook.execution_device = device
    try:
        hook.pre_forward(module)
        yield
    finally:
        hook.post_forward(module, None)
        hook.execution_device = usual
