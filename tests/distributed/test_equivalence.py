"""The Accelerator trains what plain PyTorch trains: tests against runs that do not import this package."""

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, GradScalerKwargs
from tests.support import plain_torch
from tests.support.plain_torch import Outcome, Recipe

GRID = [
    Recipe(num_ranks=num_ranks, num_accumulation=num_accumulation, optimizer=optimizer)
    for num_ranks, num_accumulation, optimizer in itertools.product((1, 2, 3), (1, 3), ("sgd", "adamw"))
]
VARIANTS = [
    Recipe(num_ranks=1, num_accumulation=3, shuffle=True),
    Recipe(num_ranks=2, num_accumulation=3, shuffle=True),
    Recipe(num_ranks=3, shuffle=True, optimizer="adamw"),
    Recipe(num_ranks=1, num_accumulation=3, scheduled=True),
    Recipe(num_ranks=3, num_accumulation=3, scheduled=True),
    Recipe(num_ranks=2, num_accumulation=3, drop_last=True),
    Recipe(num_ranks=2, num_examples=48),  # nothing to fill up
    Recipe(num_ranks=3, num_examples=5, num_steps=6),  # less than a global batch: filled up twice over
    Recipe(num_ranks=2, bucket_cap_mb=0.001),  # several buckets
]
# The scale grows after every second good step, until gradients overflow and a step is skipped; and again.
OVERFLOWING = {"precision": "fp16", "init_scale": 2.0**17, "growth_interval": 2}
HALF_PRECISION = [
    Recipe(num_ranks=num_ranks, num_accumulation=num_accumulation, **options)
    for num_ranks, num_accumulation, options in itertools.product(
        (1, 2, 3), (1, 3), ({"precision": "bf16"}, OVERFLOWING)
    )
]
HALF_PRECISION += [
    Recipe(num_ranks=2, optimizer="adamw", precision="bf16", max_norm=0.1, scheduled=True),
    Recipe(num_ranks=2, optimizer="adamw", **OVERFLOWING, max_norm=0.1, scheduled=True),
    Recipe(num_ranks=3, num_accumulation=3, **OVERFLOWING, max_norm=0.1, bucket_cap_mb=0.001),
    Recipe(num_ranks=2, precision="fp16"),  # torch's defaults
]
CLIPPED = [
    Recipe(num_ranks=num_ranks, num_accumulation=3, max_norm=0.1, scheduled=True) for num_ranks in (1, 2)
]


def name(recipe: Recipe) -> str:
    """Return the fields of `recipe` that are not the default, as the name of a test case."""
    return ",".join(f"{key}={value}" for key, value in vars(recipe).items() if value != getattr(Recipe, key))


def train_with_accelerator(recipe: Recipe) -> Outcome:
    """Train `recipe` with the Accelerator; every rank calls it."""
    accelerator = Accelerator(
        cpu=True,
        gradient_accumulation_steps=recipe.num_accumulation,
        mixed_precision=recipe.precision,
        kwargs_handlers=[
            DistributedDataParallelKwargs(bucket_cap_mb=recipe.bucket_cap_mb),
            GradScalerKwargs(init_scale=recipe.init_scale, growth_interval=recipe.growth_interval),
        ],
    )
    rank = accelerator.process_index
    generator = plain_torch.make_sample_generator(recipe, rank) if recipe.shuffle else None
    loader = DataLoader(
        TensorDataset(*plain_torch.make_data(recipe)),
        recipe.batch_size,
        shuffle=recipe.shuffle,
        drop_last=recipe.drop_last,
        generator=generator,
    )
    model = plain_torch.make_model(recipe, rank)
    optimizer = plain_torch.make_optimizer(recipe, model)
    scheduler = plain_torch.make_scheduler(optimizer)
    loader, model, optimizer, scheduler = accelerator.prepare(loader, model, optimizer, scheduler)

    losses, skipped = [], []
    while len(skipped) < recipe.num_steps:
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(inputs), targets)
                accelerator.backward(loss)
                if accelerator.sync_gradients and recipe.max_norm is not None:
                    accelerator.clip_grad_norm_(model.parameters(), recipe.max_norm)
                optimizer.step()
                if recipe.scheduled:
                    scheduler.step()
                optimizer.zero_grad()
            losses.append(loss.detach())
            skipped += [optimizer.step_was_skipped] * accelerator.sync_gradients
            if len(skipped) == recipe.num_steps:
                break
    bare = accelerator.unwrap_model(model)
    weights = {key: weight.detach() for key, weight in bare.named_parameters()}
    scaler = {} if accelerator.scaler is None else accelerator.scaler.state_dict()
    return Outcome(weights, losses, skipped, scaler)


