"""Code that runs before and after the forward pass of one module. Called by whoever attaches a hook.

Clients read and change two names on a module that has a hook: `_hf_hook`, the hook, and `_old_forward`, the
forward pass inside; and one hook calls another's `pre_forward` by hand. Both therefore stay as they are.
"""

import logging
import types
from typing import Any

import torch
from torch import nn

from accelerate.modules.forward import ForwardWrapper, is_own_forward

__all__ = [
    "ModelHook",
    "SequentialHook",
    "StayHere",
    "add_hook_to_module",
    "remove_hook_from_module",
    "remove_hook_from_submodules",
]

logger = logging.getLogger(__name__)


class ModelHook:
    """What runs around the forward pass of a module; as it stands, nothing.

    Call order: `init_hook` once, then `pre_forward` and `post_forward` around every forward pass, at last
    `detach_hook`. When the forward pass or a hook raises, `_abandon` ends it.

    Attributes:
        no_grad: run the forward pass without recording it for gradients.
    """

    no_grad: bool = False

    def init_hook(self, module: nn.Module) -> nn.Module:
        """Prepare `module` when the hook is attached; return the module that gets the hook."""
        return module

    def pre_forward(
        self, module: nn.Module, *args: Any, **kwargs: Any
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the positional and the keyword arguments that the forward pass gets."""
        return args, kwargs

    def post_forward(self, module: nn.Module, output: Any) -> Any:
        """Return what the call of the module gives, from what its forward pass gave."""
        return output

    def _abandon(self, module: nn.Module) -> None:
        """Undo what `pre_forward` did to `module`, if it did; its forward pass has raised."""

    def detach_hook(self, module: nn.Module) -> nn.Module:
        """Undo what `init_hook` did, when the hook is removed; return the module."""
        return module


class StayHere:
    """What stands in for a method of one module that would move it, as `to`; goes with the module's hook.

    It warns, and refuses where weights are elsewhere, since moving would lose them.

    Args:
        move: the method inside.
    """

    def __init__(self, move: types.MethodType) -> None:
        self.function = move.__func__
        self.module: Any = move.__self__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Warn, and move the module unless that would lose weights."""
        logger.warning("You shouldn't move a model that is dispatched using accelerate hooks.")
        if any(parameter.is_meta for parameter in self.module.parameters()):
            raise RuntimeError("You can't move a model that has some modules offloaded to cpu or disk.")
        return self.function(self.module, *args, **kwargs)


class SequentialHook(ModelHook):
    """Several hooks as one; before and after the forward pass each gets what the one before it gave.

    Args:
        hooks: in the order in which they run, both before and after.
    """

    def __init__(self, *hooks: ModelHook) -> None:
        self.hooks = hooks

    def init_hook(self, module: nn.Module) -> nn.Module:
        """Prepare the module by every hook."""
        for hook in self.hooks:
            module = hook.init_hook(module)
        return module

    def pre_forward(
        self, module: nn.Module, *args: Any, **kwargs: Any
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Pass the arguments through every hook."""
        for hook in self.hooks:
            args, kwargs = hook.pre_forward(module, *args, **kwargs)
        return args, kwargs

    def post_forward(self, module: nn.Module, output: Any) -> Any:
        """Pass the output through every hook."""
        for hook in self.hooks:
            output = hook.post_forward(module, output)
        return output

    def _abandon(self, module: nn.Module) -> None:
        """Let every hook undo its part."""
        for hook in self.hooks:
            hook._abandon(module)

    def detach_hook(self, module: nn.Module) -> nn.Module:
        """Let every hook undo its part."""
        for hook in self.hooks:
            module = hook.detach_hook(module)
        return module


def add_hook_to_module(module: nn.Module, hook: ModelHook, append: bool = False) -> nn.Module:
    """Attach `hook` to `module`, so that it runs around every forward pass, and return the module.

    Replaces `module.forward` by an object that can be copied and pickled with the module. The same hook on
    the same module twice stays attached once.

    Args:
        module: it is changed in place.
        hook: its `init_hook` is called, and may give another module.
        append: keep a hook that is there already, and run `hook` after it; both are initialised anew.
            Otherwise the old one is replaced, and does not get to undo what it did.

    Example:
        >>> class Double(ModelHook):
        ...     def post_forward(self, module, output):
        ...         return 2 * output
        >>> module = add_hook_to_module(nn.Identity(), Double())
        >>> module(torch.ones(2))
        tensor([2., 2.])
        >>> _ = add_hook_to_module(module, Double(), append=True)
        >>> module(torch.ones(2))
        tensor([4., 4.])
    """
    if append and "_hf_hook" in module.__dict__:
        old_hook: Any = module._hf_hook
        remove_hook_from_module(module)
        hook = SequentialHook(old_hook, hook)
    module = hook.init_hook(module)
    # Not through __setattr__: some classes of modules have ideas of their own about unknown attributes.
    module.__dict__.setdefault("_old_forward", module.forward)
    module.__dict__["_hf_hook"] = hook
    module.__dict__["forward"] = _HookedForward(module)
    return module


class _HookedForward(ForwardWrapper):
    """What stands in for the forward pass of a module with a hook."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module.__dict__["_old_forward"])
        self.module = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module: Any = self.module
        hook = module._hf_hook
        try:
            args, kwargs = hook.pre_forward(module, *args, **kwargs)
            if hook.no_grad:
                with torch.no_grad():
                    output = module._old_forward(*args, **kwargs)
            else:
                output = module._old_forward(*args, **kwargs)
            return hook.post_forward(module, output)
        except BaseException:
            hook._abandon(module)
            raise


def remove_hook_from_module(module: nn.Module, recurse: bool = False) -> nn.Module:
    """Remove the hook of `module`, which is then as it was before, and return the module.

    A hook that keeps weights elsewhere puts them back.

    Args:
        module: it is changed in place; nothing happens without a hook.
        recurse: also remove the hooks of everything inside.

    Example:
        >>> module = add_hook_to_module(nn.Identity(), ModelHook())
        >>> remove_hook_from_module(module) is module, hasattr(module, "_hf_hook")
        (True, False)
    """
    hook: Any = module.__dict__.get("_hf_hook")
    if hook is not None:
        hook.detach_hook(module)
        del module._hf_hook
    original = module.__dict__.pop("_old_forward", None)
    if original is not None:
        if is_own_forward(module, original):
            del module.__dict__["forward"]
        else:
            module.__dict__["forward"] = original
    for name in [name for name, value in module.__dict__.items() if isinstance(value, StayHere)]:
        del module.__dict__[name]
    if recurse:
        for child in module.children():
            remove_hook_from_module(child, recurse)
    return module


def remove_hook_from_submodules(module: nn.Module) -> None:
    """Remove the hooks of `module` and of everything inside it.

    Args:
        module: it is changed in place.
    """
    remove_hook_from_module(module, recurse=True)
