"""The hardware that tests run on here, found once. Called by marks.py and by users' tests."""

from collections.abc import Callable

import torch

from accelerate.compat import env
from accelerate.devices.select import choose

__all__ = ["device_count", "get_backend", "memory_allocated_func", "torch_device"]


def get_backend() -> tuple[str, int, Callable[[], int]]:
    """Return the kind of device that an `Accelerator` would train on here, and how much of it there is.

    Returns:
        The kind's name for `torch.device`, the number of devices (1 on the CPU), and a function that returns
        the bytes which torch has allocated on the current one (0 where that is not counted).

    Example:
        >>> kind, number, allocated = get_backend()
        >>> kind == torch_device, number >= 1, allocated() >= 0
        (True, True, True)
    """
    kind = choose(env.snapshot())
    return kind.type, kind.count(), _memory_counter(kind.type)


def _memory_counter(kind: str) -> Callable[[], int]:
    module = None if kind == "cpu" else getattr(torch, kind, None)
    for name in ("memory_allocated", "current_allocated_memory"):  # the second is Metal's
        counter: Callable[[], int] | None = getattr(module, name, None)
        if counter is not None:
            return counter
    return _nothing_allocated


def _nothing_allocated() -> int:
    return 0


torch_device, device_count, memory_allocated_func = get_backend()
