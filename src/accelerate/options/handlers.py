"""The kwargs handlers: arguments of torch objects that `Accelerator(kwargs_handlers=[...])` passes on.

Each mirrors the signature of what it is for; only what differs from the defaults is handed over, so
that torch's own defaults hold for the rest.
"""

import copy
import dataclasses
import functools
import warnings
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from accelerate.compat import env
from accelerate.errors import ConfigurationError
from accelerate.options.enums import DDPCommunicationHookType
from accelerate.options.field import option

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

__all__ = [
    "AutocastKwargs",
    "DistributedDataParallelKwargs",
    "GradScalerKwargs",
    "InitProcessGroupKwargs",
    "KwargsHandler",
]

_HOOKS_WITH_STATE = (DDPCommunicationHookType.POWER_SGD, DDPCommunicationHookType.BATCHED_POWER_SGD)
_NCCL_TIMEOUT = timedelta(minutes=10)
_OTHER_TIMEOUT = timedelta(minutes=30)


@functools.cache
def _defaults(cls: type[Any]) -> dict[str, Any]:
    # A constructor may read the environment; what it says is a request, not a default.
    with env.clear_environment():
        defaults: dict[str, Any] = cls().to_dict()
    return defaults


class KwargsHandler:
    """Base of all handlers: a dataclass that says which of its fields were set away from their default."""

    def to_dict(self) -> dict[str, Any]:
        """Return a deep copy of every field."""
        return copy.deepcopy(self.__dict__)

    def to_kwargs(self) -> dict[str, Any]:
        """Return the fields that differ from those of a handler made without arguments or variables.

        Example:
            >>> DistributedDataParallelKwargs(find_unused_parameters=True).to_kwargs()
            {'find_unused_parameters': True}
        """
        # mypy takes the class for an instance of itself when it asks whether it is hashable.
        defaults = _defaults(type(self))  # type: ignore[arg-type]
        return {
            name: value
            for name, value in self.to_dict().items()
            if name not in defaults or defaults[name] != value
        }


@dataclasses.dataclass
class AutocastKwargs(KwargsHandler):
    """Choose how `torch.autocast` runs in the forward of prepared models and in `Accelerator.autocast`.

    Args:
        enabled: whether operations run in the low precision.
        cache_enabled: whether the low-precision weights are cached; None leaves torch's own choice.

    Example:
        >>> from accelerate import AutocastKwargs
        >>> AutocastKwargs(enabled=False).to_kwargs()
        {'enabled': False}
    """

    enabled: bool = option(True, help="run operations in the low precision")
    cache_enabled: bool | None = option(None, help="cache low-precision weights inside autocast")


@dataclasses.dataclass
class DistributedDataParallelKwargs(KwargsHandler):
    """Choose arguments of `torch.nn.parallel.DistributedDataParallel` for prepared models.

    Args:
        dim: dimension along which inputs are scattered.
        broadcast_buffers: whether rank 0 sends its buffers at every forward.
        bucket_cap_mb: size of a gradient bucket, in MiB; a bucket is one all-reduce.
        find_unused_parameters: look for parameters without gradient at every forward.
        check_reduction: accepted for compatibility; torch ignores it.
        gradient_as_bucket_view: let gradients be views of the buckets, which saves one copy of them.
        static_graph: promise that every step uses the same parameters in the same order.
        comm_hook: compression of gradients on the wire; a member or its value (`"fp16"`).
        comm_wrapper: the dtype in which `comm_hook` itself sees and sends gradients: no, fp16 or bf16.
        comm_state_option: arguments of torch's `PowerSGDState`, read by the PowerSGD hooks only.

    Raises:
        ConfigurationError: `comm_hook` or `comm_wrapper` names no hook.

    Example:
        >>> from accelerate import DistributedDataParallelKwargs
        >>> DistributedDataParallelKwargs(find_unused_parameters=True).to_kwargs()
        {'find_unused_parameters': True}
    """

    dim: int = option(0, help="dimension along which inputs are scattered")
    broadcast_buffers: bool = option(True, help="rank 0 sends its buffers at every forward")
    bucket_cap_mb: int = option(25, help="size of a gradient bucket in MiB")
    find_unused_parameters: bool = option(False, help="look for parameters without gradient")
    check_reduction: bool = option(False, help="accepted for compatibility; torch ignores it")
    gradient_as_bucket_view: bool = option(False, help="gradients are views of the buckets")
    static_graph: bool = option(False, help="every step uses the same parameters in the same order")
    comm_hook: DDPCommunicationHookType = option(
        DDPCommunicationHookType.NO, help="compression of gradients on the wire"
    )
    comm_wrapper: Literal[
        DDPCommunicationHookType.NO, DDPCommunicationHookType.FP16, DDPCommunicationHookType.BF16
    ] = option(DDPCommunicationHookType.NO, help="dtype in which the hook sees gradients")
    comm_state_option: dict[str, Any] = option(
        default_factory=dict, help="arguments of the state of the PowerSGD hooks"
    )

    def __post_init__(self) -> None:
        self.comm_hook = _hook("comm_hook", self.comm_hook, DDPCommunicationHookType)
        self.comm_wrapper = _hook(  # type: ignore[assignment]
            "comm_wrapper",
            self.comm_wrapper,
            (
                DDPCommunicationHookType.NO,
                DDPCommunicationHookType.FP16,
                DDPCommunicationHookType.BF16,
            ),
        )
        if self.comm_state_option and self.comm_hook not in _HOOKS_WITH_STATE:
            warnings.warn(
                f"DistributedDataParallelKwargs(comm_hook={str(self.comm_hook)!r}) has no use for "
                f"comm_state_option={self.comm_state_option!r}, which belongs to the PowerSGD hooks.",
                stacklevel=3,
            )

    def to_dict(
        self, ignore_keys: Iterable[str] = ("comm_hook", "comm_wrapper", "comm_state_option")
    ) -> dict[str, Any]:
        """Return a deep copy of every field that is an argument of DistributedDataParallel.

        Args:
            ignore_keys: the fields to leave out.
        """
        left_out = set(ignore_keys)
        return {name: value for name, value in super().to_dict().items() if name not in left_out}

    def register_comm_hook(self, model: "DistributedDataParallel") -> None:
        """Let the gradients of `model` travel through `comm_hook` and `comm_wrapper`.

        `prepare` does it; for models wrapped by hand, every rank calls it before the first backward pass.

        Args:
            model: a DistributedDataParallel without a hook.

        Raises:
            ConfigurationError: `comm_state_option` has no sense for PowerSGD, or the model does not fit it.
        """
        from accelerate.modules import comm_hooks

        comm_hooks.register(
            model,
            hook=str(self.comm_hook),
            wrapper=str(self.comm_wrapper),
            state_options=self.comm_state_option,
        )


