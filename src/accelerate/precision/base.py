"""Number formats of a training step: the protocol, whose base class is fp32. Called by strategies.

Call order, on every rank: `convert` and `wrap_forward` once a model, in `prepare`; then in each step
`autocast` around the forward pass (built into the wrapped forward), `scale` on the loss before backward,
`unscale` before gradients are read or clipped, and `step` for the optimizer.
"""

from contextlib import AbstractContextManager, ContextDecorator, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch.nn import Module
from torch.optim import Optimizer

from accelerate.devices.base import Device
from accelerate.options.handlers import AutocastKwargs, GradScalerKwargs

__all__ = ["DONE", "SKIPPED", "Dtypes", "Precision", "StepOutcome"]


class StepOutcome(NamedTuple):
    """What one optimizer step gave.

    Attributes:
        loss: what the closure returned; None without a closure.
        skipped: whether the parameters were left alone because gradients had overflowed. A 0-d tensor where
            only the device knows: `bool` of it waits for the device.
    """

    loss: Any
    skipped: bool | torch.Tensor


# The outcomes without a loss, made once: the hot path allocates nothing.
DONE = StepOutcome(None, False)
SKIPPED = StepOutcome(None, True)


@dataclass(frozen=True, kw_only=True)
class Dtypes:
    """What a sharding engine needs to know of a precision; None leaves a tensor in its own dtype."""

    param: torch.dtype | None = None
    reduce: torch.dtype | None = None
    buffer: torch.dtype | None = None
    output: torch.dtype | None = None


class _Unchanged(ContextDecorator, nullcontext[None]):
    """Does nothing, as a context and as a decorator."""


_UNCHANGED = _Unchanged()


class Precision:
    """Full precision: every method leaves its argument alone.

    Args:
        device: the kind of hardware to compute on.
        autocast: options of autocast, for precisions that use it.
        scaler: options of the gradient scaler, for precisions that have one.
    """

    name: ClassVar[str] = "no"
    scaler: Any = None  # torch.amp.GradScaler where gradients are scaled

    def __init__(
        self,
        device: Device | None = None,
        *,
        autocast: AutocastKwargs | None = None,
        scaler: GradScalerKwargs | None = None,
    ) -> None:
        self.device = Device() if device is None else device

    @classmethod
    def obstacle(cls, device: Device) -> str | None:
        """Return why `device` cannot train in this format; None when it can."""
        return None

    def convert(self, model: Module) -> Module:
        """Return `model` with layers replaced where the format needs its own."""
        return model

    def wrap_forward(self, model: Module) -> Module:
        """Make `model`'s forward pass compute in this format and give fp32 outputs."""
        return model

    def unwrap_forward(self, model: Module) -> Module:
        """Undo `wrap_forward`."""
        return model

    def autocast(self, handler: AutocastKwargs | None = None) -> AbstractContextManager[Any]:
        """Return a context, which is also a decorator, in which operations compute in this format.

        Args:
            handler: options in place of those given to the constructor.
        """
        return _UNCHANGED

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the loss from which backward is to start."""
        return loss

    def unscale(self, optimizer: Optimizer) -> None:
        """Bring the gradients of `optimizer`'s parameters back to their true size; at most once a step."""

    def step(self, optimizer: Optimizer, closure: Any = None) -> StepOutcome:
        """Let `optimizer` (the user's own object) make one step.

        Raises:
            OptimizerStepError: a closure was passed, and the precision cannot step with one.
        """
        if closure is None:
            optimizer.step()
            return DONE
        return StepOutcome(optimizer.step(closure), False)

    def dtypes(self) -> Dtypes:
        """Return the dtypes for engines that cast by themselves."""
        return Dtypes()

    def state_dict(self) -> dict[str, Any]:
        """Return what must be saved to go on exactly; empty when there is nothing."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
