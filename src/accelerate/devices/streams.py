"""Copies beside the work of a device, in a queue of their own. Made by devices, for prepared loaders."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor

__all__ = ["SideStream", "TorchSideStream"]


class SideStream(Protocol):
    """A queue of a device for copies, beside that of its work."""

    def entered(self) -> AbstractContextManager[Any]:
        """Return a context whose copies go into this queue."""
        ...

    def join(self, tensors: Iterable[Tensor]) -> None:
        """Let the work that is queued from now on begin behind the copies so far, which gave `tensors`."""
        ...


class TorchSideStream:
    """A stream of a module such as `torch.cuda`.

    Args:
        module: has `Stream`, `stream` and `current_stream`.
        device: where the stream is.
    """

    def __init__(self, module: Any, device: torch.device) -> None:
        self._module = module
        self._device = device
        self._stream = module.Stream(device=device)

    def entered(self) -> AbstractContextManager[Any]:
        """Return torch's context of the stream."""
        context: AbstractContextManager[Any] = self._module.stream(self._stream)
        return context

    def join(self, tensors: Iterable[Tensor]) -> None:
        """Let the current stream wait, and keep the memory of `tensors` until its work with them is done."""
        working = self._module.current_stream(self._device)
        working.wait_stream(self._stream)
        for tensor in tensors:
            if tensor.device.type == self._device.type:
                tensor.record_stream(working)
