"""The optimizer that `prepare` gives back: the user's own, stepping only when gradients are synchronised.

Made by the Accelerator; the training loop calls it like the optimizer it holds.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

from accelerate.runtime.accumulation import accumulation
from accelerate.state import accelerator_state, gradient_state

if TYPE_CHECKING:
    from accelerate.precision.base import StepOutcome
    from accelerate.state import AcceleratorState, GradientState

__all__ = ["AcceleratedOptimizer", "move_to_device", "owners"]


def move_to_device(state: Any, device: torch.device) -> Any:
    """Return optimizer state (tensors in lists, tuples and dicts) with every tensor on `device`."""
    if isinstance(state, (list, tuple)):
        return type(state)(move_to_device(item, device) for item in state)
    if isinstance(state, dict):
        return type(state)((key, move_to_device(value, device)) for key, value in state.items())
    return state.to(device) if isinstance(state, torch.Tensor) else state


def owners(optimizers: Iterable[Optimizer], parameters: Iterable[torch.Tensor]) -> list[Optimizer]:
    """Return those of `optimizers` that step any of `parameters`."""
    wanted = {id(parameter) for parameter in parameters}
    return [
        optimizer
        for optimizer in optimizers
        if any(id(held) in wanted for group in optimizer.param_groups for held in group["params"])
    ]


class AcceleratedOptimizer(Optimizer):
    """An optimizer whose `step` and `zero_grad` do nothing inside an accumulation window.

    It shares `param_groups`, `state` and `defaults` with the optimizer it holds, so that schedulers and
    checkpoints see one and the same object.

    Args:
        optimizer: the user's optimizer.
        device_placement: move its state to the device of this rank.
        scaler: gradient scaler to step through, None in full precision.
        step_function: what makes the step, given the optimizer and a closure; the Accelerator passes its
            strategy's.
        zero_grad_function: what drops gradients, given the optimizer and `set_to_none`.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        device_placement: bool = True,
        scaler: Any = None,
        *,
        step_function: Callable[[Optimizer, Any], "StepOutcome"] | None = None,
        zero_grad_function: Callable[[Optimizer, bool], None] | None = None,
    ) -> None:
        self.optimizer = optimizer
        self.scaler = scaler
        self.device_placement = device_placement
        self._step_function = step_function
        self._zero_grad_function = zero_grad_function
        self._skipped: bool | torch.Tensor = False
        self._accelerate_step_called = False
        if device_placement and optimizer.state:
            device = accelerator_state().device
            optimizer.load_state_dict(move_to_device(optimizer.state_dict(), device))

    @property
    def accelerator_state(self) -> "AcceleratorState":
        """The public training state."""
        return accelerator_state()

    @property
    def gradient_state(self) -> "GradientState":
        """The public accumulation window."""
        return gradient_state()

    @property
    def state(self) -> Any:
        """The wrapped optimizer's state, by parameter."""
        return self.optimizer.state

    @state.setter
    def state(self, state: Any) -> None:
        self.optimizer.state = state

    @property
    def param_groups(self) -> Any:
        """The wrapped optimizer's parameter groups."""
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, param_groups: Any) -> None:
        self.optimizer.param_groups = param_groups

    @property
    def defaults(self) -> Any:
        """The wrapped optimizer's defaults."""
        return self.optimizer.defaults

    @defaults.setter
    def defaults(self, defaults: Any) -> None:
        self.optimizer.defaults = defaults

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group to the wrapped optimizer."""
        self.optimizer.add_param_group(param_group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load state into the wrapped optimizer."""
        self.optimizer.load_state_dict(state_dict)

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state."""
        return self.optimizer.state_dict()

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Drop gradients, unless an accumulation window is open.

        Args:
            set_to_none: set them to None (default) rather than to zero.
        """
        if not accumulation.sync_gradients:
            return
        to_none = True if set_to_none is None else set_to_none
        if self._zero_grad_function is None:
            self.optimizer.zero_grad(to_none)
        else:
            self._zero_grad_function(self.optimizer, to_none)

    def step(self, closure: Any = None) -> Any:
        """Make one step, unless an accumulation window is open.

        Returns:
            What `closure` returned; None without one or when nothing was done.
        """
        if not accumulation.sync_gradients:
            return None
        if self._step_function is None:
            return self._step_alone(closure)
        loss, self._skipped = self._step_function(self.optimizer, closure)
        return loss

    def _step_alone(self, closure: Any) -> Any:
        if self.scaler is None:
            return self.optimizer.step(closure)
        scale = self.scaler.get_scale()
        # By its name: torch refuses a closure so, but passes it on as a second argument.
        loss = self.scaler.step(self.optimizer, **({} if closure is None else {"closure": closure}))
        self.scaler.update()
        self._skipped = self.scaler.get_scale() < scale
        return loss

    @property
    def step_was_skipped(self) -> bool:
        """Whether the last step left the parameters alone because gradients had overflowed."""
        self._skipped = bool(self._skipped)  # a tensor where only the device knew; ask it once
        return self._skipped

    def train(self) -> None:
        """Put a schedule-free optimizer into training mode; others have no modes."""
        if callable(getattr(self.optimizer, "train", None)):
            self.optimizer.train()  # type: ignore[attr-defined]

    def eval(self) -> None:
        """Put a schedule-free optimizer into evaluation mode; others have no modes."""
        if callable(getattr(self.optimizer, "eval", None)):
            self.optimizer.eval()  # type: ignore[attr-defined]

    def __getstate__(self) -> dict[str, Any]:
        # The functions belong to a run; in another process they would name the wrong one.
        return {**self.__dict__, "_step_function": None, "_zero_grad_function": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"AcceleratedOptimizer({self.optimizer!r})"