def count_all_reduces(train: Callable[[Recipe], Outcome], recipe: Recipe) -> int:
    """Train `recipe` and return how many all-reduces this rank took part in, whoever asked for them."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        train(recipe)
    return sum(event.name == "c10d::allreduce_" for event in profile.events())


@pytest.mark.parametrize("recipe", GRID + VARIANTS + CLIPPED, ids=name)
def test_weights_are_those_of_one_process_over_the_same_global_batches(rank_pool, recipe):
    expected = plain_torch.train_one_process(recipe)
    for outcome in rank_pool.run(train_with_accelerator, recipe, num_ranks=recipe.num_ranks):
        assert len(outcome.losses) == len(expected.losses)
        torch.testing.assert_close(outcome.weights, expected.weights, rtol=0, atol=1e-6)


@pytest.mark.parametrize("recipe", GRID + VARIANTS + CLIPPED + HALF_PRECISION, ids=name)
def test_weights_and_losses_are_bit_for_bit_those_of_hand_written_ddp(rank_pool, recipe):
    expected = rank_pool.run(plain_torch.train_ddp, recipe, num_ranks=recipe.num_ranks)
    outcomes = rank_pool.run(train_with_accelerator, recipe, num_ranks=recipe.num_ranks)
    for outcome, by_hand in zip(outcomes, expected, strict=True):
        torch.testing.assert_close(outcome.losses, by_hand.losses, rtol=0, atol=0)
        torch.testing.assert_close(outcome.weights, by_hand.weights, rtol=0, atol=0)
        assert outcome.skipped == by_hand.skipped
        assert outcome.scaler == by_hand.scaler
        assert any(outcome.skipped) == (recipe.growth_interval == 2)  # those that are meant to overflow do
        assert not all(outcome.skipped)


@pytest.mark.parametrize("num_accumulation", [1, 3])
def test_gradients_are_reduced_once_a_step(rank_pool, num_accumulation):
    recipe = Recipe(num_ranks=2, num_accumulation=num_accumulation)
    counts = rank_pool.run(count_all_reduces, train_with_accelerator, recipe, num_ranks=2)
    assert counts == [recipe.num_steps] * 2  # the model is small enough for one bucket


def test_each_bucket_is_reduced_as_often_as_by_hand(rank_pool):
    recipe = Recipe(num_ranks=2, num_accumulation=3, bucket_cap_mb=0.001)
    by_hand = rank_pool.run(count_all_reduces, plain_torch.train_ddp, recipe, num_ranks=2)
    counts = rank_pool.run(count_all_reduces, train_with_accelerator, recipe, num_ranks=2)
    assert counts == by_hand
    assert counts[0] > recipe.num_steps


def test_the_measure_itself_tells_runs_apart():
    """The tolerance is far below what one wrong batch, window or step would do to the weights."""
    recipe = Recipe(num_ranks=3, num_accumulation=3)
    weights = plain_torch.train_one_process(recipe).weights
    changes = ({"num_ranks": 2}, {"num_accumulation": 2}, {"num_steps": 19}, {"num_examples": 54})
    for change in (*changes, {"max_norm": 0.1}, {"precision": "bf16"}, OVERFLOWING):
        other = plain_torch.train_one_process(Recipe(**(vars(recipe) | change))).weights
        assert max((weights[key] - other[key]).abs().max() for key in weights) > 1e-4
