"""Hooks that bring a whole model to a device when it is called, and leave it there. Called by pipelines.

A pipeline of several models needs one of them on the device at a time: each gives its place to the next.
"""

from typing import Any

import torch
from torch import nn

from accelerate.compat import env
from accelerate.devices.select import choose
from accelerate.modules.nested import send_to_device
from accelerate.offload.hooks import ModelHook, add_hook_to_module, remove_hook_from_module
from accelerate.runtime.current import current
from accelerate.runtime.memory import clear_device_cache

__all__ = ["CpuOffload", "UserCpuOffloadHook", "cpu_offload_with_hook", "default_device"]

_CPU = torch.device("cpu")


def default_device() -> torch.device:
    """Return the device that a process without a rank would use, in the current run or without one."""
    kind = current.kind if current.started else choose(env.snapshot())
    return torch.device(kind.type)


class CpuOffload(ModelHook):
    """Keep a model on the CPU until it is called, and on a device from then on.

    Args:
        execution_device: where the model computes; the accelerator of this machine by default.
        prev_module_hook: hook of the model that has the device so far; that one goes back to the CPU first.
    """

    def __init__(
        self,
        execution_device: str | int | torch.device | None = None,
        prev_module_hook: "UserCpuOffloadHook | None" = None,
    ) -> None:
        self.prev_module_hook = prev_module_hook
        self.execution_device = default_device() if execution_device is None else execution_device

    def init_hook(self, module: nn.Module) -> nn.Module:
        """Move the model to the CPU."""
        return module.to("cpu")

    def pre_forward(
        self, module: nn.Module, *args: Any, **kwargs: Any
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Send the other model away, bring this one to the device, and the arguments with it."""
        if self.prev_module_hook is not None:
            self.prev_module_hook.offload()
        module.to(self.execution_device)
        return send_to_device(args, self.execution_device), send_to_device(kwargs, self.execution_device)


class UserCpuOffloadHook:
    """A model and its `CpuOffload` hook, for a pipeline to say when the model gives up its place.

    Args:
        model: the model.
        hook: the hook that is attached to it.
    """

    def __init__(self, model: nn.Module, hook: CpuOffload) -> None:
        self.model = model
        self.hook = hook

    def offload(self) -> None:
        """Move the model to the CPU, and give the memory that it had back to the device."""
        if any(tensor.device != _CPU for tensor in (*self.model.parameters(), *self.model.buffers())):
            self.hook.init_hook(self.model)
            clear_device_cache()

    def remove(self) -> None:
        """Remove the hook; the model stays where it is."""
        remove_hook_from_module(self.model)


def cpu_offload_with_hook(
    model: nn.Module,
    execution_device: str | int | torch.device | None = None,
    prev_module_hook: UserCpuOffloadHook | None = None,
) -> tuple[nn.Module, UserCpuOffloadHook]:
    """Keep a model on the CPU until it is called, then on a device until its hook sends it away.

    For models that are called many times in a row, as in a pipeline's loop: the weights move once.

    Args:
        model: it is moved to the CPU and gets a hook.
        execution_device: where it computes; the accelerator of this machine by default.
        prev_module_hook: what this function gave for the model before it in the pipeline, which is sent away
            when this one is called.

    Returns:
        The model, and an object whose `offload()` sends the model to the CPU and whose `remove()` removes
        the hook.

    Example:
        >>> first, hook = cpu_offload_with_hook(nn.Linear(2, 2), "cpu")
        >>> second, last = cpu_offload_with_hook(nn.Linear(2, 2), "cpu", prev_module_hook=hook)
        >>> second(first(torch.ones(1, 2))).shape
        torch.Size([1, 2])
        >>> last.offload()
    """
    hook = CpuOffload(execution_device=execution_device, prev_module_hook=prev_module_hook)
    add_hook_to_module(model, hook, append=True)
    return model, UserCpuOffloadHook(model, hook)
