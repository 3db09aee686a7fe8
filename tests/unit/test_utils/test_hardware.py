import pytest
import torch

from accelerate.test_utils import hardware
from accelerate.test_utils.hardware import get_backend, memory_allocated_func, torch_device


def test_the_device_is_the_accelerators() -> None:
    from accelerate.accelerator import Accelerator

    assert Accelerator().device.type == torch_device


def test_a_kind_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_CPU", "yes")
    kind, number, allocated = get_backend()
    assert (kind, number, allocated()) == ("cpu", 1, 0)


def test_memory_is_counted_by_the_kinds_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 7)
    assert hardware._memory_counter("cuda")() == 7
    monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: 8)
    assert hardware._memory_counter("mps")() == 8
    assert hardware._memory_counter("unknown")() == 0
    assert memory_allocated_func() >= 0
