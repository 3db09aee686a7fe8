"""Devices that torch drives through a module `torch.<type>`, and the few that differ in more than a name.

The table of kinds makes one object of these classes a row. A vendor's package is imported by `load` alone.
"""

import importlib
import importlib.util
import logging
import sys
from collections.abc import Mapping
from typing import Any

import torch

from accelerate.compat.env import patch_environment
from accelerate.devices.base import Device, Place, is_float8
from accelerate.devices.streams import SideStream, TorchSideStream
from accelerate.errors import ConfigurationError, MissingPackageError
from accelerate.options.enums import DistributedType

__all__ = ["AcceleratorDevice", "CudaDevice", "HpuDevice", "MpsDevice"]

logger = logging.getLogger(__name__)


class AcceleratorDevice(Device):
    """A kind whose operations all stand in `torch.<type>` under the names that `torch.cuda` uses.

    Args:
        type: name of the kind, and of the module.
        distributed_type: the interface's name for several processes on this kind.
        backend: its torch.distributed backend.
        visible_variable: environment variable that hides devices from a process.
        package: the vendor's package that adds the module to torch; None when torch has it built in.
        check_environment: variables set while asking for availability, so that asking creates no context.
        places_itself: the runtime gives each process one device, and the index is asked, not chosen.
        unsupported: dtypes without matrix products, beside the eight-bit ones.
        oom_messages: how its runtime says "out of memory".
    """

    def __init__(
        self,
        type: str,
        *,
        distributed_type: DistributedType,
        backend: str,
        visible_variable: str | None,
        package: str | None = None,
        check_environment: Mapping[str, str] | None = None,
        places_itself: bool = False,
        unsupported: frozenset[torch.dtype] = frozenset(),
        oom_messages: tuple[str, ...] = (" out of memory.",),
    ) -> None:
        self.type = type
        self.distributed_type = distributed_type
        self.backend = backend
        self.visible_variable = visible_variable
        self.package = package
        self.check_environment = dict(check_environment or {})
        self.places_itself = places_itself
        self.unsupported = unsupported
        self.oom_messages = oom_messages

    @property
    def module(self) -> Any:
        """The module `torch.<type>`."""
        self.load()
        return getattr(torch, self.type)

    def load(self) -> None:
        """Import the vendor's package, which registers the kind with torch."""
        if self.package is None or hasattr(torch, self.type):
            return
        if not _is_installed(self.package):
            raise MissingPackageError(
                f"device {self.type!r} needs the package `{self.package}`, which is not installed. Install "
                "the vendor's build for this version of torch, or choose another device."
            )
        importlib.import_module(self.package)

    def is_available(self) -> bool:
        """Return whether the package is installed, loads, and finds a device."""
        if self.package is not None and not _is_installed(self.package):
            return False
        try:
            ask = self.module.is_available
        except (ImportError, OSError, AttributeError) as error:
            logger.warning(
                "`%s` is installed but cannot be loaded, so %s devices are not used: %s",
                self.package,
                self.type,
                error,
            )
            return False
        with patch_environment(**self.check_environment):
            return bool(ask())

    def count(self) -> int:
        """Return the number of visible devices, 0 when there is none."""
        return int(self.module.device_count()) if self.is_available() else 0

    def _device_at(self, place: Place) -> torch.device:
        module = self.module
        if self.places_itself:
            return torch.device(self.type, module.current_device())
        if not place.launched and place.size == 1:
            return torch.device(self.type)
        return torch.device(self.type, place.local_rank % max(1, module.device_count()))

    def select(self, device: torch.device) -> None:
        """Make `device` the current one; a device without an index is the current one already."""
        if device.type == self.type and device.index is not None and not self.places_itself:
            self.module.set_device(device)

    def side_stream(self, device: torch.device) -> SideStream | None:
        """Return a stream of the module, None where it has no streams."""
        if all(hasattr(self.module, name) for name in ("Stream", "stream", "current_stream")):
            return TorchSideStream(self.module, device)
        return None

    def synchronize(self) -> None:
        """Wait for all work queued on the current device."""
        self.module.synchronize()

    def empty_cache(self) -> None:
        """Give unused blocks of the caching allocator back to the driver."""
        self.module.empty_cache()

    def memory(self, index: int = 0) -> tuple[int, int]:
        """Return (free, total) bytes of device `index`, as the driver sees them."""
        ask = getattr(self.module, "mem_get_info", None)
        if ask is None:
            raise ConfigurationError(
                f"`torch.{self.type}` of this version does not report free memory. State it yourself, for "
                f'instance `max_memory={{{index}: "16GiB"}}`, or update the vendor\'s package.'
            )
        free, total = ask(index)
        return int(free), int(total)

    def rng_state(self) -> Any:
        """Return one state a device, in the order of their indices."""
        return self.module.get_rng_state_all()

    def set_rng_state(self, state: Any) -> None:
        """Put back one state a device."""
        self.module.set_rng_state_all(state)

    def seed_all(self, seed: int) -> None:
        """Seed the generator of every device."""
        self.module.manual_seed_all(seed)

    def supports(self, dtype: torch.dtype) -> bool:
        """Return whether matrix products in `dtype` run on the current device."""
        if dtype == torch.bfloat16:
            ask = getattr(self.module, "is_bf16_supported", None)
            return ask is None or bool(ask())
        return dtype not in self.unsupported and not is_float8(dtype)


