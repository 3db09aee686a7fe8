"""Which run an object was prepared in, and what it was before. Called by the Accelerator's `prepare`."""

from typing import Any, TypeVar

from torch.nn import Module

from accelerate.data.loader import PreparedLoader
from accelerate.modules.unwrap import extract_model_from_parallel, unwrap
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.runtime.current import Current
from accelerate.scheduler import AcceleratedScheduler

__all__ = ["mark", "renewed"]

T = TypeVar("T")


def mark(prepared: T, run: Current) -> T:
    """Note on an object that `run` has prepared it; `_is_accelerate_prepared` is what clients look for."""
    target: Any = prepared
    target._is_accelerate_prepared = True
    target._accelerate_token = token = getattr(run, "token", None)
    if isinstance(prepared, Module):
        unwrap(prepared)._accelerate_token = token  # its forward pass may have been replaced, too
    return prepared


def renewed(item: Any, run: Current) -> Any:
    """Return `item`, or the user's object inside it if another run has prepared it.

    Wrappers of that run speak to a process group that is gone, or compute in its precision. A model gets its
    own forward pass back.
    """
    token = getattr(run, "token", None)
    if getattr(item, "_accelerate_token", token) == token:
        return item
    if isinstance(item, AcceleratedOptimizer):
        return item.optimizer
    if isinstance(item, AcceleratedScheduler):
        return item.scheduler
    if isinstance(item, PreparedLoader):
        return item if item.given is None else item.given
    if isinstance(item, Module):
        bare = extract_model_from_parallel(item, keep_fp32_wrapper=False)
        bare.__dict__.pop("_is_accelerate_prepared", None)
        return bare
    return item
