"""The hook that brings weights and inputs of a module to one device. Called by the functions that attach it.

[Note: offloaded weights]
A module is *offloaded* when its weights lie elsewhere between calls: in `weights_map`, a mapping from local
names to tensors, on the CPU or in files. Between calls each *slot* of the module (one entry of `_parameters`
or `_buffers`) holds a *placeholder*, a tensor on the meta device that knows shape, dtype and `requires_grad`.
`pre_forward` fills the slots, `post_forward` puts the placeholders back: the same objects each time. Weights
that lie on the device that computes are used where they lie, without a copy. Clients fill the slots by hand,
change the weights, replace `weights_map`, and empty the slots again; nothing is remembered that this would
make wrong.

[Note: tied weights]
`tied_params_map` holds, for each address of a weight that several modules share, the one copy on each device.
All hooks of a model have the same map. The hook that makes a copy of an offloaded weight takes it out again.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from accelerate.modules.nested import find_device, send_to_device
from accelerate.modules.tensors import check_device_same, owner_of, set_module_tensor_to_device
from accelerate.offload.hooks import ModelHook

__all__ = ["AlignDevicesHook", "TiedWeights"]

TiedWeights = dict[int, dict[torch.device, Tensor]]
Target = int | str | torch.device

_CPU, _META = torch.device("cpu"), torch.device("meta")
_REFUSED = "_accelerate_refuses_gradients"
_PLAIN = (nn.Parameter, Tensor)  # what can be made anew from a tensor alone; classes of quantisation cannot


class _Slot(NamedTuple):
    name: str  # from the module that has the hook
    store: MutableMapping[str, Any]  # `_parameters` or `_buffers` of the module that owns the tensor
    key: str


class AlignDevicesHook(ModelHook):
    """Compute on one device: bring the inputs there, and the weights too when they lie elsewhere.

    Args:
        execution_device: where the module computes; None leaves inputs and weights where they are.
        offload: take the weights away between calls ([Note: offloaded weights]).
        io_same_device: bring the output to the device of the inputs.
        weights_map: where offloaded weights lie, by their names in the module; by default the weights of the
            module when the hook is attached, on the CPU.
        offload_buffers: take the buffers away as well.
        place_submodules: meant are also the weights of everything inside the module.
        skip_keys: names of arguments, at any depth, that are not moved.
        tied_params_map: copies of weights that modules share ([Note: tied weights]).
    """

    def __init__(
        self,
        execution_device: Target | None = None,
        offload: bool = False,
        io_same_device: bool = False,
        weights_map: Mapping[str, Tensor] | None = None,
        offload_buffers: bool = False,
        place_submodules: bool = False,
        skip_keys: str | list[str] | None = None,
        tied_params_map: TiedWeights | None = None,
    ) -> None:
        self.execution_device = execution_device
        self.offload = offload
        self.io_same_device = io_same_device
        self.weights_map = weights_map
        self.offload_buffers = offload_buffers
        self.place_submodules = place_submodules
        self.skip_keys = skip_keys

        self.input_device: torch.device | None = None
        self.original_devices: dict[str, torch.device] = {}
        self.param_original_devices: dict[str, torch.device] = {}
        self.buffer_original_devices: dict[str, torch.device] = {}
        self.tied_params_names: set[str] = set()
        self.tied_params_map = tied_params_map
        self.tied_pointers_to_remove: set[tuple[int, torch.device]] = set()

        self._placeholders: dict[str, Tensor] = {}  # of the slots that are filled
        self._in_place: dict[str, tuple[Tensor, Tensor]] = {}  # name -> (weight, what the slot holds of it)

    def __repr__(self) -> str:
        return (
            f"AlignDevicesHook(execution_device={self.execution_device}, offload={self.offload}, "
            f"io_same_device={self.io_same_device}, offload_buffers={self.offload_buffers}, "
            f"place_submodules={self.place_submodules}, skip_keys={self.skip_keys!r})"
        )

    def init_hook(self, module: nn.Module) -> nn.Module:
        """Move the weights to the device, or take them away when they are to be offloaded."""
        if self.offload:
            self._take_away(module)
        elif self.execution_device is not None:
            everything = _slots(module, self.place_submodules, buffers=True)
            self._move(module, everything, self.execution_device)
        return module

    def pre_forward(
        self, module: nn.Module, *args: Any, **kwargs: Any
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Fill the slots, and move the arguments to the device."""
        if self.io_same_device:
            self.input_device = find_device([args, kwargs])
        if self.offload:
            _outside_graphs(self._fill, module)
        device = self.execution_device
        if device is None:
            return args, kwargs
        return send_to_device(args, device), send_to_device(kwargs, device, skip_keys=self.skip_keys)

    def post_forward(self, module: nn.Module, output: Any) -> Any:
        """Empty the slots, and move the output to where the inputs were."""
        if self.offload:
            _outside_graphs(self._empty, module)
        if self.io_same_device and self.input_device is not None:
            output = send_to_device(output, self.input_device, skip_keys=self.skip_keys)
        return output

    def _abandon(self, module: nn.Module) -> None:
        """Empty the slots."""
        if self.offload:
            self._empty(module)

    def detach_hook(self, module: nn.Module) -> nn.Module:
        """Put offloaded weights back where they were when the hook was attached.

        Those that were nowhere, because they have been in files from the start, stay placeholders.
        """
        if self.offload:
            self._bring_back(module)
        return module

    def _take_away(self, module: nn.Module) -> None:
        everything = list(_slots(module, self.place_submodules, buffers=True))
        self.original_devices = {slot.name: slot.store[slot.key].device for slot in everything}
        if self.weights_map is None:
            kept = _slots(module, self.place_submodules, buffers=self.offload_buffers)
            self.weights_map = {slot.name: _on_cpu(slot.store[slot.key]) for slot in kept}
        offloaded = self._offloaded(module)
        for slot in offloaded:
            if self.tied_params_map and slot.store[slot.key].data_ptr() in self.tied_params_map:
                self.tied_params_names.add(slot.name)
            is_plain = type(slot.store[slot.key]) in _PLAIN
            _put_placeholder(module, slot, not is_plain and _is_whole(self.weights_map, slot.name))
        if self.execution_device is not None:
            stores = {(id(slot.store), slot.key) for slot in offloaded}
            staying = [slot for slot in everything if (id(slot.store), slot.key) not in stores]
            self._move(module, staying, self.execution_device)

    def _offloaded(self, module: nn.Module) -> list[_Slot]:
        return list(_slots(module, self.place_submodules, buffers=self.offload_buffers, persistent=True))

    def _fill(self, module: nn.Module) -> None:
        weights: Any = self.weights_map
        device = None if self.execution_device is None else torch.device(self.execution_device)
        track = torch.is_grad_enabled()
        for slot in self._offloaded(module):
            held = slot.store[slot.key]
            if held.is_meta:
                self._placeholders[slot.name] = held
            elif slot.name in self.tied_params_names and held.device == device:
                continue  # tied to a weight that is on the device for good
            if type(held) not in _PLAIN:
                self._fill_by_class(module, slot.name, weights)
                continue
            weight = weights[slot.name]
            if type(weight) not in _PLAIN:
                slot.store[slot.key] = _moved_whole(weight, device)
                continue
            tensor, is_ours = self._tensor_for(slot.name, weight, held, device)
            if track and is_ours and tensor.requires_grad:
                _refuse_gradient(tensor, module, slot.name)
            slot.store[slot.key] = tensor

    def _tensor_for(
        self, name: str, weight: Tensor, held: Tensor, device: torch.device | None
    ) -> tuple[Tensor, bool]:
        """Return what a slot is filled with, and whether it is this hook that made it."""
        copies = self.tied_params_map.get(weight.data_ptr()) if self.tied_params_map else None
        if copies is not None and device is not None and name in self.tied_params_names:
            if device in copies:
                return copies[device], False
            self.tied_pointers_to_remove.add((weight.data_ptr(), device))
            copies[device] = _like(held, weight, device, name)
            return copies[device], True
        source, tensor = self._in_place.get(name, (None, weight))
        is_known = source is weight and tensor.data_ptr() == weight.data_ptr()
        if not is_known or tensor.dtype != held.dtype:
            tensor = _like(held, weight, device, name)
            if tensor.device == weight.device and tensor.data_ptr() == weight.data_ptr():
                self._in_place[name] = weight, tensor
        elif tensor.requires_grad != held.requires_grad:
            tensor.requires_grad_(held.requires_grad)
        return tensor, True

    def _fill_by_class(self, module: nn.Module, name: str, weights: Mapping[str, Tensor]) -> None:
        weight = weights[name]
        scales = name.replace("weight", "SCB")
        statistics = weights[scales] if weight.dtype == torch.int8 and scales in weights else None
        device = weight.device if self.execution_device is None else self.execution_device
        set_module_tensor_to_device(module, name, device, value=weight, fp16_statistics=statistics)

    def _empty(self, module: nn.Module) -> None:
        for slot in self._offloaded(module):
            held = slot.store[slot.key]
            placeholder = self._placeholders.pop(slot.name, None)
            is_whole = placeholder is not None and type(placeholder) in _PLAIN and type(held) not in _PLAIN
            if placeholder is not None and (is_whole or _is_alike(placeholder, held)):
                slot.store[slot.key] = placeholder
            elif not held.is_meta and (placeholder is not None or slot.name not in self.tied_params_names):
                _put_placeholder(module, slot)
        for pointer, device in self.tied_pointers_to_remove:
            (self.tied_params_map or {}).get(pointer, {}).pop(device, None)
        self.tied_pointers_to_remove.clear()

    def _bring_back(self, module: nn.Module) -> None:
        weights: Any = self.weights_map
        offloaded = {slot.name for slot in self._offloaded(module)}
        for slot in list(_slots(module, self.place_submodules, buffers=True)):
            device = self.original_devices.get(slot.name, _META)
            if device == _META:
                continue
            held = slot.store[slot.key]
            if slot.name not in offloaded or not held.is_meta:
                slot.store[slot.key] = held if held.device == device else _like(held, held, device, slot.name)
            elif type(weights[slot.name]) not in _PLAIN:
                slot.store[slot.key] = _moved_whole(weights[slot.name], device)
            elif type(held) not in _PLAIN:
                set_module_tensor_to_device(module, slot.name, device, value=weights[slot.name])
            else:
                slot.store[slot.key] = _kept(held, weights, slot.name, device)

    def _move(self, module: nn.Module, slots: Iterable[_Slot], device: Target) -> None:
        target = torch.device(device)
        moved: dict[int, Tensor] = {}
        for slot in list(slots):
            held = slot.store[slot.key]
            if held.is_meta and target != _META:
                raise ValueError(
                    f"{slot.name} is on the meta device, we need a `value` to put in on {device}. Load the "
                    "weights of the model before it is dispatched."
                )
            if type(held) not in _PLAIN:
                set_module_tensor_to_device(module, slot.name, device)
                continue
            if id(held) not in moved:
                moved[id(held)] = self._shared(held, target, slot.name)
            slot.store[slot.key] = moved[id(held)]

    def _shared(self, held: Tensor, target: torch.device, name: str) -> Tensor:
        there = check_device_same(held.device, target)
        copies = (self.tied_params_map or {}).get(held.data_ptr())
        if copies is None:
            return held if there else _like(held, held, target, name)
        if target not in copies:
            copies[target] = held if there else _like(held, held, target, name)
        return copies[target]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_in_place": {}}


