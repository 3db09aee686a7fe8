"""Optimizers that update each parameter in the middle of the backward pass, as LOMO does.

Lv et al., "Full Parameter Fine-tuning for Large Language Models with Limited Resources", 2023. They are known
by their method `fused_backward(loss, learning_rate)`. Called by `Accelerator.lomo_backward`.
"""

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch.optim import Optimizer

from accelerate.errors import ConfigurationError
from accelerate.precision.base import StepOutcome

__all__ = ["fused", "fused_backward", "no_step", "refuse_learning_rate", "steps_in_backward"]


def fused(optimizers: Iterable[Any]) -> list[Any]:
    """Return those of `optimizers` (prepared or not) that update in the backward pass, unwrapped."""
    inner = [getattr(optimizer, "optimizer", optimizer) for optimizer in optimizers]
    return [optimizer for optimizer in inner if callable(getattr(optimizer, "fused_backward", None))]


def steps_in_backward(optimizer: Any) -> bool:
    """Return whether nothing is left for `step`, which such an optimizer does not have."""
    step = inspect.unwrap(type(optimizer).step)  # torch wraps that of each class it has seen
    return bool(fused([optimizer])) and step is inspect.unwrap(Optimizer.step)


def no_step(optimizer: Optimizer, closure: Any) -> StepOutcome:
    """Stand in for the step of an optimizer that has stepped in the backward pass."""
    return StepOutcome(None, False)


def fused_backward(optimizers: Iterable[Any], loss: torch.Tensor, learning_rate: float | None) -> None:
    """Compute gradients of `loss` and update with them at once.

    Raises:
        ConfigurationError: no learning rate, no such optimizer, or more than one.
    """
    if learning_rate is None:
        raise ConfigurationError(
            "lomo_backward(loss, learning_rate=None): the update is made in the backward pass, so that it "
            "needs the learning rate: `scheduler.get_last_lr()[0]`, or a number."
        )
    chosen = fused(optimizers)
    if len(chosen) != 1:
        raise ConfigurationError(
            f"lomo_backward: {len(chosen)} LOMO optimizers are prepared. Pass one to `prepare`, or call "
            "`backward(loss)` for others; with several call `fused_backward(loss, learning_rate)` of the one "
            "that the loss is for."
        )
    chosen[0].fused_backward(loss, learning_rate)


def refuse_learning_rate() -> None:
    """Raise for a learning rate without an optimizer that takes it there, with the type of the interface."""
    raise TypeError(
        "backward(..., learning_rate=...) is for optimizers that update in the backward pass (LOMO), and "
        "none was prepared. Leave it out: other optimizers have their learning rate in `param_groups`."
    )
