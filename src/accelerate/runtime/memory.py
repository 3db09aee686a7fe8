"""Give memory back to the device. Called by the Accelerator and by users, on any rank alone."""

import gc
from typing import Any

from accelerate.compat import env
from accelerate.devices.select import choose
from accelerate.runtime.current import current

__all__ = ["clear_device_cache", "release_memory"]


def clear_device_cache(garbage_collection: bool = False) -> None:
    """Give memory that the device's allocator keeps for later back to the system.

    Args:
        garbage_collection: first collect objects that only refer to each other, which may hold tensors.
    """
    if garbage_collection:
        gc.collect()
    kind = current.kind if current.started else choose(env.snapshot())
    kind.empty_cache()


def release_memory(*objects: Any) -> list[Any]:
    """Return as many None as there are objects, to overwrite the caller's names with; free what nobody holds.

    The objects themselves go when the caller's last reference does, which is the assignment. Those that refer
    to themselves (a model in mixed precision does) go at the next garbage collection: call this once more,
    without objects, to have their memory at once.

    Args:
        objects: what the names hold that are to be overwritten.

    Returns:
        A list of None.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(1000, 1000)
        >>> optimizer = torch.optim.Adam(model.parameters())
        >>> model, optimizer = release_memory(model, optimizer)
        >>> model is optimizer is None
        True
    """
    clear_device_cache(garbage_collection=True)
    return [None] * len(objects)
