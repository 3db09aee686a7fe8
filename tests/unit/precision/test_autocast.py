import pickle
import threading

import pytest
import torch
from torch import nn

from accelerate.devices.base import Device
from accelerate.devices.fake import FakeDevice
from accelerate.options.handlers import AutocastKwargs
from accelerate.precision.autocast import (
    AutocastForward,
    autocast_context,
    get_mixed_precision_context_manager,
)
from accelerate.precision.bf16 import BF16
from accelerate.precision.fp16 import FP16
from accelerate.state import NotInitializedValueError, set_up_training


class Recorder(nn.Module):
    """Notes the dtype of a matrix product inside its forward pass, and calls itself `depth` times."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 2))
        self.seen = []

    def forward(self, inputs, depth=0):
        if depth:
            self(inputs, depth - 1)
        outputs = inputs @ self.weight
        self.seen.append((outputs.dtype, torch.is_autocast_cache_enabled()))
        return outputs


@pytest.fixture
def model():
    return Recorder()


@pytest.mark.parametrize(("kind", "dtype"), [(BF16, torch.bfloat16), (FP16, torch.float16)])
def test_inside_the_forward_pass_operations_are_cast(model, kind, dtype):
    kind(Device()).wrap_forward(model)
    assert model(torch.ones(1, 2)).dtype == torch.float32
    assert model.seen == [(dtype, True)]
    assert model._original_forward(torch.ones(1, 2)).dtype == torch.float32


def test_conversion_is_outside_and_autocast_inside(model):
    BF16(Device()).wrap_forward(model)
    inner = model.forward.__wrapped__
    assert isinstance(inner, AutocastForward)
    assert inner.__wrapped__ == model._original_forward


def test_the_options_reach_the_forward_pass(model):
    BF16(Device(), autocast=AutocastKwargs(cache_enabled=False)).wrap_forward(model)
    model(torch.ones(1, 2))
    BF16(Device(), autocast=AutocastKwargs(enabled=False)).wrap_forward(model)
    model(torch.ones(1, 2))
    assert model.seen == [(torch.bfloat16, False), (torch.float32, True)]


def test_a_forward_pass_that_calls_itself_leaves_autocast_as_it_was(model):
    BF16(Device()).wrap_forward(model)
    model(torch.ones(1, 2), depth=2)
    assert not torch.is_autocast_enabled("cpu")
    with pytest.raises(RuntimeError):
        model(torch.ones(1, 3), depth=1)
    assert not torch.is_autocast_enabled("cpu")


def test_threads_do_not_disturb_each_other(model):
    BF16(Device()).wrap_forward(model)
    barrier = threading.Barrier(4, timeout=20)

    def run():
        for _ in range(50):
            barrier.wait()
            model(torch.ones(1, 2))
            assert not torch.is_autocast_enabled("cpu")
        finished.append(1)

    finished = []
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(finished) == 4
    assert {dtype for dtype, _ in model.seen} == {torch.bfloat16}


def test_the_context_has_the_options_of_the_handler_or_of_the_precision():
    precision = BF16(Device(), autocast=AutocastKwargs(enabled=False))
    with precision.autocast():
        assert not torch.is_autocast_enabled("cpu")
    with precision.autocast(AutocastKwargs()):
        assert torch.is_autocast_enabled("cpu")
    with autocast_context("cpu", torch.float16, AutocastKwargs(cache_enabled=False)):
        assert torch.get_autocast_dtype("cpu") == torch.float16
        assert not torch.is_autocast_cache_enabled()


def test_the_kind_of_device_is_the_precisions(model):
    BF16(FakeDevice(type="xpu")).wrap_forward(model)
    assert model.forward.model_forward.device_type == "xpu"


@pytest.mark.parametrize(
    ("name", "dtype"), [("no", torch.bfloat16), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_the_context_for_users_computes_as_the_accelerator_says(name, dtype):
    set_up_training(name, cpu=True)
    weight = torch.ones(2, 2)
    with get_mixed_precision_context_manager(True):
        assert (weight @ weight).dtype == dtype
    with get_mixed_precision_context_manager(True, AutocastKwargs(cache_enabled=False)):
        assert not torch.is_autocast_cache_enabled()
    for context in (
        get_mixed_precision_context_manager(autocast_kwargs=AutocastKwargs(enabled=True)),
        get_mixed_precision_context_manager(True, AutocastKwargs(enabled=False)),
    ):
        with context:
            assert (weight @ weight).dtype == torch.float32


def test_the_context_for_users_needs_an_accelerator():
    with get_mixed_precision_context_manager():
        assert not torch.is_autocast_enabled("cpu")
    with pytest.raises(NotInitializedValueError, match="make one first"):
        get_mixed_precision_context_manager(True)


def test_a_prepared_model_pickles_and_its_copy_has_a_forward_pass_of_its_own(model):
    """Also the object that converts outputs, by itself: nobody has to unwrap a model before."""
    BF16(Device()).wrap_forward(model)
    copy = pickle.loads(pickle.dumps(model))
    alone = pickle.loads(pickle.dumps(model.forward))
    with torch.no_grad():
        model.weight.zero_()
    assert copy(torch.ones(1, 2)).tolist() == [[2.0, 2.0]]
    assert alone(torch.ones(1, 2)).tolist() == [[2.0, 2.0]]
    assert copy.seen == [(torch.bfloat16, True)]