def _outside_graphs(work: Callable[[nn.Module], None], module: nn.Module) -> None:
    """Do what a compiler must not trace, in this function or in any that it calls: objects come and go."""
    if torch.compiler.is_compiling() or "torch._dynamo" in sys.modules:
        _untraced(work, module)
    else:
        work(module)


@_disable_dynamo  # loads the compiler when it is first called, hence never without one
def _untraced(work: Callable[[nn.Module], None], module: nn.Module) -> None:
    work(module)


def _slots(module: nn.Module, recurse: bool, *, buffers: bool, persistent: bool = False) -> Iterator[_Slot]:
    """Yield the slots of a module: parameters, then buffers, all or those of a state dict."""
    parts = list(module.named_modules()) if recurse else [("", module)]
    named = [(f"{prefix}." if prefix else "", part) for prefix, part in parts]
    for start, part in named:
        yield from _slots_in(part._parameters, start, ())
    for start, part in named if buffers else ():
        yield from _slots_in(part._buffers, start, part._non_persistent_buffers_set if persistent else ())


def _slots_in(store: MutableMapping[str, Any], start: str, left_out: Collection[str]) -> Iterator[_Slot]:
    for key, tensor in store.items():
        if tensor is not None and key not in left_out:
            yield _Slot(start + key, store, key)


