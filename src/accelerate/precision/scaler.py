"""The gradient scaler of fp16: torch's own, which finds out by itself when a step is over. Made by FP16
and by users.

[Note: one update a step] The *scale* is what the loss is multiplied by. It may only change when all gradients
computed with it are used up: once all optimizers have stepped. Torch leaves that moment to the caller's
`update()`. A training loop with our optimizers has no such call, and after one `optimizer.step()` nobody
knows whether another follows. So the update waits until the scale is needed again: for the next loss, or by
whoever asks for it. An optimizer whose gradients were unscaled and that has neither stepped nor dropped them
is not part of that update; it stays unscaled.
"""

import importlib
from collections.abc import Iterable
from typing import Any, cast

import torch
from torch.amp.grad_scaler import OptState
from torch.optim import Optimizer

from accelerate.errors import OptimizerStepError
from accelerate.options.enums import DistributedType
from accelerate.options.handlers import GradScalerKwargs
from accelerate.runtime.current import current

__all__ = ["GradScaler", "get_grad_scaler", "make_scaler"]


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler` that needs no `update()`, tells of skipped steps and unscales at most once.

    With `update()` called after each step it does what torch's does.

    Attributes:
        skipped: whether the last step left the parameters alone. A 0-d tensor for an optimizer that decides
            on the device (a fused one): `bool` of it waits for the device.
    """

    skipped: bool | torch.Tensor | None = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self._enabled:
            self._per_optimizer_states = {}  # torch has none then
        self._unscaled: dict[int, Optimizer] = {}  # by id, as torch's own states
        self._overtaken: frozenset[int] = frozenset()  # those unscaled before the newest loss was scaled

    def scale(self, outputs: Any) -> Any:
        """Return losses times the scale; this begins a new step if one was made."""
        if self._per_optimizer_states:
            self._settle()
            self._overtaken = frozenset(self._unscaled)
        return super().scale(outputs)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of `optimizer` by the scale, unless that was done since they were computed.

        Raises:
            OptimizerStepError: it was done, and the gradients of another loss have been added.
        """
        stage = self._stage(optimizer)
        if stage is OptState.READY:
            super().unscale_(optimizer)
            self._unscaled[id(optimizer)] = optimizer
        elif stage is OptState.UNSCALED and id(optimizer) in self._overtaken:
            raise OptimizerStepError(
                f"The gradients of this {type(optimizer).__name__} were unscaled or clipped before, and a "
                "`backward` since has added scaled ones. Unscale and clip only before a step: "
                "`if accelerator.sync_gradients: accelerator.clip_grad_norm_(...)`."
            )

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> float | None:
        """Unscale what is not, and let `optimizer` step if its gradients are finite."""
        if self._stage(optimizer) is OptState.STEPPED:
            self._settle()  # twice without a loss between: two steps
        self.skipped = None
        result = super().step(optimizer, *args, **kwargs)
        if self.skipped is None:
            found = self._found_inf_per_device(optimizer) if self._enabled else {}
            self.skipped = cast(torch.Tensor, sum(found.values())) if found else False
        return result

    def _maybe_opt_step(
        self, optimizer: Optimizer, optimizer_state: dict[str, Any], *args: Any, **kwargs: Any
    ) -> float | None:
        # Read here, where torch reads it too: after the step, it would wait for the step.
        self.skipped = any(found.item() for found in optimizer_state["found_inf_per_device"].values())
        return None if self.skipped else optimizer.step(*args, **kwargs)

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """Change the scale now, as the gradients since the last update suggest, or to `new_scale`."""
        super().update(new_scale)
        self._unscaled = {}

    def get_scale(self) -> float:
        """Return the scale of the next loss; waits for the device."""
        self._settle()
        return super().get_scale()

    def state_dict(self) -> dict[str, Any]:
        """Return the state as it is between two steps."""
        self._settle()
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state; what happened since the last update is forgotten."""
        self._per_optimizer_states.clear()
        self._unscaled = {}
        super().load_state_dict(state_dict)

    def __getstate__(self) -> dict[str, Any]:
        self._settle()
        return {**super().__getstate__(), "_unscaled": {}, "_overtaken": frozenset()}

    def _stage(self, optimizer: Optimizer) -> OptState:
        state = self._per_optimizer_states.get(id(optimizer))
        return OptState.READY if state is None else state["stage"]

    def _settle(self) -> None:
        """Make the update that is due, see [Note: one update a step]."""
        states = self._per_optimizer_states
        waiting = {
            key: state
            for key, state in states.items()
            if state["stage"] is OptState.UNSCALED and _has_gradients(self._unscaled[key])
        }
        for key in waiting:
            del states[key]
        if any(state["found_inf_per_device"] for state in states.values()):
            super().update()
        else:
            states.clear()
        self._per_optimizer_states.update(waiting)
        self._unscaled = {key: self._unscaled[key] for key in waiting}


def _has_gradients(optimizer: Optimizer) -> bool:
    groups: Iterable[dict[str, Any]] = optimizer.param_groups
    return any(parameter.grad is not None for group in groups for parameter in group["params"])


def make_scaler(device_type: str, handler: GradScalerKwargs | None = None) -> GradScaler:
    """Return the scaler for gradients on a kind of device, with the options of `handler`."""
    return GradScaler(device_type, **({} if handler is None else handler.to_kwargs()))


def get_grad_scaler(distributed_type: DistributedType | None = None, **kwargs: Any) -> torch.amp.GradScaler:
    """Return a new gradient scaler for the device of this run, which is started where nobody has.

    Args:
        distributed_type: with FSDP, the scaler agrees on overflows with the other ranks.
        kwargs: arguments of `torch.amp.GradScaler`, such as `init_scale`.

    Raises:
        TypeError: the scaler does not take one of `kwargs`.

    Example:
        >>> get_grad_scaler(init_scale=4.0).get_scale()
        4.0
    """
    device_type = current.ensure().device.type
    if distributed_type == DistributedType.FSDP:
        # Not before it is needed: the import takes longer than that of everything here.
        sharded = importlib.import_module("torch.distributed.fsdp.sharded_grad_scaler").ShardedGradScaler
        scaler: torch.amp.GradScaler = sharded(device=device_type, **kwargs)
        return scaler
    return GradScaler(device_type, **kwargs)
