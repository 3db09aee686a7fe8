"""The optimizer that `prepare` gives back: the user's own, stepping only when gradients are synchronised.

Made by the Accelerator; the training loop calls it like the optimizer it holds.
"""

from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import wraps
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

from accelerate.errors import OptimizerStepError
from accelerate.modules.nested import flatten, map_leaves
from accelerate.runtime.accumulation import accumulation
from accelerate.runtime.current import current
from accelerate.state import accelerator_state, gradient_state

if TYPE_CHECKING:
    from accelerate.precision.base import StepOutcome
    from accelerate.state import AcceleratorState, GradientState

__all__ = ["AcceleratedOptimizer", "move_to_device", "owners", "patch_optimizer_step"]


def move_to_device(state: Any, device: torch.device) -> Any:
    """Return optimizer state (tensors in nested containers) with every tensor on `device`.

    Example:
        >>> move_to_device({"step": torch.ones(()), "lr": 0.1}, torch.device("meta"))
        {'step': tensor(..., device='meta', size=()), 'lr': 0.1}
    """
    return map_leaves(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, state)


def _is_elsewhere(state: Any, device: torch.device) -> bool:
    """Return whether some tensor of optimizer state lies on another device; counters may lie anywhere."""
    tensors = [leaf for leaf in flatten(state)[0] if isinstance(leaf, torch.Tensor) and leaf.dim()]
    index = None if device.type == "cpu" else device.index  # a CPU tensor never reports an index
    return any(
        tensor.device.type != device.type or (index is not None and tensor.device.index != index)
        for tensor in tensors
    )


def owners(optimizers: Iterable[Optimizer], parameters: Iterable[torch.Tensor]) -> list[Optimizer]:
    """Return those of `optimizers` that step any of `parameters`."""
    wanted = {id(parameter) for parameter in parameters}
    return [
        optimizer
        for optimizer in optimizers
        if any(id(held) in wanted for group in optimizer.param_groups for held in group["params"])
    ]


def patch_optimizer_step(
    accelerated_optimizer: "AcceleratedOptimizer", method: Callable[..., Any]
) -> Callable[..., Any]:
    """Return `method` such that each call of it is noted on an optimizer, as `_accelerate_step_called`.

    For code that hands an optimizer's step to something that may leave it out, such as a gradient scaler, and
    wants to know whether it was made.

    Args:
        accelerated_optimizer: what takes the note.
        method: the step; it is called as before, and gives what it gives.

    Example:
        >>> from accelerate.optimizer import AcceleratedOptimizer, patch_optimizer_step
        >>> optimizer = AcceleratedOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))]))
        >>> step = patch_optimizer_step(optimizer, optimizer.optimizer.step)
        >>> optimizer._accelerate_step_called = False
        >>> step()
        >>> optimizer._accelerate_step_called
        True
    """

    @wraps(method)
    def patched_step(*args: Any, **kwargs: Any) -> Any:
        accelerated_optimizer._accelerate_step_called = True
        return method(*args, **kwargs)

    return patched_step


def _check_has_scaled(scaler: Any) -> None:
    """Raise if `scaler` has had no loss: torch has only an assertion then, which does not say what to do."""
    # Disabled scalers have no scale at all, and step without one.
    if getattr(scaler, "_scale", scaler) is None and scaler.is_enabled():
        raise OptimizerStepError(
            "optimizer.step(): the gradient scaler of this optimizer has not scaled any loss, so that these "
            "gradients come from elsewhere. An optimizer that was pickled has a scaler of its own, which "
            "`accelerator.backward` does not know: prepare what is inside, `optimizer = "
            "accelerator.prepare(optimizer.optimizer)`. (`copy.deepcopy` gives one that shares the scaler.)"
        )


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

    Example:
        >>> from accelerate.state import GradientState
        >>> parameter = torch.nn.Parameter(torch.ones(1))
        >>> optimizer = AcceleratedOptimizer(torch.optim.SGD([parameter], lr=0.5))
        >>> for GradientState().sync_gradients in (False, True):
        ...     parameter.sum().backward()
        ...     optimizer.step()
        ...     parameter.item()
        1.0
        0.0
    """

    _accelerate_step_called = False  # see patch_optimizer_step

    def __init__(
        self,
        optimizer: Optimizer,
        device_placement: bool = True,
        scaler: Any = None,
        *,
        step_function: Callable[[Optimizer, Any], "StepOutcome"] | None = None,
        zero_grad_function: Callable[[Optimizer, bool | None], None] | None = None,
    ) -> None:
        self.optimizer = optimizer
        self.scaler = scaler
        self.device_placement = device_placement
        self._step_function = step_function
        self._zero_grad_function = zero_grad_function
        self._skipped: bool | torch.Tensor = False
        if device_placement and optimizer.state:
            device = current.ensure().device
            # Loading makes new containers and casts to the dtype of the parameters: only where it must be.
            if _is_elsewhere(list(optimizer.state.values()), device):
                optimizer.load_state_dict(move_to_device(optimizer.state_dict(), device))

    def __getattr__(self, name: str) -> Any:
        # The `register_..._hook` methods of torch keep their hooks in attributes of the optimizer that steps.
        if name.startswith("_optimizer_") and "optimizer" in self.__dict__:
            return getattr(self.optimizer, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

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
            set_to_none: set them to None rather than to zero; None leaves it to the wrapped optimizer
                (torch's own set to None).
        """
        if not accumulation.sync_gradients:
            return
        if self._zero_grad_function is not None:
            self._zero_grad_function(self.optimizer, set_to_none)
        elif set_to_none is None:
            self.optimizer.zero_grad()
        else:
            self.optimizer.zero_grad(set_to_none=set_to_none)

    def step(self, closure: Any = None) -> Any:
        """Make one step, unless an accumulation window is open.

        Returns:
            What `closure` returned; None without one or when nothing was done.

        Raises:
            OptimizerStepError: it has a scaler of its own, which has not scaled the loss (a RuntimeError).
        """
        if not accumulation.sync_gradients:
            return None
        if self._step_function is None:
            return self._step_alone(closure)
        loss, self._skipped = self._step_function(self.optimizer, closure)
        return loss

    def _step_alone(self, closure: Any) -> Any:
        if self.scaler is None:
            return self.optimizer.step() if closure is None else self.optimizer.step(closure)
        if closure is None:  # torch refuses one by itself
            _check_has_scaled(self.scaler)
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
        self._set_mode("train")

    def eval(self) -> None:
        """Put a schedule-free optimizer into evaluation mode; others have no modes."""
        self._set_mode("eval")

    def _set_mode(self, name: str) -> None:
        switch = getattr(self.optimizer, name, None)
        if callable(switch):
            switch()

    def __getstate__(self) -> dict[str, Any]:
        # The functions belong to a run; in another process they would name the wrong one.
        state = {**self.__dict__, "_step_function": None, "_zero_grad_function": None}
        # A scheduler made from this object has put a function there that steps this object, not its copy.
        state.pop("step", None)
        return state

    def __deepcopy__(self, memo: dict[int, Any]) -> "AcceleratedOptimizer":
        # A copy in this process belongs to the same run: it steps by the same functions and the one scaler.
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        memo[id(self.scaler)] = self.scaler
        twin.__setstate__(deepcopy(self.__getstate__(), memo))
        twin._step_function, twin._zero_grad_function = self._step_function, self._zero_grad_function
        return twin

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"AcceleratedOptimizer({self.optimizer!r})"
