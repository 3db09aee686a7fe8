"""Data parallelism with whole replicas: torch's DistributedDataParallel. Chosen by strategies/select.

Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

import torch
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from accelerate.errors import ConfigurationError
from accelerate.options.enums import DDPCommunicationHookType
from accelerate.options.request import Request
from accelerate.precision.base import Precision
from accelerate.runtime import process_group
from accelerate.runtime.current import Current
from accelerate.strategies.base import Strategy, Traits

__all__ = ["DDP"]


class DDP(Strategy):
    """Every rank holds the whole model; gradients are averaged over ranks during backward.

    `request.ddp` holds arguments for DistributedDataParallel.
    """

    traits: ClassVar[Traits] = Traits(supports_join=True)

    def __init__(self, run: Current, precision: Precision, request: Request) -> None:
        super().__init__(run, precision, request)
        options = request.ddp
        if options is not None and options.comm_hook != DDPCommunicationHookType.NO:
            raise ConfigurationError(
                f"DistributedDataParallelKwargs(comm_hook={options.comm_hook!r}): communication hooks are "
                "not available in this version. Leave comm_hook at DDPCommunicationHookType.NO."
            )
        self._kwargs: dict[str, Any] = {} if options is None else options.to_kwargs()

    def prepare_model(self, model: Module, *, place: bool = True, evaluation: bool = False) -> Module:
        """Return `model` inside DistributedDataParallel; a model without trainable parameters stays bare.

        Rank 0's weights and buffers are broadcast, so that all replicas start equal.
        """
        model = super().prepare_model(model, place=place, evaluation=evaluation)
        if evaluation or not any(parameter.requires_grad for parameter in model.parameters()):
            return model
        replica = DistributedDataParallel(model, device_ids=self._devices(model), **self._kwargs)
        process_group.hold(replica.process_group, replica, _drop_group)
        return replica

    def _devices(self, model: Module) -> list[torch.device] | None:
        """Return what DistributedDataParallel moves inputs to; None on CPU, and for a model spread out."""
        device = self.run.device
        spread = any(parameter.device != device for parameter in model.parameters())
        return None if device.type == "cpu" or spread else [device]

    def no_sync(self, model: Module) -> AbstractContextManager[Any]:
        """Return a context whose backward passes leave gradients local."""
        if isinstance(model, DistributedDataParallel):
            return model.no_sync()
        return super().no_sync(model)

    @contextmanager
    def trigger_sync(self, model: Module) -> Iterator[None]:
        """Make the next backward reduce gradients although its forward ran under `no_sync`."""
        if not isinstance(model, DistributedDataParallel):
            yield
            return
        saved = model.require_backward_grad_sync, model.require_forward_param_sync
        model.require_backward_grad_sync = model.require_forward_param_sync = True
        # The forward pass under no_sync did not arm the reducer; an empty list means: expect every parameter.
        model.reducer.prepare_for_backward([])
        try:
            yield
        finally:
            model.require_backward_grad_sync, model.require_forward_param_sync = saved


def _drop_group(replica: DistributedDataParallel) -> None:
    """Take everything that communicates out of a replica that will not be called again."""
    for name in ("reducer", "logger", "process_group"):
        vars(replica).pop(name, None)
