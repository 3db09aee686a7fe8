"""What every strategy must do, as functions that run on each rank. Called by test_strategy."""

import dataclasses

import pytest
import torch
import torch.distributed as dist
from torch import nn

from accelerate.options.request import Request
from accelerate.precision.base import Precision, StepOutcome
from accelerate.runtime.current import current
from accelerate.strategies.base import Objects, Owned, Strategy, Traits
from accelerate.strategies.select import select


def make() -> Strategy:
    current.start(cpu=True)
    strategy = select(current, Precision(), Request())
    current.strategy = strategy
    return strategy


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def batch() -> torch.Tensor:
    """(global batch of 12, 3); rank r of n takes rows r::n."""
    return torch.randn(12, 3, generator=torch.Generator().manual_seed(7))


def mine(rows: torch.Tensor) -> torch.Tensor:
    return rows[current.process_index :: current.num_processes]


def everyones(value: torch.Tensor) -> list[torch.Tensor]:
    if current.num_processes == 1:
        return [value]
    values = [torch.empty_like(value) for _ in range(current.num_processes)]
    dist.all_gather(values, value.contiguous())
    return values


def flat_gradient(model: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def traits_are_frozen_facts():
    strategy = make()
    assert isinstance(strategy.traits, Traits)
    with pytest.raises(dataclasses.FrozenInstanceError):
        strategy.traits.single_model = True


def prepare_keeps_order_and_starts_all_replicas_equal():
    strategy = make()
    first, second = network(current.process_index), network(10 + current.process_index)
    optimizer = torch.optim.SGD(first.parameters(), lr=0.1)
    objects = Objects(models=[first, second], placed=[True, True], optimizers=[optimizer])
    strategy.validate(objects)
    ready = strategy.prepare(objects)
    assert [strategy.unwrap(model) for model in ready.models] == [first, second]
    assert ready.optimizers == [optimizer]
    for seed, model in zip((0, 10), ready.models, strict=True):
        expected = network(seed).state_dict()
        assert all(torch.equal(value, expected[name]) for name, value in strategy.state_dict(model).items())


def a_step_equals_one_process_on_the_global_batch():
    strategy = make()
    bare = network()
    optimizer = torch.optim.SGD(bare.parameters(), lr=0.5, momentum=0.9)
    model = strategy.prepare_model(bare)
    reference = network()
    reference_optimizer = torch.optim.SGD(reference.parameters(), lr=0.5, momentum=0.9)
    for _ in range(3):
        strategy.backward(model(mine(batch())).square().mean(), sync=True)
        assert isinstance(strategy.step(optimizer), StepOutcome)
        strategy.zero_grad(optimizer, True)
        assert all(parameter.grad is None for parameter in bare.parameters())
        reference(batch()).square().mean().backward()
        reference_optimizer.step()
        reference_optimizer.zero_grad()
    for value, expected in zip(bare.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(value, expected, rtol=0, atol=1e-6)


def no_sync_leaves_gradients_local_and_the_next_step_adds_them():
    strategy = make()
    model = strategy.prepare_model(network())
    with strategy.no_sync(model):
        strategy.backward(model(mine(batch())).sum(), sync=False)
    local = everyones(flat_gradient(model))
    assert current.num_processes == 1 or not torch.equal(local[0], local[1])
    strategy.backward(model(mine(batch())).sum(), sync=True)
    for gradient in everyones(flat_gradient(model)):
        torch.testing.assert_close(gradient, 2 * torch.stack(local).mean(0), rtol=1e-5, atol=1e-6)


def local_gradients_can_be_scaled_before_they_are_added_up():
    strategy = make()
    model, reference = strategy.prepare_model(network()), network()
    weights = [1 / (1 + rank) for rank in range(current.num_processes)]  # alike on no two ranks
    with strategy.no_sync(model):
        strategy.backward(weights[current.process_index] * model(mine(batch())).sum(), sync=False)
    strategy.scale_gradients([model, model], torch.tensor(2 / weights[current.process_index]))
    strategy.backward(2 * model(mine(batch())).square().sum(), sync=True)
    (2 * (reference(batch()).sum() + reference(batch()).square().sum()) / current.num_processes).backward()
    torch.testing.assert_close(flat_gradient(strategy.unwrap(model)), flat_gradient(reference))


def trigger_sync_reduces_after_a_local_forward():
    strategy = make()
    model = strategy.prepare_model(network())
    with strategy.no_sync(model):
        loss = model(mine(batch())).sum()
    with strategy.trigger_sync(model):
        strategy.backward(loss)
    gradients = everyones(flat_gradient(model))
    assert all(torch.equal(gradient, gradients[0]) for gradient in gradients)


def clipping_returns_the_old_norm_and_bounds_the_new_one():
    strategy = make()
    model = strategy.prepare_model(network())
    strategy.backward(model(mine(batch())).sum())
    before = flat_gradient(model)
    norm = strategy.clip_grad_norm(model.parameters(), 0.1)
    torch.testing.assert_close(norm, before.norm())
    assert flat_gradient(model).norm() <= 0.1 + 1e-6
    strategy.clip_grad_value(model.parameters(), 0.01)
    assert flat_gradient(model).abs().max() <= 0.01


def ranks_may_end_at_different_times_where_the_traits_say_so():
    strategy = make()
    bare = network(current.process_index)
    optimizer = torch.optim.SGD(bare.parameters(), lr=0.5)
    model = strategy.prepare_model(bare)
    steps = 1 + current.process_index if strategy.traits.supports_join else 1
    with strategy.join([model]):
        for _ in range(steps):
            strategy.backward(model(mine(batch())).square().mean())
            strategy.step(optimizer)
            strategy.zero_grad(optimizer)
    for values in map(everyones, strategy.state_dict(model).values()):
        assert all(torch.equal(value, values[0]) for value in values)
    # Out of the block everything is as it was: all ranks train together.
    strategy.backward(model(mine(batch())).sum())
    gradients = everyones(flat_gradient(model))
    assert all(torch.equal(gradient, gradients[0]) for gradient in gradients)


def an_error_inside_a_join_comes_out():
    strategy = make()
    model = strategy.prepare_model(network())
    with pytest.raises(KeyError), strategy.join([model]):
        raise KeyError("on every rank")


def a_closure_gives_its_loss_back():
    strategy = make()
    model = strategy.prepare_model(network())
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(mine(batch())).square().mean()
        strategy.backward(loss)
        return loss

    outcome = strategy.step(optimizer, closure)
    assert outcome.loss.item() > 0
    assert outcome.skipped is False


def models_that_are_not_trained_stay_bare():
    strategy = make()
    frozen = network().requires_grad_(False)
    assert strategy.prepare_model(frozen) is frozen
    model = network()
    assert strategy.prepare_model(model, evaluation=True) is model


def what_it_does_not_write_it_does_not_claim(folder: str):
    strategy = make()
    model = strategy.prepare_model(network())
    assert isinstance(strategy.save([model], [], folder), Owned)
    assert isinstance(strategy.load([model], [], folder), Owned)
    assert set(strategy.state_dict(model)) == set(network().state_dict())


CHECKS = [
    traits_are_frozen_facts,
    prepare_keeps_order_and_starts_all_replicas_equal,
    a_step_equals_one_process_on_the_global_batch,
    no_sync_leaves_gradients_local_and_the_next_step_adds_them,
    local_gradients_can_be_scaled_before_they_are_added_up,
    trigger_sync_reduces_after_a_local_forward,
    clipping_returns_the_old_norm_and_bounds_the_new_one,
    ranks_may_end_at_different_times_where_the_traits_say_so,
    an_error_inside_a_join_comes_out,
    a_closure_gives_its_loss_back,
    models_that_are_not_trained_stay_bare,
]
