"""Precision fp16: gradients can leave its range, so that they are scaled. Chosen by precision/select."""

from typing import Any, ClassVar

import torch
from torch.optim import Optimizer

from accelerate.devices.base import Device
from accelerate.errors import OptimizerStepError
from accelerate.options.handlers import AutocastKwargs, GradScalerKwargs
from accelerate.precision.autocast import AutocastPrecision
from accelerate.precision.base import DONE, SKIPPED, StepOutcome
from accelerate.precision.scaler import make_scaler

__all__ = ["FP16"]


class FP16(AutocastPrecision):
    """Operations in float16. The loss is scaled up; a step whose gradients overflowed is skipped.

    Attributes:
        scaler: the gradient scaler, see [Note: one update a step].
    """

    name: ClassVar[str] = "fp16"
    dtype: ClassVar[torch.dtype] = torch.float16

    def __init__(
        self,
        device: Device | None = None,
        *,
        autocast: AutocastKwargs | None = None,
        scaler: GradScalerKwargs | None = None,
    ) -> None:
        super().__init__(device, autocast=autocast)
        self.scaler = make_scaler(self.device.type, scaler)

    @classmethod
    def obstacle(cls, device: Device) -> str | None:
        """Return what keeps `device` from computing in float16 or from scaling gradients."""
        if not device.supports_grad_scaler():
            return f"torch {torch.__version__} cannot scale gradients on {device.type!r} devices"
        return super().obstacle(device)

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the loss times the scale."""
        scaled: torch.Tensor = self.scaler.scale(loss)
        return scaled

    def unscale(self, optimizer: Optimizer) -> None:
        """Divide the gradients by the scale, unless that has been done since they were computed."""
        self.scaler.unscale_(optimizer)

    def step(self, optimizer: Optimizer, closure: Any = None) -> StepOutcome:
        """Let `optimizer` make one step with unscaled gradients, or none when they are not finite.

        Raises:
            OptimizerStepError: a closure was passed.
        """
        if not self.scaler.is_enabled():
            return super().step(optimizer, closure)
        if closure is not None:
            raise OptimizerStepError(
                f'{type(optimizer).__name__}.step(closure) under mixed_precision="fp16": gradients that the '
                "closure computes are scaled, and cannot be unscaled inside the step. Call `backward` before "
                '`step()` without a closure, or train in "bf16" or "no", which need no scaling.'
            )
        self.scaler.step(optimizer)
        skipped = self.scaler.skipped
        if isinstance(skipped, torch.Tensor):
            return StepOutcome(None, skipped)
        return SKIPPED if skipped else DONE

    def state_dict(self) -> dict[str, Any]:
        """Return the scale and how many good steps it has seen."""
        state: dict[str, Any] = self.scaler.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the scale of `state`."""
        self.scaler.load_state_dict(state)
