"""A device with chosen count and memory that records what is asked of it. For tests, of users too."""

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from accelerate.devices.base import Device, Place
from accelerate.devices.streams import SideStream
from accelerate.options.enums import DistributedType

__all__ = ["FakeDevice"]

_GIBIBYTE = 1 << 30  # bytes


class FakeDevice(Device):
    """A kind of hardware that exists on paper: it computes nothing and answers everything.

    Attributes:
        calls: name and arguments of every call that would have changed a real device, in order.

    Args:
        count: number of devices; 0 makes the kind unavailable.
        memory: (free, total) bytes, one pair for all devices or a list of one pair a device.
        type: the name of the kind; torch must know it, a device of that kind need not exist.
        distributed_type: the interface's name for several processes on this kind.
        backend: the torch.distributed backend.
        unsupported: dtypes that it claims not to multiply.

    Example:
        >>> device = FakeDevice(count=2, memory=[(1, 8), (2, 8)])
        >>> device.count(), device.memory(1)
        (2, (2, 8))
    """

    def __init__(
        self,
        count: int = 1,
        *,
        memory: tuple[int, int] | list[tuple[int, int]] = (_GIBIBYTE, _GIBIBYTE),
        type: str = "cuda",
        distributed_type: DistributedType = DistributedType.MULTI_GPU,
        backend: str = "gloo",
        visible_variable: str | None = "FAKE_VISIBLE_DEVICES",
        unsupported: Sequence[torch.dtype] = (),
        oom_messages: tuple[str, ...] = ("fake device out of memory",),
    ) -> None:
        pairs = [memory] * count if isinstance(memory, tuple) else list(memory)
        if len(pairs) != count:
            raise ValueError(
                f"`memory` has {len(pairs)} pairs for {count} devices; give one for all, or one a device."
            )
        self.type = type
        self.distributed_type = distributed_type
        self.backend = backend
        self.visible_variable = visible_variable
        self.oom_messages = oom_messages
        self.calls: list[tuple[Any, ...]] = []
        self._memory = pairs
        self._unsupported = frozenset(unsupported)
        self._generators = [random.Random(index) for index in range(count)]

    def is_available(self) -> bool:
        """Return whether the chosen count is above zero."""
        return bool(self._memory)

    def count(self) -> int:
        """Return the chosen count."""
        return len(self._memory)

    def _device_at(self, place: Place) -> torch.device:
        if not place.launched and place.size == 1:
            return torch.device(self.type)
        return torch.device(self.type, place.local_rank % max(1, self.count()))

    def select(self, device: torch.device) -> None:
        """Record the choice."""
        self.calls.append(("select", device))

    def side_stream(self, device: torch.device) -> SideStream | None:
        """Return a queue that records what goes into it and who waits for it."""
        return _FakeSideStream(self.calls)

    def synchronize(self) -> None:
        """Record the wait."""
        self.calls.append(("synchronize",))

    def empty_cache(self) -> None:
        """Record the request."""
        self.calls.append(("empty_cache",))

    def memory(self, index: int = 0) -> tuple[int, int]:
        """Return the chosen (free, total) bytes of device `index`."""
        return self._memory[index]

    def rng_state(self) -> Any:
        """Return one state a device."""
        return [generator.getstate() for generator in self._generators]

    def set_rng_state(self, state: Any) -> None:
        """Put back one state a device."""
        for generator, one in zip(self._generators, state, strict=True):
            generator.setstate(one)

    def seed_all(self, seed: int) -> None:
        """Seed every generator and record it."""
        self.calls.append(("seed_all", seed))
        for generator in self._generators:
            generator.seed(seed)

    def draw(self) -> list[float]:
        """Return the next random number of each device."""
        return [generator.random() for generator in self._generators]

    def supports(self, dtype: torch.dtype) -> bool:
        """Return whether `dtype` is not among the chosen unsupported ones."""
        return dtype not in self._unsupported


class _FakeSideStream:
    """A queue beside that of a fake device; what goes in happens at once.

    Args:
        calls: where it records what is asked of it.
    """

    def __init__(self, calls: list[tuple[Any, ...]]) -> None:
        self._calls = calls

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Record that copies go into this queue."""
        self._calls.append(("enter side stream",))
        yield

    def join(self, tensors: Iterable[Tensor]) -> None:
        """Record the wait, and for how many tensors it is."""
        self._calls.append(("join side stream", len(list(tensors))))
