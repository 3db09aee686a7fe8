import collections
import copy
import pickle

import pytest
import torch

from accelerate.errors import OptimizerStepError
from accelerate.optimizer import AcceleratedOptimizer, move_to_device, owners, patch_optimizer_step
from accelerate.options.request import Request
from accelerate.precision.base import Precision, StepOutcome
from accelerate.runtime.accumulation import accumulation
from accelerate.runtime.current import current
from accelerate.strategies.base import Strategy


@pytest.fixture(autouse=True)
def fresh():
    current.start(cpu=True)
    yield
    current.reset()
    accumulation.reset()


@pytest.fixture
def parameter():
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    return parameter


@pytest.fixture
def optimizer(parameter):
    return AcceleratedOptimizer(torch.optim.SGD([parameter], lr=0.5))


def test_it_is_an_optimizer_that_shares_everything_with_the_one_it_holds(optimizer):
    assert isinstance(optimizer, torch.optim.Optimizer)
    for name in ("param_groups", "state", "defaults"):
        assert getattr(optimizer, name) is getattr(optimizer.optimizer, name)
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))]})
    assert len(optimizer.optimizer.param_groups) == 2


def test_it_steps_and_clears_when_gradients_are_synchronised(optimizer, parameter):
    optimizer.step()
    assert parameter.tolist() == [0.5, 0.5]
    optimizer.zero_grad()
    assert parameter.grad is None


def test_it_does_nothing_inside_a_window(optimizer, parameter):
    accumulation.sync_gradients = False
    optimizer.step()
    optimizer.zero_grad()
    assert parameter.tolist() == [1.0, 1.0]
    assert parameter.grad.tolist() == [1.0, 1.0]


def test_zero_grad_keeps_zeros_on_request(optimizer, parameter):
    optimizer.zero_grad(set_to_none=False)
    assert parameter.grad.tolist() == [0.0, 0.0]


def test_the_outcome_of_the_step_function_is_told(parameter):
    def skip(inner, closure):
        return StepOutcome(closure(), True)

    optimizer = AcceleratedOptimizer(torch.optim.SGD([parameter], lr=0.5), step_function=skip)
    assert not optimizer.step_was_skipped
    assert optimizer.step(lambda: 3) == 3
    assert optimizer.step_was_skipped


def test_a_scaler_alone_skips_on_overflow(parameter):
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    optimizer = AcceleratedOptimizer(torch.optim.SGD([parameter], lr=0.5), scaler=scaler)
    scaler.scale(parameter.sum()).backward()
    parameter.grad.fill_(float("inf"))
    optimizer.step()
    assert optimizer.step_was_skipped
    assert parameter.tolist() == [1.0, 1.0]
    parameter.grad.fill_(4.0)
    scaler._scale.fill_(4.0)
    optimizer.step()
    assert not optimizer.step_was_skipped
    assert parameter.tolist() == [0.5, 0.5]


def test_a_scaler_alone_refuses_a_closure_and_passes_it_on_when_switched_off(parameter):
    scaler = torch.amp.GradScaler("cpu")
    optimizer = AcceleratedOptimizer(torch.optim.SGD([parameter], lr=0.5), scaler=scaler)
    with pytest.raises(RuntimeError, match="Closure use is not currently supported"):
        optimizer.step(lambda: 1)
    optimizer.scaler = torch.amp.GradScaler("cpu", enabled=False)
    assert optimizer.step(lambda: 7) == 7
    assert not optimizer.step_was_skipped


def test_an_outcome_that_only_the_device_knows_is_read_when_asked_for(parameter):
    class Outcome:
        num_reads = 0

        def __bool__(self):
            self.num_reads += 1
            return True

    outcome = Outcome()
    optimizer = AcceleratedOptimizer(
        torch.optim.SGD([parameter], lr=0.5), step_function=lambda inner, closure: StepOutcome(None, outcome)
    )
    optimizer.step()
    assert outcome.num_reads == 0
    assert optimizer.step_was_skipped is True
    assert optimizer.step_was_skipped is True
    assert outcome.num_reads == 1


def test_owners_are_those_that_step_a_parameter():
    first, second, third = (torch.nn.Parameter(torch.ones(1)) for _ in range(3))
    both = torch.optim.SGD([{"params": [first]}, {"params": [second]}], lr=0.5)
    one = AcceleratedOptimizer(torch.optim.SGD([second], lr=0.5))
    assert owners([both, one], [second, third]) == [both, one]
    assert owners([both, one], [first]) == [both]
    assert owners([both, one], [third]) == []


def test_schedulers_can_be_made_from_it(optimizer):
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
    optimizer.step()
    scheduler.step()
    assert optimizer.optimizer.param_groups[0]["lr"] == pytest.approx(0.05)


def test_it_pickles_with_its_state(optimizer):
    optimizer.step()
    copy = pickle.loads(pickle.dumps(optimizer))
    assert copy.state_dict() == optimizer.state_dict()
    assert isinstance(copy, AcceleratedOptimizer)


