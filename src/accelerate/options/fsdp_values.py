"""Reads what users write for FSDP: names, numbers, truth values. Called by options/fsdp."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from accelerate.compat import env
from accelerate.errors import ConfigurationError

if TYPE_CHECKING:
    from torch.nn import Module

__all__ = ["STRATEGIES", "VERSION_1", "has_accelerator", "member", "needs_version_1", "to_empty", "truth"]

STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
# Attribute -> its variable, for what exists in version 1 only.
VERSION_1 = {
    "sharding_strategy": "FSDP_SHARDING_STRATEGY",
    "backward_prefetch": "FSDP_BACKWARD_PREFETCH",
    "forward_prefetch": "FSDP_FORWARD_PREFETCH",
    "use_orig_params": "FSDP_USE_ORIG_PARAMS",
    "sync_module_states": "FSDP_SYNC_MODULE_STATES",
}


def needs_version_1(passed: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    """Return whether something is asked for, by argument or variable, that only version 1 has."""
    if any(passed.get(name) or environ.get(variable) for name, variable in VERSION_1.items()):
        return True
    reshard = passed.get("reshard_after_forward")
    if reshard is not None and not isinstance(reshard, bool):
        return str(reshard).rpartition(".")[2].upper() in (*STRATEGIES, "1", "2", "3", "4", "5")
    return str(passed.get("state_dict_type")).rpartition(".")[2].upper() in ("LOCAL_STATE_DICT", "2")


def truth(value: Any) -> bool:
    """Return what `reshard_after_forward` says in version 2; True when nothing was said."""
    if value is None:
        return True
    try:
        return value if isinstance(value, bool) else bool(env.str_to_bool(str(value)))
    except ValueError:
        raise ConfigurationError(
            f"reshard_after_forward={value!r} with fsdp_version=2: pass True (free gathered parameters "
            "after the forward pass) or False; or fsdp_version=1 for a sharding strategy."
        ) from None


def member(kind: Any, value: Any, name: str) -> Any:
    """Return the member of one of torch's enumerations that a name or a number from 1 stands for."""
    if isinstance(value, kind):
        return value
    members = kind.__members__
    text = str(value).strip().upper()
    if text.isdigit() and 0 < int(text) <= len(members):
        return list(members.values())[int(text) - 1]
    if text == "HYBRID_SHARD_ZERO2":
        text = "_HYBRID_SHARD_ZERO2"
    if text not in kind.__members__:
        raise ConfigurationError(f"{name}={value!r}: use one of {', '.join(kind.__members__)}.")
    return kind[text]


def has_accelerator() -> bool:
    """Return whether this machine has anything that computes beside the CPU."""
    import torch

    return torch.accelerator.is_available()


def to_empty(module: "Module") -> None:
    """Give a module uninitialised memory, for rank 0's weights to be sent into."""
    import torch

    device = torch.accelerator.current_accelerator() if has_accelerator() else torch.device("cpu")
    module.to_empty(device=device, recurse=False)
