"""Take off what engines put around a model: a registry of wrapper classes, and the functions that read it.

An engine registers its own wrapper when it is loaded; those of torch's data parallelism are here. Called by
the Accelerator, by checkpoints and by users. Nothing here communicates.
"""

import weakref
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from accelerate.modules.compile import is_compiled_module, recompiled, regional_original
from accelerate.modules.forward import restore_forward

__all__ = ["extract_model_from_parallel", "register_wrapper", "unwrap"]


class _Registry:
    """Wrapper classes, and for each how to look inside."""

    def __init__(self) -> None:
        self.looks: dict[type, Callable[[Any], nn.Module]] = {}
        self.classes: tuple[type, ...] = ()  # the keys, in the form that isinstance takes

    def add(self, wrapper: type, look: Callable[[Any], nn.Module]) -> None:
        self.looks[wrapper] = look
        self.classes = tuple(self.looks)

    def inside(self, model: object) -> nn.Module:
        return next(look(model) for wrapper, look in self.looks.items() if isinstance(model, wrapper))


def _module_of(wrapper: Any) -> nn.Module:
    module: nn.Module = wrapper.module
    return module


_registry = _Registry()
_registry.add(DistributedDataParallel, _module_of)
_registry.add(DataParallel, _module_of)

# Compiled wrapper -> what `unwrap` gave for it, so that unwrapping twice gives one object.
_compiled_inside: "weakref.WeakKeyDictionary[nn.Module, nn.Module]" = weakref.WeakKeyDictionary()


def register_wrapper(wrapper: type, look: Callable[[Any], nn.Module] = _module_of) -> None:
    """Tell `unwrap` about a class that engines put around a model.

    Args:
        wrapper: the class; subclasses count too.
        look: gives what is inside; the attribute `module` by default.
    """
    _registry.add(wrapper, look)


def unwrap(model: Any, *, keep_torch_compile: bool = True) -> Any:
    """Return the module inside all wrappers of engines, in whatever order they and torch.compile were put on.

    Args:
        model: a wrapped or a plain module; it is not changed.
        keep_torch_compile: when `model` is compiled, return a compiled module (`model` itself if it holds no
            wrapper), rather than the original one.
    """
    compiled: Any = None
    while True:
        if isinstance(model, _registry.classes):
            model = _registry.inside(model)
        elif is_compiled_module(model):
            compiled, model = model, model._orig_mod
        elif keep_torch_compile or (original := regional_original(model)) is None:
            break
        else:
            model = original
    if compiled is None or not keep_torch_compile:
        return model
    return compiled if compiled._orig_mod is model else _recompiled_once(compiled, model)


def _recompiled_once(compiled: nn.Module, inner: nn.Module) -> nn.Module:
    again = _compiled_inside.get(compiled)
    if again is None or again._orig_mod is not inner:
        again = _compiled_inside[compiled] = recompiled(compiled, inner)
    return again


def extract_model_from_parallel(
    model: Any, keep_fp32_wrapper: bool = True, keep_torch_compile: bool = True, recursive: bool = False
) -> Any:
    """Return the model inside the wrappers of data parallelism and engines.

    Args:
        model: a wrapped or a plain model.
        keep_fp32_wrapper: leave the mixed-precision forward that `prepare` put on the model; otherwise the
            model gets its own forward back, for good.
        keep_torch_compile: give a compiled model back compiled.
        recursive: also take off wrappers around modules inside the model, in place.

    Example:
        >>> model = nn.Linear(2, 2)
        >>> extract_model_from_parallel(DataParallel(model)) is model
        True
    """
    bare = unwrap(model, keep_torch_compile=keep_torch_compile)
    if recursive:
        _unwrap_children(bare)
    if not keep_fp32_wrapper:
        restore_forward(bare)
    return bare


def _unwrap_children(model: nn.Module) -> None:
    for parent in list(model.modules()):
        for name, child in parent._modules.items():
            if child is not None and (inside := unwrap(child)) is not child:
                parent._modules[name] = inside
