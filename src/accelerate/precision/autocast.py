"""What precisions on top of `torch.autocast` share: float32 weights and outputs, half-precision operations.

The base of bf16 and fp16, which name their dtype; `autocast_context` gives the context to others.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
from torch.nn import Module

from accelerate.devices.base import Device
from accelerate.modules.forward import ForwardWrapper, replace_forward, restore_forward
from accelerate.modules.fp32 import ConvertOutputsToFp32
from accelerate.options.handlers import AutocastKwargs, GradScalerKwargs
from accelerate.precision.base import Dtypes, Precision
from accelerate.state import AcceleratorState

__all__ = [
    "AutocastForward",
    "AutocastPrecision",
    "autocast_context",
    "get_mixed_precision_context_manager",
]

# Engines of fp8 compute the rest in bfloat16.
_DTYPES = {"bf16": torch.bfloat16, "fp8": torch.bfloat16, "fp16": torch.float16}


def autocast_context(
    device_type: str, dtype: torch.dtype | None, handler: AutocastKwargs | None = None
) -> AbstractContextManager[Any]:
    """Return `torch.autocast` for a kind of device, with the options of `handler`."""
    options = {} if handler is None else handler.to_kwargs()
    return torch.autocast(device_type, dtype=dtype, **options)


def get_mixed_precision_context_manager(
    native_amp: bool = False, autocast_kwargs: AutocastKwargs | None = None
) -> AbstractContextManager[Any]:
    """Return a context in which operations compute as the `Accelerator` of this process says.

    Args:
        native_amp: cast at all; without it, the context changes nothing.
        autocast_kwargs: options of autocast.

    Returns:
        `torch.autocast` for the device of this run, in bfloat16 or float16. Without mixed precision the dtype
        is the one that torch chooses.

    Raises:
        ValueError: `native_amp`, and no `Accelerator` was made yet.
    """
    if not native_amp:
        return nullcontext()
    state = AcceleratorState()
    return autocast_context(state.device.type, _DTYPES.get(state.mixed_precision), autocast_kwargs)


class AutocastForward(ForwardWrapper):
    """A forward pass whose operations run under `torch.autocast`.

    Args:
        model_forward: the forward pass inside.
        device_type: kind of device whose operations are cast.
        dtype: to which.
        options: other arguments of `torch.autocast`.
    """

    def __init__(
        self, model_forward: Any, *, device_type: str, dtype: torch.dtype, options: dict[str, Any]
    ) -> None:
        super().__init__(model_forward)
        self.device_type, self.dtype, self.options = device_type, dtype, options

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the forward pass inside under autocast."""
        # A new context each time: one cannot be entered twice at once, and a forward pass may call itself.
        with torch.autocast(self.device_type, dtype=self.dtype, **self.options):
            return self.model_forward(*args, **kwargs)


class AutocastPrecision(Precision):
    """Half-precision operations, where autocast finds them safe; weights, gradients and outputs are float32.

    The forward pass of a prepared model is replaced on the instance: conversion of the outputs outside,
    autocast inside. Its own stays in `model._original_forward`.
    """

    dtype: ClassVar[torch.dtype]

    def __init__(
        self,
        device: Device | None = None,
        *,
        autocast: AutocastKwargs | None = None,
        scaler: GradScalerKwargs | None = None,
    ) -> None:
        super().__init__(device)
        self._handler = autocast

    @classmethod
    def obstacle(cls, device: Device) -> str | None:
        """Return what keeps `device` from computing in the dtype under autocast."""
        if not device.supports_autocast():
            return f"torch {torch.__version__} has no autocast for {device.type!r} devices"
        return (
            None
            if device.supports(cls.dtype)
            else f"this {device.type!r} device does not compute in {cls.dtype}"
        )

    def wrap_forward(self, model: Module) -> Module:
        """Replace the forward pass of `model`; what a former precision put there comes off first."""
        options = {} if self._handler is None else self._handler.to_kwargs()

        def wrap(forward: Callable[..., Any]) -> ConvertOutputsToFp32:
            cast = AutocastForward(forward, device_type=self.device.type, dtype=self.dtype, options=options)
            return ConvertOutputsToFp32(cast)

        replace_forward(model, wrap)
        return model

    def unwrap_forward(self, model: Module) -> Module:
        """Give `model` its own forward pass back."""
        restore_forward(model)
        return model

    def autocast(self, handler: AutocastKwargs | None = None) -> AbstractContextManager[Any]:
        """Return `torch.autocast` for the device and dtype."""
        return autocast_context(self.device.type, self.dtype, handler or self._handler)

    def dtypes(self) -> Dtypes:
        """Return the dtype for everything that an engine casts."""
        return Dtypes(param=self.dtype, reduce=self.dtype, buffer=self.dtype, output=self.dtype)
