"""Models of a pipeline take turns on the device."""

import torch
from torch import nn

from accelerate.offload.hooks import SequentialHook
from accelerate.offload.user import CpuOffload, cpu_offload_with_hook, default_device


def device_of(model: nn.Module) -> str:
    return next(model.parameters()).device.type


def test_a_model_comes_to_the_device_with_its_arguments() -> None:
    model, _ = cpu_offload_with_hook(nn.Linear(2, 3), "meta")
    assert device_of(model) == "cpu"
    assert model(torch.ones(1, 2)).device.type == "meta"
    assert device_of(model) == "meta"


def test_the_next_model_sends_the_one_before_it_away() -> None:
    log: list[str] = []

    class Watched(CpuOffload):
        def init_hook(self, module: nn.Module) -> nn.Module:
            log.append("sent away")
            return module.to_empty(device="cpu")

    first, hook = cpu_offload_with_hook(nn.Linear(2, 2), "meta")
    hook.hook = Watched("meta")
    second, last = cpu_offload_with_hook(nn.Linear(2, 2), "meta", prev_module_hook=hook)
    first(torch.ones(1, 2))
    second(torch.ones(1, 2))
    assert (device_of(first), device_of(second), log) == ("cpu", "meta", ["sent away"])
    second(torch.ones(1, 2))
    assert log == ["sent away"]  # there is nothing to send a second time
    assert second._hf_hook.prev_module_hook is hook
    last.remove()
    assert "_hf_hook" not in vars(second)


def test_by_default_the_device_of_this_machine() -> None:
    assert CpuOffload().execution_device == default_device()


def test_a_hook_that_is_there_stays() -> None:
    model, _ = cpu_offload_with_hook(nn.Linear(2, 2), "cpu")
    model, hook = cpu_offload_with_hook(model, "cpu")
    assert isinstance(model._hf_hook, SequentialHook)
    assert model(torch.ones(1, 2)).shape == (1, 2)
    hook.offload()
    hook.remove()
    assert "forward" not in vars(model)
