"""The scaler, beside torch's own with a hand-written `update()`: see [Note: one update a step]."""

import copy
import pickle
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

from accelerate.errors import OptimizerStepError
from accelerate.options.enums import DistributedType
from accelerate.options.handlers import GradScalerKwargs
from accelerate.precision.scaler import GradScaler, get_grad_scaler, make_scaler
from accelerate.runtime.current import current


@dataclass(frozen=True)
class Step:
    """One step of two optimizers: what each one's loss is multiplied by, and what happens to it."""

    factors: tuple[float, float]
    clipped: tuple[bool, bool]
    joint: bool  # one loss for both
    order: tuple[int, ...]  # who steps, in which order


FACTORS = st.sampled_from([1.0, 0.3, 1e3, float("inf")])
BOOLS = st.tuples(st.booleans(), st.booleans())
ORDERS = st.sampled_from([(0, 1), (1, 0), (0,), (1,)])
STEPS = st.builds(Step, factors=st.tuples(FACTORS, FACTORS), clipped=BOOLS, joint=st.booleans(), order=ORDERS)


def run(scaler, script, *, by_hand):
    """Train two parameters by a script; return the parameters and the scaler's state after each step."""
    parameters = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    optimizers = [torch.optim.SGD([parameter], lr=0.01, momentum=0.9) for parameter in parameters]
    history = []
    for step in script:
        losses = [(p.square() * f).sum() for p, f in zip(parameters, step.factors, strict=True)]
        for loss in [losses[0] + losses[1]] if step.joint else losses:
            scaler.scale(loss).backward()
        for index in step.order:
            if step.clipped[index]:
                scaler.unscale_(optimizers[index])
                torch.nn.utils.clip_grad_norm_([parameters[index]], 0.5)
        for index in step.order:
            scaler.step(optimizers[index])
        if by_hand:
            scaler.update()
        for optimizer in optimizers:
            optimizer.zero_grad()
        history.append([p.tolist() for p in parameters])
    return history, scaler.state_dict()


@given(script=st.lists(STEPS, min_size=1, max_size=6), explicit=st.booleans())
@settings(deadline=None, max_examples=150)
def test_without_update_it_is_torchs_with_one_update_after_all_optimizers(script, explicit):
    arguments = {"init_scale": 2.0**10, "growth_interval": 2}
    expected = run(torch.amp.GradScaler("cpu", **arguments), script, by_hand=True)
    assert run(GradScaler("cpu", **arguments), script, by_hand=explicit) == expected


@pytest.fixture
def parameter():
    return torch.nn.Parameter(torch.ones(2))


@pytest.fixture
def optimizer(parameter):
    return torch.optim.SGD([parameter], lr=0.5)


@pytest.fixture
def scaler():
    return make_scaler("cpu", GradScalerKwargs(init_scale=8.0, growth_interval=1))


def backward(scaler, parameter, factor=1.0):
    scaler.scale((parameter * factor).sum()).backward()


def test_a_second_optimizer_unscales_by_the_scale_of_its_loss(scaler):
    """The first one's step must not change the scale under it, by overflowing or by letting it grow."""
    for factor in (float("inf"), 1.0):
        first, second = torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1))
        scaler.scale((first * factor).sum() + second.sum()).backward()
        scaler.step(torch.optim.SGD([first], lr=0.5))
        scaler.step(torch.optim.SGD([second], lr=0.5))
        assert second.item() == 0.5


def test_reading_the_scale_or_the_state_shows_it_after_the_step(scaler, parameter, optimizer):
    backward(scaler, parameter)
    assert scaler.get_scale() == 8
    scaler.step(optimizer)
    assert scaler.get_scale() == 16
    optimizer.zero_grad()
    backward(scaler, parameter)
    scaler.step(optimizer)
    assert scaler.state_dict()["scale"] == 32


def test_several_losses_before_a_step_have_one_scale(scaler, parameter, optimizer):
    for _ in range(3):
        backward(scaler, parameter)
        assert scaler.get_scale() == 8
    scaler.step(optimizer)
    assert parameter.tolist() == [-0.5, -0.5]
    assert scaler.get_scale() == 16


def test_unscaling_twice_is_once(scaler, parameter, optimizer):
    backward(scaler, parameter)
    for _ in range(3):
        scaler.unscale_(optimizer)
        assert parameter.grad.tolist() == [1, 1]
    scaler.step(optimizer)
    scaler.unscale_(optimizer)
    assert parameter.grad.tolist() == [1, 1]
    assert parameter.tolist() == [0.5, 0.5]


def test_unscaling_in_the_middle_of_an_accumulation_is_refused_when_it_shows(scaler, parameter, optimizer):
    backward(scaler, parameter)
    scaler.unscale_(optimizer)
    backward(scaler, parameter)
    with pytest.raises(OptimizerStepError, match=r"SGD were unscaled or clipped before.*sync_gradients"):
        scaler.unscale_(optimizer)


