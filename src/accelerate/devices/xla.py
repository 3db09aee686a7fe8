"""Devices behind torch_xla: TPU, or what PJRT_DEVICE names. The one file of this room that imports it."""

import importlib
import importlib.util
import sys
from typing import Any

import torch

from accelerate.compat.env import get_flag
from accelerate.devices.base import Device, Place, is_float8
from accelerate.errors import MissingPackageError
from accelerate.options.enums import DistributedType

__all__ = ["XlaDevice"]


class XlaDevice(Device):
    """The device that the XLA runtime gives this process."""

    type = "xla"
    distributed_type = DistributedType.XLA
    backend = "xla"
    visible_variable = "TPU_VISIBLE_CHIPS"
    oom_messages = ("RESOURCE_EXHAUSTED",)

    def load(self) -> None:
        """Import torch_xla, which registers the kind with torch and starts no runtime."""
        if not _is_installed():
            raise MissingPackageError(
                "device 'xla' needs the package `torch_xla`, which is not installed: `pip install torch_xla`."
            )
        importlib.import_module("torch_xla")

    @property
    def _xla(self) -> Any:
        self.load()
        return sys.modules["torch_xla"]

    @property
    def _runtime(self) -> Any:
        self.load()
        return importlib.import_module("torch_xla.runtime")

    @property
    def _model(self) -> Any:
        self.load()
        return importlib.import_module("torch_xla.core.xla_model")

    def is_available(self) -> bool:
        """Return whether torch_xla is installed and not switched off by USE_TORCH_XLA; starts no runtime."""
        return get_flag("USE_TORCH_XLA", default=True) and _is_installed()

    def hardware(self) -> str:
        """Return what the runtime drives: "TPU", "CUDA", "CPU" …; starts the runtime."""
        return str(self._runtime.device_type())

    def count(self) -> int:
        """Return the number of devices of this process, 0 without torch_xla; starts the runtime."""
        return int(self._runtime.addressable_device_count()) if self.is_available() else 0

    def _device_at(self, place: Place) -> torch.device:
        device: torch.device = self._xla.device()
        return device

    def synchronize(self) -> None:
        """Run the traced graph and wait for it."""
        self._xla.sync(wait=True)

    def memory(self, index: int = 0) -> tuple[int, int]:
        """Return (free, total) bytes of device `index`."""
        facts = self._model.get_memory_info(torch.device("xla", index))
        total = int(facts["bytes_limit"])
        return total - int(facts["bytes_used"]), total

    def rng_state(self) -> Any:
        """Return the seed from which the device's generator goes on, an integer."""
        return self._model.get_rng_state()

    def set_rng_state(self, state: Any) -> None:
        """Put back what `rng_state` gave."""
        self._model.set_rng_state(state)

    def seed_all(self, seed: int) -> None:
        """Seed the device's generator."""
        self._model.set_rng_state(seed)

    def supports(self, dtype: torch.dtype) -> bool:
        """Return whether matrix products in `dtype` run; XLA compiles all but the eight-bit formats."""
        return not is_float8(dtype)


def _is_installed() -> bool:
    return "torch_xla" in sys.modules or importlib.util.find_spec("torch_xla") is not None
