import pytest
import torch

from accelerate.accelerator import Accelerator
from accelerate.errors import ConfigurationError
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.state import AcceleratorState, GradientState
from accelerate.training import lomo


@pytest.fixture(autouse=True)
def fresh():
    yield
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


class Fused(torch.optim.Optimizer):
    """Updates in the backward pass and has no `step`, as the optimizers of lomo-optim do."""

    def __init__(self, parameters):
        super().__init__(parameters, {})
        self.lr = None
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.register_post_accumulate_grad_hook(self._update)

    def _update(self, parameter):
        parameter.data -= self.lr * parameter.grad
        parameter.grad = None

    def fused_backward(self, loss, lr):
        self.lr = lr
        loss.backward()


class FusedWithStep(Fused):
    num_steps = 0

    def step(self, closure=None):
        self.num_steps += 1


def prepared(kind=Fused):
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    model, optimizer = accelerator.prepare(model, kind(model.parameters()))
    return accelerator, model, optimizer


def test_it_is_known_by_its_method():
    model = torch.nn.Linear(1, 1)
    sgd, fused = torch.optim.SGD(model.parameters(), lr=1.0), Fused(model.parameters())
    assert lomo.fused([sgd, fused]) == [fused]
    assert lomo.fused([AcceleratedOptimizer(fused, device_placement=False)]) == [fused]
    assert not Accelerator(cpu=True).has_lomo_optimizer
    assert prepared()[0].has_lomo_optimizer


@pytest.mark.parametrize("through_backward", [True, False])
def test_the_ordinary_loop_updates_in_the_backward_pass(through_backward):
    accelerator, model, optimizer = prepared()
    loss = model(torch.tensor([[1.0, 2.0]])).sum()
    if through_backward:
        accelerator.backward(loss, learning_rate=0.5)
    else:
        accelerator.lomo_backward(loss, 0.5)
    optimizer.step()  # has nothing to do, and says nothing
    optimizer.zero_grad()
    torch.testing.assert_close(model.weight.data, torch.tensor([[0.5, 0.0]]))
    assert not accelerator.optimizer_step_was_skipped


def test_a_step_of_its_own_is_made():
    assert lomo.steps_in_backward(Fused([torch.nn.Parameter(torch.ones(1))]))
    assert not lomo.steps_in_backward(FusedWithStep([torch.nn.Parameter(torch.ones(1))]))
    assert not lomo.steps_in_backward(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0))
    optimizer = prepared(FusedWithStep)[2]
    optimizer.step()
    assert optimizer.optimizer.num_steps == 1


def test_backward_divides_by_the_accumulation_steps():
    accelerator, model, _ = prepared()
    accelerator.gradient_accumulation_steps = 2
    accelerator.backward(model(torch.tensor([[1.0, 2.0]])).sum(), learning_rate=0.5)
    torch.testing.assert_close(model.weight.data, torch.tensor([[0.75, 0.5]]))


def test_what_is_missing_is_said():
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(torch.nn.Linear(2, 1))
    loss = model(torch.ones(1, 2)).sum()
    with pytest.raises(TypeError, match=r"learning_rate=.*LOMO.*Leave it out"):
        accelerator.backward(loss, learning_rate=0.1)
    with pytest.raises(ConfigurationError, match="0 LOMO optimizers are prepared"):
        accelerator.lomo_backward(loss, 0.1)
    with pytest.raises(ValueError, match="needs the learning rate"):
        accelerator.lomo_backward(loss, None)
    accelerator.prepare(Fused(model.parameters()), Fused(model.parameters()))
    with pytest.raises(ConfigurationError, match="2 LOMO optimizers are prepared"):
        accelerator.lomo_backward(loss, 0.1)
