import pytest
import torch

from accelerate.devices.base import Device
from accelerate.errors import OptimizerStepError
from accelerate.options.handlers import GradScalerKwargs
from accelerate.precision.base import DONE, SKIPPED
from accelerate.precision.fp16 import FP16


@pytest.fixture
def parameter():
    return torch.nn.Parameter(torch.ones(2))


def test_the_options_reach_the_scaler():
    options = GradScalerKwargs(init_scale=4.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=7)
    assert FP16(Device(), scaler=options).state_dict() == {
        "scale": 4.0,
        "growth_factor": 3.0,
        "backoff_factor": 0.25,
        "growth_interval": 7,
        "_growth_tracker": 0,
    }
    assert FP16(Device()).scaler.get_scale() == 65536.0


def test_a_step_with_infinite_gradients_is_skipped_and_lowers_the_scale(parameter):
    precision = FP16(Device(), scaler=GradScalerKwargs(init_scale=4.0, growth_interval=1))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    precision.scale(parameter.sum() * float("inf")).backward()
    assert precision.step(optimizer) is SKIPPED
    assert parameter.tolist() == [1, 1]
    assert precision.scaler.get_scale() == 2
    optimizer.zero_grad()
    precision.scale(parameter.sum()).backward()
    assert precision.step(optimizer) is DONE
    assert parameter.tolist() == [0.5, 0.5]
    assert precision.scaler.get_scale() == 4


def test_a_fused_optimizer_tells_by_a_tensor_that_nobody_has_to_read(parameter):
    precision = FP16(Device())
    optimizer = torch.optim.AdamW([parameter], lr=0.5, fused=True)
    for factor, skipped in ((float("inf"), True), (1.0, False)):
        before = parameter.tolist()
        precision.scale(parameter.sum() * factor).backward()
        outcome = precision.step(optimizer)
        optimizer.zero_grad()
        assert isinstance(outcome.skipped, torch.Tensor)
        precision.scaler.get_scale()  # the update that follows does not change what was told
        assert bool(outcome.skipped) is skipped
        assert (parameter.tolist() == before) is skipped


def test_the_refusal_of_a_closure_says_what_to_do(parameter):
    with pytest.raises(OptimizerStepError, match="Call `backward` before `step\\(\\)` without a closure"):
        FP16(Device()).step(torch.optim.LBFGS([parameter]), lambda: 1)


def test_switched_off_it_steps_as_fp32_does(parameter):
    precision = FP16(Device(), scaler=GradScalerKwargs(enabled=False))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    precision.scale(parameter.sum()).backward()
    precision.unscale(optimizer)
    assert precision.step(optimizer) is DONE
    assert parameter.tolist() == [0.5, 0.5]
    assert precision.state_dict() == {}
