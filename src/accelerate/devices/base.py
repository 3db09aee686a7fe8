"""A kind of hardware as one object; the base class is the CPU. Chosen once by `select`, asked by everybody.

Nothing else in the package compares device names: what differs between kinds is a method or an attribute
here. Call order: `is_available` while choosing, then `torch_device(world)`, `select(device)`, and the rest
at any time. Every rank asks its own object; no method communicates.
"""

import copy
from collections.abc import Mapping
from typing import Any, Protocol

import psutil
import torch

from accelerate.devices.streams import SideStream
from accelerate.options.enums import DistributedType

__all__ = ["Device", "Place", "is_float8"]


class Place(Protocol):
    """What a device needs to know of the world: which process of its machine this is."""

    @property
    def local_rank(self) -> int:
        """This process among those of its machine."""

    @property
    def size(self) -> int:
        """Number of processes over all machines."""

    @property
    def launched(self) -> bool:
        """Whether a launcher started this process, also for a world of one."""


def is_float8(dtype: torch.dtype) -> bool:
    """Return whether `dtype` is one of the eight-bit floating point formats.

    Example:
        >>> is_float8(torch.float8_e4m3fn), is_float8(torch.int8)
        (True, False)
    """
    return dtype.is_floating_point and dtype.itemsize == 1


class Device:
    """One kind of hardware. As it stands: the CPU.

    Attributes:
        type: the name torch gives this kind in `torch.device(type)`.
        distributed_type: the interface's name for several processes on this kind.
        backend: the torch.distributed backend that its tensors travel over.
        visible_variable: environment variable that hides devices from a process; None when there is none.
        oom_messages: parts of the text of a RuntimeError by which this kind says "out of memory".
        environment: variables that torch should find when this kind is chosen.
        deterministic_environment: variables that libraries should find when results are to be repeatable.
    """

    type: str = "cpu"
    distributed_type: DistributedType = DistributedType.MULTI_CPU
    backend: str = "gloo"
    visible_variable: str | None = None
    oom_messages: tuple[str, ...] = ("DefaultCPUAllocator: can't allocate memory",)
    environment: Mapping[str, str] = {}
    deterministic_environment: Mapping[str, str] = {}
    _pinned: torch.device | None = None

    def __repr__(self) -> str:
        pinned = f", pinned to {self._pinned}" if self._pinned is not None else ""
        return f"{type(self).__name__}({self.type!r}{pinned})"

    def load(self) -> None:
        """Import what torch needs before it knows this kind by name; nothing for kinds built into torch.

        Raises:
            MissingPackageError: the vendor's package is not installed.
        """

    def is_available(self) -> bool:
        """Return whether this machine has at least one device of this kind; creates no context on it."""
        return True

    def count(self) -> int:
        """Return the number of devices that a process can choose from; all processes share the one CPU."""
        return 1

    def torch_device(self, place: Place) -> torch.device:
        """Return the device of a process: by local rank under a launcher, else the kind without an index."""
        return self._device_at(place) if self._pinned is None else self._pinned

    def _device_at(self, place: Place) -> torch.device:
        return torch.device("cpu", 0) if place.size > 1 else torch.device("cpu")

    def pinned(self, device: torch.device) -> "Device":
        """Return a copy of this object that gives `device` to every process."""
        twin = copy.copy(self)
        twin._pinned = device
        return twin

    def select(self, device: torch.device) -> None:
        """Make `device` the current one of this process; nothing to do where there is only one."""

    def side_stream(self, device: torch.device) -> SideStream | None:
        """Return a new queue for copies to `device` beside its work, None where there is none."""
        return None

    def synchronize(self) -> None:
        """Wait for all work queued on the current device; work on the CPU is never queued."""

    def empty_cache(self) -> None:
        """Give memory that the allocator keeps for later back to the system, where it keeps any."""

    def memory(self, index: int = 0) -> tuple[int, int]:
        """Return (free, total) bytes of device `index`.

        Raises:
            ConfigurationError: this kind does not report its memory.
        """
        host = psutil.virtual_memory()
        return host.available, host.total

    def rng_state(self) -> Any:
        """Return the state of the random generators of all devices of this kind, as checkpoints hold it."""
        return torch.get_rng_state()

    def set_rng_state(self, state: Any) -> None:
        """Put back what `rng_state` gave."""
        torch.set_rng_state(state)

    def seed_all(self, seed: int) -> None:
        """Seed the random generators of all devices of this kind."""
        torch.manual_seed(seed)

    def supports(self, dtype: torch.dtype) -> bool:
        """Return whether matrix products in `dtype` run on this kind."""
        return not is_float8(dtype)

    def supports_autocast(self) -> bool:
        """Return whether `torch.autocast` knows this kind."""
        return torch.amp.is_autocast_available(self.type)

    def supports_grad_scaler(self) -> bool:
        """Return whether `torch.amp.GradScaler` works on this kind."""
        return True