class CudaDevice(AcceleratorDevice):
    """NVIDIA and ROCm GPUs."""

    # Without it cuBLAS chooses among its workspaces by timing, and torch raises in deterministic mode.
    deterministic_environment: Mapping[str, str] = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}

    def supports(self, dtype: torch.dtype) -> bool:
        """Return whether matrix products in `dtype` run on the current device; eight bits need 8.9."""
        if is_float8(dtype):
            return self.is_available() and tuple(self.module.get_device_capability()) >= (8, 9)
        return super().supports(dtype)


class MpsDevice(AcceleratorDevice):
    """The GPU of an Apple computer: one, shared with the CPU's memory, never distributed."""

    # Operators that Metal lacks run on the CPU instead of raising.
    environment: Mapping[str, str] = {"PYTORCH_ENABLE_MPS_FALLBACK": "1"}

    def is_available(self) -> bool:
        """Return whether torch was built for Metal and this system has it."""
        return torch.backends.mps.is_built() and torch.backends.mps.is_available()

    def _device_at(self, place: Place) -> torch.device:
        return torch.device(self.type)

    def select(self, device: torch.device) -> None:
        """Do nothing: there is one."""

    def memory(self, index: int = 0) -> tuple[int, int]:
        """Return (free, total) bytes of what Metal recommends as this process's share."""
        total = int(self.module.recommended_max_memory())
        return max(0, total - int(self.module.driver_allocated_memory())), total

    def rng_state(self) -> Any:
        """Return the state of the one generator."""
        return self.module.get_rng_state()

    def set_rng_state(self, state: Any) -> None:
        """Put back the state of the one generator."""
        self.module.set_rng_state(state)

    def seed_all(self, seed: int) -> None:
        """Seed the one generator."""
        self.module.manual_seed(seed)

    def supports(self, dtype: torch.dtype) -> bool:
        """Return whether matrix products in `dtype` run; bfloat16 needs macOS 14."""
        if dtype == torch.bfloat16:
            return self.is_available() and torch.backends.mps.is_macos_or_newer(14, 0)
        return super().supports(dtype)

    def supports_grad_scaler(self) -> bool:
        """Return whether this torch can unscale gradients here; the first releases with autocast cannot."""
        operator = "aten::_amp_foreach_non_finite_check_and_unscale_"
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, "MPS"))


class HpuDevice(AcceleratorDevice):
    """Intel Gaudi."""

    def empty_cache(self) -> None:
        """Do nothing: the runtime reserves the device's memory once and keeps it."""

    def is_first_generation(self) -> bool:
        """Return whether the devices are Gaudi 1, which has no fp16."""
        if not self.is_available():
            return False
        experimental = importlib.import_module("habana_frameworks.torch.utils.experimental")
        return bool(experimental._get_device_type() == experimental.synDeviceType.synDeviceGaudi)

    def supports(self, dtype: torch.dtype) -> bool:
        """Return whether matrix products in `dtype` run on the current device."""
        if dtype == torch.float16 and self.is_first_generation():
            return False
        return super().supports(dtype)


def _is_installed(package: str) -> bool:
    top_level = package.partition(".")[0]
    return top_level in sys.modules or importlib.util.find_spec(top_level) is not None
