"""The contract of Precision, over every precision of the table."""

import pytest
import torch
from torch import nn

from accelerate.errors import ConfigurationError
from accelerate.precision.base import Dtypes, StepOutcome
from accelerate.precision.select import PRECISIONS, select


@pytest.fixture(params=sorted(PRECISIONS))
def precision(request):
    return select(request.param)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Linear(4, 2)


def test_it_knows_its_name(precision):
    assert PRECISIONS[precision.name] is type(precision)


def test_weights_stay_fp32_and_outputs_are_fp32(precision, model):
    wrapped = precision.wrap_forward(precision.convert(model))
    assert all(parameter.dtype == torch.float32 for parameter in wrapped.parameters())
    assert wrapped(torch.ones(3, 4)).dtype == torch.float32


def test_unwrapping_gives_the_plain_forward_back(precision, model):
    inputs = torch.randn(3, 4)
    expected = model(inputs)
    unwrapped = precision.unwrap_forward(precision.wrap_forward(model))
    assert torch.equal(unwrapped(inputs), expected)


def test_gradients_have_their_true_size_after_unscale(precision, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    precision.scale(model(torch.ones(1, 4)).sum()).backward()
    precision.unscale(optimizer)
    torch.testing.assert_close(model.weight.grad, torch.ones(2, 4))


def test_a_step_moves_the_parameters_once(precision, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.detach().clone()
    precision.scale(model(torch.ones(1, 4)).sum()).backward()
    outcome = precision.step(optimizer)
    assert outcome == StepOutcome(None, False)
    torch.testing.assert_close(model.weight, before - 0.1)


def test_a_closure_gives_its_loss_back(precision, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    outcome = precision.step(optimizer, lambda: torch.tensor(2.5))
    assert (outcome.loss.item(), outcome.skipped) == (2.5, False)


def test_autocast_is_a_context_that_can_be_entered_twice_in_a_row(precision, model):
    for _ in range(2):
        with precision.autocast():
            model(torch.ones(1, 4))


def test_its_state_round_trips(precision):
    precision.load_state_dict(precision.state_dict())
    assert isinstance(precision.dtypes(), Dtypes)


def test_an_unknown_name_is_an_error_that_lists_the_known_ones():
    with pytest.raises(ConfigurationError, match=r"fp4.*no"):
        select("fp4")
