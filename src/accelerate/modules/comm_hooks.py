"""Communication hooks: how DistributedDataParallel sends gradients. Called by its strategy and its handler.

The hooks are torch's own, so that a gradient is bit for bit what it is there; only where torch has none
that works, one is made of its parts.

[Note: hooks on gloo] torch refuses its bf16 hooks unless NCCL can do them; gloo can. PowerSGD sends and waits
inside the callbacks of earlier sends. gloo runs callbacks on the few threads that also send: with several
buckets they wait for each other for ever, and with one, sends of two threads may overtake each other
differently on each rank. On gloo each send is therefore waited for at once, on the thread of the backward
pass, which leaves the callbacks nothing to wait for.
"""

import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.futures import Future
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from accelerate.errors import ConfigurationError

__all__ = ["check", "register"]

Hook = Callable[[Any, dist.GradBucket], Future[Tensor]]  # type: ignore[name-defined]

_HOOKS: dict[str, Hook] = {
    "no": default_hooks.allreduce_hook,
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": default_hooks.bf16_compress_hook,
    "power_sgd": powerSGD_hook.powerSGD_hook,
    "batched_power_sgd": powerSGD_hook.batched_powerSGD_hook,
}
_WRAPPERS: dict[str, Callable[[Hook], Hook]] = {
    "no": lambda hook: hook,
    "fp16": default_hooks.fp16_compress_wrapper,
    "bf16": default_hooks.bf16_compress_wrapper,
}
_POWER_SGD = ("power_sgd", "batched_power_sgd")


def check(model: Module, *, hook: str, state_options: Mapping[str, Any]) -> None:
    """Raise if `register` would, or if the gradients of `model` cannot go through the hook.

    Args:
        model: the user's module.
        hook: as for `register`.
        state_options: as for `register`.

    Raises:
        ConfigurationError: an option does not exist or has no sense, or PowerSGD meets a parameter that is
            no matrix, vector or block of them.
    """
    if hook not in _POWER_SGD:
        return
    _power_sgd_state(state_options)
    unfit = [
        f"{name} of shape {tuple(parameter.shape)}"
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and (parameter.ndim == 0 or parameter.numel() == 0)
    ]
    if hook == "power_sgd" and unfit:
        raise ConfigurationError(
            f"comm_hook={hook!r}: PowerSGD takes gradients apart by their rows, which {', '.join(unfit)} has "
            "not. Give the parameter a dimension of size 1, or use the hook 'batched_power_sgd'."
        )


def register(
    model: DistributedDataParallel, *, hook: str, wrapper: str = "no", state_options: Mapping[str, Any]
) -> None:
    """Let the gradients of `model` travel through a hook; every rank calls it, before the first backward.

    Args:
        model: the wrapper of data parallelism; without a hook so far.
        hook: no, fp16, bf16, power_sgd or batched_power_sgd.
        wrapper: no, or the dtype (fp16, bf16) in which the hook itself sees the gradients.
        state_options: arguments of torch's `PowerSGDState`, for the hooks that have a state.

    Raises:
        ConfigurationError: as `check`.
    """
    if hook == wrapper == "no":
        return
    check(model, hook=hook, state_options=state_options)
    on_gloo = _backend(model) == "gloo"
    function, state = _HOOKS[hook], None
    if hook in _POWER_SGD:
        state = _power_sgd_state(state_options)
        function = _mended_power_sgd(function, state, on_gloo=on_gloo)
    function = _WRAPPERS[wrapper](function)
    if on_gloo and "bf16" in (hook, wrapper):
        function = _renamed(function)
    model.register_comm_hook(state, function)


def _backend(model: DistributedDataParallel) -> str:
    pairs = dist.get_backend_config(model.process_group).split(",")  # such as "cpu:gloo", "cuda:nccl"
    return dict(pair.split(":") for pair in pairs).get(model.device.type, "")


def _renamed(hook: Hook) -> Hook:
    """Return `hook` under another name: torch refuses bf16 by the names of its functions."""

    def bf16_hook_on_gloo(state: Any, bucket: dist.GradBucket) -> Future[Tensor]:  # type: ignore[name-defined]
        return hook(state, bucket)

    return bf16_hook_on_gloo


# ---- PowerSGD ----------------------------------------------------------------------------------------------


def _power_sgd_state(options: Mapping[str, Any]) -> powerSGD_hook.PowerSGDState:
    known = list(inspect.signature(powerSGD_hook.PowerSGDState).parameters)[1:]  # without the group
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ConfigurationError(
            f"comm_state_option={dict(options)!r}: PowerSGD has no {', '.join(map(repr, unknown))}; "
            f"it has {', '.join(known)}."
        )
    rank = options.get("matrix_approximation_rank", 1)
    if not isinstance(rank, int) or rank < 1:
        raise ConfigurationError(f"comm_state_option={dict(options)!r}: the rank is an integer from 1 on.")
    try:
        # No group means the default one, also after it was made anew.
        return powerSGD_hook.PowerSGDState(None, **options)
    except ValueError as error:
        raise ConfigurationError(f"comm_state_option={dict(options)!r}: {error}") from error


def _mended_power_sgd(hook: Hook, state: powerSGD_hook.PowerSGDState, *, on_gloo: bool) -> Hook:
    """Return torch's `hook` with those of its helpers replaced that fail it.

    The batched hook of torch 2.13 hands a matrix to a helper that takes stacks of matrices only, and
    forgets the epsilon that keeps a gradient of zeros from becoming NaN.
    """

    def orthogonalize(matrices: Tensor, epsilon: float = 0) -> None:
        if matrices.ndim == 3:
            powerSGD_hook._orthogonalize(matrices, epsilon)  # type: ignore[no-untyped-call]
            return
        rows, rank = matrices.shape
        if rank > rows:
            raise ConfigurationError(
                f"comm_state_option={{'matrix_approximation_rank': {rank}}}: a bucket of gradients is a "
                f"square of {rows} rows, and can have no higher rank. Lower it, or raise bucket_cap_mb."
            )
        powerSGD_hook._orthogonalize(  # type: ignore[no-untyped-call]
            matrices.unsqueeze(0), state.orthogonalization_epsilon
        )

    helpers: dict[str, Any] = {"_orthogonalize": orthogonalize}
    if on_gloo:
        helpers["dist"] = _PromptCollectives()
    assert isinstance(hook, types.FunctionType)
    return types.FunctionType(hook.__code__, {**hook.__globals__, **helpers}, hook.__name__)


class _PromptCollectives:
    """`torch.distributed` whose all-reduces have ended when they return, [Note: hooks on gloo]."""

    def __getattr__(self, name: str) -> Any:
        return getattr(dist, name)

    @staticmethod
    def all_reduce(*args: Any, **kwargs: Any) -> Any:
        work = dist.all_reduce(*args, **kwargs)
        if work is not None:  # nor is there anything to wait for
            work.wait()
        return work
