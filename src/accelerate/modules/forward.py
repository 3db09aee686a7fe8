"""Replace the forward pass of one module, and put it back. Called by precisions, and by `unwrap_model`.

What stands in for a forward pass is an object, not a closure, so that a prepared model can be pickled and
deep-copied: a copy's forward pass computes with the copy's own weights.
"""

import functools
import types
from collections.abc import Callable
from typing import Any

from torch import nn

from accelerate.modules.compile import is_compiled_module

__all__ = ["ForwardWrapper", "is_own_forward", "replace_forward", "restore_forward"]

Forward = Callable[..., Any]


class ForwardWrapper:
    """What can stand in for a forward pass; subclasses say in `__call__` what they add to it.

    It has the name and signature of the function inside, which is also `__wrapped__`.

    Args:
        model_forward: the forward pass inside, a bound method or any callable.
    """

    def __init__(self, model_forward: Forward) -> None:
        self._stand_in_for(model_forward)

    def __getstate__(self) -> dict[str, Any]:
        names = {*functools.WRAPPER_ASSIGNMENTS, "__wrapped__"}
        state = {name: value for name, value in self.__dict__.items() if name not in names}
        if isinstance(self.model_forward, types.MethodType):
            # A bound method is pickled as "the attribute `forward` of that module", which is this object.
            state["model_forward"] = _Parts(self.model_forward)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        inside = state["model_forward"]
        forward = inside.bound() if isinstance(inside, _Parts) else inside
        self.__dict__.update(state)
        self._stand_in_for(forward)

    def _stand_in_for(self, forward: Forward) -> None:
        stand_in: Any = self  # only functions are declared to have a name and a signature
        functools.update_wrapper(stand_in, forward, updated=())
        self.model_forward = forward


class _Parts:
    """A bound method in its two parts."""

    def __init__(self, method: types.MethodType) -> None:
        self.function, self.owner = method.__func__, method.__self__

    def bound(self) -> types.MethodType:
        return types.MethodType(self.function, self.owner)


def replace_forward(model: nn.Module, wrap: Callable[[Forward], Forward]) -> None:
    """Put `wrap(forward)` in place of the forward pass of `model`; the module inside, if it is compiled.

    The original stays in `model._original_forward`. A replacement that is there already comes off first.
    """
    restore_forward(model)
    model = _inside(model)
    original = model.forward
    model._original_forward = original  # type: ignore[assignment]  # torch declares modules and tensors only
    model.forward = wrap(original)


def restore_forward(model: nn.Module) -> None:
    """Give `model` back the forward pass it had before `replace_forward`; nothing to do without one."""
    model = _inside(model)
    original = model.__dict__.pop("_original_forward", None)
    if original is None:
        return
    if is_own_forward(model, original):
        model.__dict__.pop("forward", None)
    else:
        model.forward = original


def is_own_forward(module: nn.Module, forward: Forward) -> bool:
    """Return whether `forward` is what `module.forward` gives when nothing stands in for it."""
    return (
        isinstance(forward, types.MethodType)
        and forward.__self__ is module
        and forward.__func__ is type(module).forward
    )


def _inside(model: nn.Module) -> nn.Module:
    inside: nn.Module = model._orig_mod if is_compiled_module(model) else model  # type: ignore[assignment]
    return inside