def _like(held: Tensor, weight: Tensor, device: torch.device | None, name: str) -> Tensor:
    """Return `weight` on a device, as what `held` is: its dtype, parameter or buffer, wanting gradients."""
    if weight.shape != held.shape:
        raise ValueError(
            f"The weights have a tensor of shape {tuple(weight.shape)} for {name!r}, which has shape "
            f"{tuple(held.shape)} in the module. Check that they belong to this model."
        )
    is_number = weight.is_floating_point() or weight.is_complex()
    tensor = weight.detach().to(
        device=weight.device if device is None else device, dtype=held.dtype if is_number else weight.dtype
    )
    if not isinstance(held, nn.Parameter):
        return tensor
    parameter = nn.Parameter(tensor, requires_grad=held.requires_grad and is_number)
    if vars(held):
        vars(parameter).update({key: value for key, value in vars(held).items() if key != _REFUSED})
    return parameter


def _is_alike(placeholder: Tensor, held: Tensor) -> bool:
    return (
        type(placeholder) is type(held)
        and placeholder.shape == held.shape
        and placeholder.dtype == held.dtype
        and placeholder.requires_grad == held.requires_grad
    )


def _is_whole(weights: Mapping[str, Tensor] | None, name: str) -> bool:
    """Return whether a mapping keeps a quantized weight as the object that it is, with its scales."""
    return weights is not None and name in weights and type(weights[name]) not in _PLAIN