def test_an_unscaled_optimizer_waits_while_another_loss_is_scaled(scaler, parameter, optimizer):
    """As in adversarial training: the losses in turn, then the steps."""
    other = torch.nn.Parameter(torch.ones(2))
    other_optimizer = torch.optim.SGD([other], lr=0.5)
    backward(scaler, parameter)
    scaler.unscale_(optimizer)
    backward(scaler, other)
    scaler.step(other_optimizer)
    backward(scaler, torch.nn.Parameter(torch.ones(1)))  # the other one's step is over; this one's is not
    scaler.step(optimizer)
    assert parameter.tolist() == other.tolist() == [0.5, 0.5]
    assert scaler.get_scale() == 32


def test_dropping_gradients_instead_of_stepping_ends_the_step(scaler, parameter, optimizer):
    """A loop may look at the norm and throw the gradients away; the scale must still come down."""
    backward(scaler, parameter, float("inf"))
    scaler.unscale_(optimizer)
    optimizer.zero_grad()
    backward(scaler, parameter)
    assert scaler.get_scale() == 4
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    assert parameter.tolist() == [0.5, 0.5]


def test_an_optimizer_without_gradients_may_be_unscaled(scaler, parameter, optimizer):
    scaler.scale(torch.ones(()))
    scaler.unscale_(optimizer)
    backward(scaler, parameter)
    scaler.step(optimizer)
    assert parameter.tolist() == [0.5, 0.5]


def test_two_steps_without_a_loss_between_are_two_steps(scaler, parameter, optimizer):
    backward(scaler, parameter)
    scaler.step(optimizer)
    parameter.grad.fill_(16)  # scaled by what the scale is now
    scaler.step(optimizer)
    assert parameter.tolist() == [0, 0]
    assert scaler.get_scale() == 32


def test_it_tells_whether_it_skipped(scaler, parameter, optimizer):
    for factor, skipped in ((1.0, False), (float("nan"), True), (1.0, False)):
        backward(scaler, parameter, factor)
        scaler.step(optimizer)
        assert scaler.skipped is skipped
        optimizer.zero_grad()


def test_the_gradients_are_read_from_the_device_once_a_step(scaler, parameter, optimizer, monkeypatch):
    reads = []
    item = torch.Tensor.item
    monkeypatch.setattr(torch.Tensor, "item", lambda self: (reads.append(1), item(self))[1])
    for _ in range(3):
        backward(scaler, parameter)
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        optimizer.zero_grad()
    assert len(reads) == 3


def test_a_loaded_state_is_not_touched_by_the_step_before(scaler, parameter, optimizer):
    backward(scaler, parameter, float("inf"))
    scaler.step(optimizer)
    state = make_scaler("cpu", GradScalerKwargs(init_scale=64.0)).state_dict()
    scaler.load_state_dict(state)
    optimizer.zero_grad()
    backward(scaler, parameter)
    assert scaler.state_dict() == state


def test_states_go_to_and_from_torchs_own(scaler, parameter, optimizer):
    backward(scaler, parameter)
    scaler.step(optimizer)
    plain = torch.amp.GradScaler("cpu")
    plain.load_state_dict(scaler.state_dict())
    assert plain.state_dict() == scaler.state_dict()
    fresh = GradScaler("cpu")
    fresh.load_state_dict(plain.state_dict())
    assert fresh.state_dict() == scaler.state_dict()


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda item: pickle.loads(pickle.dumps(item))], ids=["deepcopy", "pickle"]
)
def test_it_can_be_copied_between_steps(scaler, parameter, optimizer, duplicate):
    backward(scaler, parameter)
    scaler.step(optimizer)
    twin = duplicate(scaler)
    assert twin.state_dict() == scaler.state_dict()
    backward(twin, parameter)
    twin.step(optimizer)


def test_switched_off_it_does_nothing(parameter, optimizer):
    scaler = make_scaler("cpu", GradScalerKwargs(enabled=False))
    loss = parameter.sum()
    assert scaler.scale(loss) is loss
    loss.backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert parameter.tolist() == [0.5, 0.5]
    assert (scaler.skipped, scaler.get_scale(), scaler.state_dict()) == (False, 1.0, {})
    scaler.load_state_dict({})
    assert not pickle.loads(pickle.dumps(scaler)).is_enabled()


@pytest.fixture
def run_on_cpu():
    current.start(cpu=True)
    yield
    current.reset()


@pytest.mark.parametrize("kind", [None, DistributedType.NO, DistributedType.MULTI_GPU])
def test_a_scaler_for_users_is_for_the_device_of_the_run(run_on_cpu, kind):
    scaler = get_grad_scaler(kind, init_scale=4.0)
    assert type(scaler) is GradScaler
    assert scaler.scale(torch.ones(1)).tolist() == [4.0]
    with pytest.raises(TypeError, match="bogus"):
        get_grad_scaler(kind, bogus=1)


def test_the_scaler_of_fsdp_agrees_between_ranks(run_on_cpu):
    scaler = get_grad_scaler(DistributedType.FSDP, init_scale=8.0)
    assert type(scaler) is ShardedGradScaler
    assert scaler.is_enabled()
    assert scaler.get_scale() == 8.0