def test_a_scaler_that_scaled_no_loss_is_told_with_the_way_out(parameter):
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    optimizer = AcceleratedOptimizer(torch.optim.SGD([parameter], lr=0.5), scaler=scaler)
    parameter.grad = torch.ones(2)
    with pytest.raises(OptimizerStepError, match=r"accelerator\.prepare\(optimizer\.optimizer\)"):
        optimizer.step()
    scaler.scale(torch.ones(1))
    optimizer.step()
    assert parameter.tolist() == [0.875, 0.875]


def test_a_disabled_scaler_steps_without_a_scale(parameter):
    optimizer = AcceleratedOptimizer(
        torch.optim.SGD([parameter], lr=0.5), scaler=torch.amp.GradScaler("cpu", enabled=False)
    )
    parameter.grad = torch.ones(2)
    optimizer.step()
    assert parameter.tolist() == [0.5, 0.5]


def test_a_copy_steps_itself_also_when_a_scheduler_was_made_from_the_original(optimizer, parameter):
    torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
    for duplicate in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        (its_own,) = duplicate.param_groups[0]["params"]
        its_own.grad = torch.ones(2)
        duplicate.step()
        assert its_own.tolist() == [0.5, 0.5]
    assert parameter.tolist() == [1.0, 1.0]


class Plain(torch.optim.Optimizer):
    """An optimizer of a user, whose methods take no arguments."""

    def __init__(self, parameters):
        super().__init__(parameters, {})
        self.calls = []

    def step(self):
        self.calls.append("step")

    def zero_grad(self):
        self.calls.append("zero_grad")


@pytest.mark.parametrize("through_a_strategy", [True, False])
def test_optimizers_without_arguments_work(parameter, through_a_strategy):
    strategy = Strategy(current, Precision(), Request())
    functions = {"step_function": strategy.step, "zero_grad_function": strategy.zero_grad}
    inner = Plain([parameter])
    optimizer = AcceleratedOptimizer(inner, **functions if through_a_strategy else {})
    optimizer.step()
    optimizer.zero_grad()
    assert inner.calls == ["step", "zero_grad"]
    with pytest.raises(TypeError, match="set_to_none"):
        optimizer.zero_grad(set_to_none=False)


def test_hooks_are_those_of_the_optimizer_it_holds(optimizer):
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append("step"))
    optimizer.register_state_dict_pre_hook(lambda *_: calls.append("state"))
    optimizer.step()
    optimizer.state_dict()
    assert calls == ["step", "state"]


def test_state_that_is_in_place_is_left_alone(parameter):
    half = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    inner = torch.optim.SGD([parameter, half], lr=0.5, momentum=0.9)
    inner.state[half]["momentum_buffer"] = buffer = torch.ones(2)
    state, groups = inner.state, inner.param_groups
    optimizer = AcceleratedOptimizer(inner)
    assert optimizer.state is state
    assert optimizer.param_groups is groups
    assert optimizer.state[half]["momentum_buffer"] is buffer


def test_state_elsewhere_is_moved():
    current.device = torch.device("meta")
    parameter = torch.nn.Parameter(torch.ones(2, device="meta"))
    inner = torch.optim.SGD([parameter], lr=0.5, momentum=0.9)
    inner.state[parameter]["momentum_buffer"] = torch.ones(2)
    optimizer = AcceleratedOptimizer(inner)
    assert optimizer.state[parameter]["momentum_buffer"].device.type == "meta"


def test_unknown_attributes_are_not_forwarded(optimizer):
    optimizer.optimizer.special = 1
    with pytest.raises(AttributeError):
        _ = optimizer.special


def test_train_and_eval_reach_optimizers_that_have_modes(optimizer):
    modes = []
    optimizer.train()
    optimizer.optimizer.train = lambda: modes.append("train")
    optimizer.optimizer.eval = lambda: modes.append("eval")
    optimizer.train()
    optimizer.eval()
    assert modes == ["train", "eval"]


def test_a_patched_step_notes_its_call_and_stays_what_it_is(optimizer, parameter):
    patched = patch_optimizer_step(optimizer, lambda closure=None: ("stepped", closure))
    assert not optimizer._accelerate_step_called
    assert patched(closure=3) == ("stepped", 3)
    assert optimizer._accelerate_step_called


def test_a_scaler_that_leaves_a_patched_step_out_leaves_no_note(optimizer, parameter):
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    inner = optimizer.optimizer
    inner.step = patch_optimizer_step(optimizer, inner.step)
    for value, called in ((float("inf"), False), (1.0, True)):
        optimizer._accelerate_step_called = False
        scaler.scale(parameter.sum() * value).backward()
        scaler.step(inner)
        scaler.update()
        inner.zero_grad()
        assert optimizer._accelerate_step_called is called


def test_state_moves_in_every_container():
    pair = collections.namedtuple("pair", "x y")
    state = {"a": [torch.ones(1), 2], "b": pair(torch.ones(1), None), "c": collections.defaultdict(int, d=1)}
    moved = move_to_device(state, torch.device("meta"))
    assert moved["a"][0].device.type == moved["b"].x.device.type == "meta"
    assert (moved["a"][1], moved["c"]["d"], moved["c"]["e"]) == (2, 1, 0)
