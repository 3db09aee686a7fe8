"""Data parallelism with whole replicas: torch's DistributedDataParallel. Chosen by strategies/select.

Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, ClassVar

import torch
from torch.distributed.algorithms.join import Join, Joinable
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from accelerate.errors import ConfigurationError
from accelerate.modules import comm_hooks
from accelerate.modules.compile import is_compiled_module
from accelerate.options.handlers import DistributedDataParallelKwargs
from accelerate.options.request import Request
from accelerate.precision.base import Precision
from accelerate.runtime import process_group
from accelerate.runtime.current import Current
from accelerate.strategies.base import Objects, Strategy, Traits

__all__ = ["DDP"]


class DDP(Strategy):
    """Every rank holds the whole model; gradients are averaged over ranks during backward.

    `request.ddp` holds arguments for DistributedDataParallel.
    """

    traits: ClassVar[Traits] = Traits(supports_join=True)

    def __init__(self, run: Current, precision: Precision, request: Request) -> None:
        super().__init__(run, precision, request)
        self._options = request.ddp or DistributedDataParallelKwargs()
        # torch does nothing with check_reduction but warn of it.
        self._kwargs = {
            name: value for name, value in self._options.to_kwargs().items() if name != "check_reduction"
        }

    def validate(self, objects: Objects) -> None:
        """Raise a ConfigurationError if gradients cannot go through the communication hook."""
        for model in objects.models:
            comm_hooks.check(
                model, hook=str(self._options.comm_hook), state_options=self._options.comm_state_option
            )

    def wrap(self, model: Module, *, evaluation: bool) -> Module:
        """Return `model` inside DistributedDataParallel; a model without trainable parameters stays bare.

        Rank 0's weights and buffers are broadcast, so that all replicas start equal.
        """
        if evaluation or not any(parameter.requires_grad for parameter in model.parameters()):
            return model
        with warnings.catch_warnings():
            # What torch 2.13 offers instead still sends buffers at the start; it says so itself.
            warnings.filterwarnings("ignore", ".*broadcast_buffers. is deprecated", FutureWarning)
            replica = DistributedDataParallel(model, device_ids=self._devices(model), **self._kwargs)
        process_group.hold(replica.process_group, replica, _drop_group)
        self._options.register_comm_hook(replica)
        return replica

    def _devices(self, model: Module) -> list[torch.device] | None:
        """Return what DistributedDataParallel moves inputs to; None on CPU, and for a model spread out."""
        device = self.run.device
        spread = any(parameter.device != device for parameter in model.parameters())
        return None if device.type == "cpu" or spread else [device]

    def join(self, joinables: Sequence[Any]) -> AbstractContextManager[Any]:
        """Return torch's Join over the replicas, whose communication a rank without batches shadows.

        At its end every rank has the weights of the last rank that trained.

        Raises:
            ConfigurationError: nothing in `joinables` communicates, or something in it cannot be joined.
        """
        members = [member for item in joinables if (member := _member(item)) is not None]
        if not members:
            raise ConfigurationError(
                f"join_uneven_inputs({list(joinables)!r}): pass at least one prepared model that is trained."
            )
        return _Join(members)

    def no_sync(self, model: Module) -> AbstractContextManager[Any]:
        """Return a context whose backward passes leave gradients local."""
        replica = _replica(model)
        return super().no_sync(model) if replica is None else replica.no_sync()

    @contextmanager
    def trigger_sync(self, model: Module) -> Iterator[None]:
        """Make the next backward reduce gradients although its forward ran under `no_sync`."""
        replica = _replica(model)
        if replica is None:
            yield
            return
        saved = replica.require_backward_grad_sync, replica.require_forward_param_sync
        replica.require_backward_grad_sync = replica.require_forward_param_sync = True
        # The forward pass under no_sync did not arm the reducer; an empty list means: expect every parameter.
        replica.reducer.prepare_for_backward([])
        try:
            yield
        finally:
            replica.require_backward_grad_sync, replica.require_forward_param_sync = saved


def _drop_group(replica: DistributedDataParallel) -> None:
    """Take everything that communicates out of a replica that will not be called again."""
    for name in ("reducer", "logger", "process_group"):
        vars(replica).pop(name, None)


class _Join(Join):
    """torch's Join, undone at its end: as torch leaves it, each later forward pass would still all-reduce."""

    def __init__(self, members: Sequence[Joinable]) -> None:
        self._configs_before = [(member, member._join_config) for member in members]
        super().__init__(list(members))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with warnings.catch_warnings():  # torch changes the filters of the whole process
                super().__exit__(kind, error, trace)
        finally:
            for member, config in self._configs_before:
                member._join_config = config


def _replica(model: Any) -> DistributedDataParallel | None:
    """Return the wrapper of data parallelism, which may be compiled; None for a model that has none."""
    inside = model._orig_mod if is_compiled_module(model) else model
    return inside if isinstance(inside, DistributedDataParallel) else None


def _member(item: Any) -> Joinable | None:
    """Return what torch can join in `item`, None where nothing of it communicates."""
    inside = item if isinstance(item, Joinable) else getattr(item, "optimizer", None)
    if isinstance(inside, Joinable):
        return inside
    if isinstance(item, Module):
        replica = _replica(item)
        if replica is not None or not any(parameter.requires_grad for parameter in item.parameters()):
            return replica
    elif isinstance(item, Optimizer):
        return None
    raise ConfigurationError(
        f"join_uneven_inputs([..., {type(item).__name__}, ...]): pass what `prepare` has returned: models, "
        "and optimizers that communicate themselves."
    )
