"""Bring batches to the device of a rank. Called by prepared loaders.

[Note: overlap] Scripts queue work on an accelerator and run ahead of it. A copy in the same queue waits for
all of that work; on a stream of its own it happens meanwhile, if the batch lies in pinned memory. What is
queued behind waits for the copy. Where batches come from workers the next one is fetched and its copy begun
before the batch in hand is given out, so that a script which waits for the device in every step gains too.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from accelerate.devices.streams import SideStream
from accelerate.modules.nested import flatten, send_to_device
from accelerate.runtime.current import current

__all__ = ["OverlappedMover", "mover"]

_FLAT = frozenset([list, tuple])


class OverlappedMover:
    """Copy batches on a side stream; see [Note: overlap].

    Args:
        stream: of the device.
        send: copies a batch without waiting for it.
    """

    def __init__(self, stream: SideStream, send: Callable[[Any], Any]) -> None:
        self._stream = stream
        self._send = send

    def begin(self, batch: Any) -> Any:
        """Begin to copy a batch, and return the copy."""
        with self._stream.entered():
            return self._send(batch)

    def finish(self, moved: Any) -> Any:
        """Return what `begin` did, for use in work that is queued from now on."""
        leaves, _ = flatten(moved)
        self._stream.join(leaf for leaf in leaves if isinstance(leaf, Tensor))
        return moved

    def __call__(self, batch: Any) -> Any:
        """Copy a batch."""
        return self.finish(self.begin(batch))


def mover(
    device: torch.device | None, *, non_blocking: bool, pinned: bool
) -> Callable[[Any], Any] | OverlappedMover | None:
    """Return what brings batches to a device, None where they stay.

    Args:
        device: where batches go.
        non_blocking: the user's wish not to wait for copies.
        pinned: batches lie in pinned memory, which a device copies from by itself.
    """
    if device is None:
        return None
    if non_blocking or pinned:
        stream = current.ensure().kind.side_stream(device)
        if stream is not None:
            return OverlappedMover(stream, partial(send_to_device, device=device, non_blocking=True))
    # A CPU tensor never reports an index.
    device = torch.device("cpu") if device.type == "cpu" else device
    send = partial(send_to_device, device=device, non_blocking=non_blocking)

    def move(batch: Any) -> Any:
        # The commonest batches, when they are there already, are worth a look before the general way.
        kind = type(batch)
        for leaf in batch.values() if kind is dict else batch if kind in _FLAT else (batch,):
            if type(leaf) is not Tensor or leaf.device != device:
                return send(batch)
        return batch

    return move
