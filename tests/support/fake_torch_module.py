"""A stand-in for `torch.cuda` and the vendors' modules of that shape. Used by the tests of devices.

It keeps what it is given and returns what it was told, so that a test can see which function a device used.
"""

import importlib.machinery
import sys
from types import ModuleType

import torch

__all__ = ["FakeTorchModule", "FakeXlaModel", "install", "install_xla"]


class FakeTorchModule(ModuleType):
    def __init__(self, name: str, *, count: int = 2) -> None:
        super().__init__(name)
        self.count = count
        self.calls: list[tuple] = []
        self.states = [torch.full((4,), index, dtype=torch.uint8) for index in range(count)]
        self.environment_when_asked: dict[str, str] | None = None

    def is_available(self) -> bool:
        from accelerate.compat import env

        self.environment_when_asked = env.snapshot()
        return self.count > 0

    def device_count(self) -> int:
        return self.count

    def current_device(self) -> int:
        return 0

    def set_device(self, device) -> None:
        self.calls.append(("set_device", device))

    def synchronize(self) -> None:
        self.calls.append(("synchronize",))

    def empty_cache(self) -> None:
        self.calls.append(("empty_cache",))

    def mem_get_info(self, index: int) -> tuple[int, int]:
        return 1000 + index, 2000

    def recommended_max_memory(self) -> int:
        return 2000

    def driver_allocated_memory(self) -> int:
        return 500

    def get_rng_state_all(self) -> list[torch.Tensor]:
        return [state.clone() for state in self.states]

    def set_rng_state_all(self, states) -> None:
        self.states = [state.clone() for state in states]

    def manual_seed_all(self, seed: int) -> None:
        self.states = [torch.full((4,), seed % 251 + index, dtype=torch.uint8) for index in range(self.count)]

    def get_rng_state(self) -> torch.Tensor:
        return self.states[0].clone()

    def set_rng_state(self, state) -> None:
        self.states[0] = state.clone()

    def manual_seed(self, seed: int) -> None:
        self.states[0] = torch.full((4,), seed % 251, dtype=torch.uint8)

    def get_device_capability(self) -> tuple[int, int]:
        return 9, 0


class FakeXlaModel(ModuleType):
    state = 7

    def get_rng_state(self) -> int:
        return self.state

    def set_rng_state(self, seed: int) -> None:
        self.state = seed

    def get_memory_info(self, device) -> dict[str, int]:
        return {"bytes_used": 300, "bytes_limit": 1000 + device.index}


def install(monkeypatch, kind: str, package: str | None = None, *, count: int = 2) -> FakeTorchModule:
    """Put a fake at `torch.<kind>` and, when the kind has one, a vendor's package in sys.modules."""
    module = FakeTorchModule(kind, count=count)
    monkeypatch.setattr(torch, kind, module, raising=False)
    if package is not None:
        monkeypatch.setitem(sys.modules, package.partition(".")[0], ModuleType(package))
    return module


def install_xla(monkeypatch, hardware: str = "TPU") -> list[tuple]:
    """Put a fake torch_xla in sys.modules and return the list of calls that it will record."""
    calls: list[tuple] = []
    xla, runtime, model = ModuleType("torch_xla"), ModuleType("runtime"), FakeXlaModel("xla_model")
    xla.__spec__ = importlib.machinery.ModuleSpec("torch_xla", None)
    xla.device = lambda: torch.device("xla", 0)
    xla.sync = lambda wait: calls.append(("sync", wait))
    runtime.device_type = lambda: hardware
    runtime.addressable_device_count = lambda: 1
    for name, module in {
        "torch_xla": xla,
        "torch_xla.runtime": runtime,
        "torch_xla.core": ModuleType("core"),
        "torch_xla.core.xla_model": model,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    return calls
