"""The learning-rate scheduler that `prepare` gives back: the user's own, in step with the optimizer.

Made by the Accelerator; the training loop calls it once a micro-batch.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch.optim.lr_scheduler import ReduceLROnPlateau

from accelerate.runtime.accumulation import accumulation
from accelerate.runtime.current import current
from accelerate.state import gradient_state

if TYPE_CHECKING:
    from accelerate.state import GradientState

__all__ = ["AcceleratedScheduler"]


class AcceleratedScheduler:
    """A scheduler that advances when the optimizer really stepped.

    A schedule is usually written for one process. With n processes each step consumes n batches, so that it
    advances n times a step; with `split_batches` the batches of all processes make up one, and it advances
    once. A schedule that follows a metric advances once a metric. Neither the number of micro-batches in a
    window nor the accumulation plugin's `adjust_scheduler` changes that.

    Args:
        scheduler: the user's scheduler.
        optimizers: the prepared optimizer or optimizers whose steps it follows.
        step_with_optimizer: follow them; if False, each call advances once, unconditionally.
        split_batches: whether one batch is shared among all processes.
        per_process: advance once a process with each step; if False once a step, for a schedule that is
            written in optimizer steps.

    Example:
        >>> import torch
        >>> from accelerate.optimizer import AcceleratedOptimizer
        >>> inner = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
        >>> optimizer = AcceleratedOptimizer(inner)
        >>> schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
        >>> scheduler = AcceleratedScheduler(schedule, optimizer, per_process=False)
        >>> optimizer.step()
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.5]
    """

    def __init__(
        self,
        scheduler: Any,
        optimizers: Any,
        step_with_optimizer: bool = True,
        split_batches: bool = False,
        *,
        per_process: bool = True,
    ) -> None:
        self.scheduler = scheduler
        self.optimizers: Sequence[Any] = optimizers if isinstance(optimizers, (list, tuple)) else [optimizers]
        self.split_batches = split_batches
        self.step_with_optimizer = step_with_optimizer
        follows_metric = isinstance(scheduler, ReduceLROnPlateau)
        is_once = follows_metric or not per_process
        self._num_processes = 1 if is_once else current.ensure().num_processes
        self._limited = hasattr(scheduler, "total_steps") and hasattr(scheduler, "last_epoch")

    @property
    def gradient_state(self) -> "GradientState":
        """The public accumulation window."""
        return gradient_state()

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Advance the schedule if the optimizer stepped since the last call."""
        if not self.step_with_optimizer:
            self.scheduler.step(*args, **kwargs)
            return
        if not accumulation.sync_gradients:
            return
        for optimizer in self.optimizers:
            if optimizer.step_was_skipped:
                return
        for _ in range(1 if self.split_batches else self._num_processes):
            # OneCycle-like schedules raise past their end, which the rounding up of batches may reach.
            if not self._limited or self.scheduler.last_epoch < self.scheduler.total_steps:
                self.scheduler.step(*args, **kwargs)

    def get_last_lr(self) -> Any:
        """Return the learning rate of each group, as last set."""
        return self.scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped scheduler's state."""
        state: dict[str, Any] = self.scheduler.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load state into the wrapped scheduler."""
        self.scheduler.load_state_dict(state_dict)

    def get_lr(self) -> Any:
        """Return the learning rates that the wrapped scheduler computes for now."""
        return self.scheduler.get_lr()

    def print_lr(self, *args: Any, **kwargs: Any) -> None:
        """Print the learning rate, as the wrapped scheduler does."""
        self.scheduler.print_lr(*args, **kwargs)
