"""Number formats of a training step: the protocol, whose base class is fp32. Called by strategies.

Call order, on every rank: `convert` and `wrap_forward` once a model, in `prepare`; then in each step
`autocast` around the forward pass (built into the wrapped forward), `scale` on the loss before backward,
`unscale` before gradients are read or clipped, and `step` for the optimizer.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch.nn import Module
from torch.optim import Optimizer

__all__ = ["DONE", "Dtypes", "Precision", "StepOutcome"]


class StepOutcome(NamedTuple):
    """What one optimizer step gave.

    Attributes:
        loss: what the closure returned; None without a closure.
        skipped: whether the parameters were left alone because gradients had overflowed.
    """

    loss: Any
    skipped: bool


# The outcome of an ordinary step, made once: the hot path allocates nothing.
DONE = StepOutcome(None, False)


@dataclass(frozen=True, kw_only=True)
class Dtypes:
    """What a sharding engine needs to know of a precision; None leaves a tensor in its own dtype."""

    param: torch.dtype | None = None
    reduce: torch.dtype | None = None
    buffer: torch.dtype | None = None
    output: torch.dtype | None = None


class Precision:
    """Full precision: every method leaves its argument alone."""

    name: ClassVar[str] = "no"
    scaler: Any = None  # torch.amp.GradScaler where gradients are scaled

    def convert(self, model: Module) -> Module:
        """Return `model` with layers replaced where the format needs its own."""
        return model

    def wrap_forward(self, model: Module) -> Module:
        """Make `model`'s forward pass compute in this format and give fp32 outputs."""
        return model

    def unwrap_forward(self, model: Module) -> Module:
        """Undo `wrap_forward`."""
        return model

    def autocast(self, handler: Any = None) -> AbstractContextManager[Any]:
        """Return a context in which operations compute in this format."""
        return nullcontext()

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the loss from which backward is to start."""
        return loss

    def unscale(self, optimizer: Optimizer) -> None:
        """Bring the gradients of `optimizer`'s parameters back to their true size; at most once a step."""

    def step(self, optimizer: Optimizer, closure: Any = None) -> StepOutcome:
        """Let `optimizer` (the user's own object) make one step."""
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