def _moved_whole(weight: Tensor, device: torch.device | None) -> Tensor:
    return weight if device is None or check_device_same(weight.device, device) else weight.to(device)


def _put_placeholder(module: nn.Module, slot: _Slot, is_whole: bool = False) -> None:
    held = slot.store[slot.key]
    if type(held) in _PLAIN:
        slot.store[slot.key] = _like(held, held, _META, slot.name)
        return
    if is_whole:
        # Moving the object itself to the meta device would take its scales along, which the kept one shares.
        empty = torch.empty(held.shape, dtype=held.dtype, device=_META)
        is_parameter = isinstance(held, nn.Parameter)
        slot.store[slot.key] = (
            nn.Parameter(empty, requires_grad=held.requires_grad) if is_parameter else empty
        )
        return
    set_module_tensor_to_device(module, slot.name, "meta")
    state: Any = getattr(owner_of(module, slot.name)[0], "state", None)
    if hasattr(state, "SCB"):  # what bitsandbytes keeps of the weight on the device
        state.SCB = state.CxB = None


def _kept(held: Tensor, weights: Mapping[str, Tensor], name: str, device: torch.device) -> Tensor:
    weight = weights[name]
    if isinstance(weight, nn.Parameter) and _is_alike(held, weight) and weight.device == device:
        return weight
    tensor = _like(held, weight, device, name)
    # What is mapped from a file is copied: it is the module's own from now on, and may be written to.
    from_file = tensor.data_ptr() == weight.data_ptr() and not weight.untyped_storage().resizable()
    return _like(held, tensor.detach().clone(), device, name) if from_file else tensor


def _on_cpu(tensor: Tensor) -> Tensor:
    return tensor if tensor.device == _CPU else tensor.detach().to(_CPU)


def _refuse_gradient(tensor: Tensor, module: nn.Module, name: str) -> None:
    if _REFUSED in vars(tensor):
        return

    def refuse(_: Tensor) -> None:
        raise RuntimeError(
            f"A gradient has arrived for `{name}` of {type(module).__name__}, which is offloaded: the module "
            "holds this weight during its forward pass only, and the gradient would be lost. Freeze what is "
            "offloaded (`parameter.requires_grad_(False)`), keep what is to be trained on a device "
            "(`device_map`), or train with FSDP or DeepSpeed, which offload with their gradients."
        )

    vars(tensor)[_REFUSED] = True
    tensor.register_post_accumulate_grad_hook(refuse)  # type: ignore[no-untyped-call]
