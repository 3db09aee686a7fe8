"""GradientAccumulationPlugin: how micro-batches add up to one optimizer step. Passed to `Accelerator`."""

import dataclasses

from accelerate.errors import ConfigurationError
from accelerate.options.field import option
from accelerate.options.handlers import KwargsHandler

__all__ = ["GradientAccumulationPlugin"]


@dataclasses.dataclass
class GradientAccumulationPlugin(KwargsHandler):
    """Choose how micro-batches add up to one optimizer step.

    Args:
        num_steps: number of micro-batches in one step.
        adjust_scheduler: part of the interface, told by `GradientState`; a prepared scheduler advances with
            optimizer steps either way.
        sync_with_dataloader: whether the last batch of a loader always ends a step.
        sync_each_batch: whether ranks all-reduce gradients after every micro-batch; slower, with less memory.

    Raises:
        ConfigurationError: `num_steps` is below 1.

    Example:
        >>> from accelerate.utils import GradientAccumulationPlugin
        >>> GradientAccumulationPlugin(num_steps=4).to_kwargs()
        {'num_steps': 4}
    """

    num_steps: int | None = option(None, help="number of micro-batches in one optimizer step")
    adjust_scheduler: bool = option(
        True, help="part of the interface; schedulers advance with optimizer steps either way"
    )
    sync_with_dataloader: bool = option(True, help="the last batch of a loader always ends a step")
    sync_each_batch: bool = option(False, help="all-reduce gradients after every micro-batch")

    def __post_init__(self) -> None:
        if isinstance(self.num_steps, int) and self.num_steps < 1:
            raise ConfigurationError(
                f"GradientAccumulationPlugin(num_steps={self.num_steps}): use an integer of 1 or more"
            )