def _hook(name: str, value: object, allowed: Iterable[DDPCommunicationHookType]) -> DDPCommunicationHookType:
    members = list(allowed)
    for member in members:
        if value is member or value == member.value:
            return member
    raise ConfigurationError(
        f"DistributedDataParallelKwargs({name}={value!r}): use one of {', '.join(map(str, members))}"
    )


@dataclasses.dataclass
class GradScalerKwargs(KwargsHandler):
    """Choose how the loss is scaled under fp16; the arguments of `torch.amp.GradScaler`.

    Args:
        init_scale: first scale.
        growth_factor: what the scale is multiplied by after `growth_interval` good steps.
        backoff_factor: what the scale is multiplied by after a step with infinite gradients.
        growth_interval: number of good steps in a row before the scale grows.
        enabled: whether the loss is scaled at all.

    Example:
        >>> from accelerate import GradScalerKwargs
        >>> GradScalerKwargs(init_scale=1024.0).to_kwargs()
        {'init_scale': 1024.0}
    """

    init_scale: float = option(65536.0, help="first scale")
    growth_factor: float = option(2.0, help="multiplier of the scale after a row of good steps")
    backoff_factor: float = option(0.5, help="multiplier of the scale after infinite gradients")
    growth_interval: int = option(2000, help="number of good steps before the scale grows")
    enabled: bool = option(True, help="scale the loss")


@dataclasses.dataclass
class InitProcessGroupKwargs(KwargsHandler):
    """Choose arguments of `torch.distributed.init_process_group`.

    Args:
        backend: name of the backend.
        init_method: URL where ranks meet; None means the `env://` variables.
        timeout: how long a collective waits for the other ranks, in the group of all ranks and in every
            group made later without a time-out of its own; None means 10 minutes for nccl and 30 minutes for
            every other backend.

    Example:
        >>> from datetime import timedelta
        >>> from accelerate import InitProcessGroupKwargs
        >>> InitProcessGroupKwargs(timeout=timedelta(hours=2)).to_kwargs()
        {'timeout': datetime.timedelta(seconds=7200)}
    """

    backend: str | None = option("nccl", help="name of the backend")
    init_method: str | None = option(None, help="URL where ranks meet")
    timeout: timedelta | None = option(None, help="how long a collective waits for the other ranks")

    def __post_init__(self) -> None:
        self._timeout_was_given = self.timeout is not None
        if self.timeout is None:
            self.timeout = _NCCL_TIMEOUT if self.backend == "nccl" else _OTHER_TIMEOUT

    def to_dict(self) -> dict[str, Any]:
        """Return a deep copy of every field."""
        return {name: value for name, value in super().to_dict().items() if not name.startswith("_")}

    def to_kwargs(self) -> dict[str, Any]:
        """Return the fields that were set; a time-out also where it is the default of another backend."""
        kwargs = super().to_kwargs()
        return {**kwargs, "timeout": self.timeout} if self._timeout_was_given else kwargs
