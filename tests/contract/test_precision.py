"""The contract of Precision, over every precision of the table, with and without options."""

import copy
import pickle

import pytest
import torch
from torch import nn

from accelerate.devices.base import Device
from accelerate.devices.fake import FakeDevice
from accelerate.errors import ConfigurationError, OptimizerStepError
from accelerate.options.handlers import AutocastKwargs, GradScalerKwargs
from accelerate.precision.base import Dtypes, StepOutcome
from accelerate.precision.select import PRECISIONS, select

OPTIONS = {
    "plain": {},
    "options": {"autocast": AutocastKwargs(cache_enabled=False), "scaler": GradScalerKwargs(init_scale=8.0)},
    "switched off": {"autocast": AutocastKwargs(enabled=False), "scaler": GradScalerKwargs(enabled=False)},
}
CASES = [(name, options) for name in PRECISIONS for options in OPTIONS]


@pytest.fixture(params=CASES, ids="-".join)
def precision(request):
    name, options = request.param
    return select(name, Device(), **OPTIONS[options])


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Linear(4, 2)


def close(actual, expected):
    """Compare at the resolution of the coarsest format, bfloat16."""
    torch.testing.assert_close(actual, expected, rtol=2e-2, atol=2e-2)


def backward(precision, model):
    # An eighth, so that no scale makes the gradients leave the range of fp16.
    precision.scale(model(torch.ones(1, 4)).sum() / 8).backward()


def test_it_knows_its_name(precision):
    assert PRECISIONS[precision.name] is type(precision)


def test_weights_and_gradients_stay_fp32_and_outputs_are_fp32(precision, model):
    wrapped = precision.wrap_forward(precision.convert(model))
    outputs = wrapped(torch.ones(3, 4))
    outputs.sum().backward()
    assert all(parameter.dtype == torch.float32 for parameter in wrapped.parameters())
    assert all(parameter.grad.dtype == torch.float32 for parameter in wrapped.parameters())
    assert outputs.dtype == torch.float32


def test_the_results_are_those_of_fp32_up_to_rounding(precision, model):
    inputs = torch.randn(3, 4)
    expected = model(inputs)
    close(precision.wrap_forward(precision.convert(model))(inputs), expected)


def test_unwrapping_gives_the_plain_forward_back(precision, model):
    inputs = torch.randn(3, 4)
    expected = model(inputs)
    unwrapped = precision.unwrap_forward(precision.wrap_forward(model))
    assert torch.equal(unwrapped(inputs), expected)
    assert not {"forward", "_original_forward"} & set(model.__dict__)


def test_a_wrapped_model_can_be_wrapped_again(precision, model):
    inputs = torch.randn(3, 4)
    expected = precision.wrap_forward(model)(inputs)
    again = precision.wrap_forward(model)
    assert torch.equal(again(inputs), expected)
    precision.unwrap_forward(again)
    assert "_original_forward" not in model.__dict__


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda item: pickle.loads(pickle.dumps(item))], ids=["deepcopy", "pickle"]
)
def test_a_wrapped_model_can_be_copied(precision, model, duplicate):
    wrapped = precision.wrap_forward(model)
    twin = duplicate(wrapped)
    inputs = torch.randn(3, 4)
    assert torch.equal(twin(inputs), wrapped(inputs))
    with torch.no_grad():
        twin.weight.zero_()
        twin.bias.zero_()
    assert not twin(inputs).any()
    assert wrapped(inputs).any()


def test_gradients_have_their_true_size_after_unscale_however_often(precision, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    backward(precision, model)
    for _ in range(2):
        precision.unscale(optimizer)
        torch.testing.assert_close(model.weight.grad, torch.full((2, 4), 0.125))


def test_each_step_moves_the_parameters_once(precision, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.8)
    precision.wrap_forward(model)
    for unscale_first in (False, True, False):
        before = model.weight.detach().clone()
        backward(precision, model)
        if unscale_first:
            precision.unscale(optimizer)
        assert precision.step(optimizer) == StepOutcome(None, False)
        optimizer.zero_grad()
        torch.testing.assert_close(model.weight, before - 0.1)


def test_a_closure_gives_its_loss_back_or_is_refused(precision, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    calls = []

    def closure():
        calls.append(1)
        return torch.tensor(2.5)

    if precision.scaler is not None and precision.scaler.is_enabled():
        with pytest.raises(OptimizerStepError, match=r"SGD\.step\(closure\) under mixed_precision="):
            precision.step(optimizer, closure)
        assert calls == []
        return
    outcome = precision.step(optimizer, closure)
    assert (outcome.loss.item(), outcome.skipped) == (2.5, False)


def test_autocast_can_be_entered_twice_in_a_row_nested_and_as_decorator(precision, model):
    def compute():
        return (torch.ones(1, 4) @ torch.ones(4, 1)).dtype

    with precision.autocast():
        dtype = compute()
        with precision.autocast():
            assert compute() == dtype
        assert compute() == dtype
    assert precision.autocast()(compute)() == dtype
    assert compute() == torch.float32


def test_autocast_can_be_switched_off(precision):
    with precision.autocast(AutocastKwargs(enabled=False)):
        assert (torch.ones(1, 4) @ torch.ones(4, 1)).dtype == torch.float32


def test_its_state_round_trips(precision, model):
    backward(precision, model)
    precision.step(torch.optim.SGD(model.parameters(), lr=0.1))
    state = precision.state_dict()
    twin = select(precision.name, Device())
    if state:
        twin.load_state_dict(state)
        assert twin.state_dict() == state
    precision.load_state_dict(state)
    assert precision.state_dict() == state


def test_engines_are_told_dtypes(precision):
    dtypes = precision.dtypes()
    assert isinstance(dtypes, Dtypes)
    expected = {"no": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision.name]
    assert {dtypes.param, dtypes.reduce, dtypes.buffer, dtypes.output} == {expected}


@pytest.mark.parametrize("kind", PRECISIONS.values(), ids=list(PRECISIONS))
def test_what_stands_in_its_way_is_said_or_nothing(kind):
    assert kind.obstacle(Device()) is None
    unable = FakeDevice(unsupported=[torch.float16, torch.bfloat16])
    obstacle = kind.obstacle(unable)
    assert obstacle is None or "'cuda'" in obstacle
    if obstacle is not None:
        with pytest.raises(ConfigurationError, match=r"Possible here: 'no'\. Pass"):
            select(kind.name, unable)
