"""Ranks that run out of batches at different times, against torch's own Join written by hand."""

import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from accelerate import Accelerator
from accelerate.errors import ConfigurationError
from accelerate.utils import TorchDynamoPlugin
from tests.support.plain_torch import TIMEOUT

# torch's own, while it compiles what needs a gradient.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not:UserWarning")

RANKS = [2, 3]
BATCH_SIZE = 2


def network():
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 2))


def samples(size):
    return torch.randn(size, 3, generator=torch.Generator().manual_seed(8))


def gradients(model):
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def step(model, optimizer, backward, batch):
    backward(model(batch).square().mean())
    seen = gradients(model)
    optimizer.step()
    optimizer.zero_grad()
    return seen


def state(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def by_hand(size, epochs=2):
    dist.init_process_group("gloo", timeout=TIMEOUT)
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = samples(size).split(BATCH_SIZE)[rank::num_ranks]
    seen = []
    for _ in range(epochs):
        with Join([model]):
            seen += [step(model, optimizer, torch.Tensor.backward, batch) for batch in batches]
    return seen, state(model.module)


def with_accelerator(size, plugin=None, epochs=2):
    accelerator = Accelerator(cpu=True, dynamo_plugin=plugin)
    bare = network()
    loader = DataLoader(TensorDataset(samples(size)), batch_size=BATCH_SIZE)
    model, optimizer, loader = accelerator.prepare(bare, torch.optim.SGD(bare.parameters(), lr=0.1), loader)
    before = len(loader)
    seen = []
    for _ in range(epochs):
        with accelerator.join_uneven_inputs([model], even_batches=False):
            seen += [step(model, optimizer, accelerator.backward, batch) for (batch,) in loader]
    assert len(loader) == before
    return seen, state(bare)


@pytest.mark.parametrize("num_ranks", RANKS)
@pytest.mark.parametrize("size", [10, 6, 2, 14], ids=lambda size: f"{size} samples")
def test_gradients_and_weights_are_those_of_torchs_join(rank_pool, size, num_ranks):
    expected = rank_pool.run(by_hand, size, num_ranks=num_ranks)
    actual = rank_pool.run(with_accelerator, size, num_ranks=num_ranks)
    for (seen, trained), (by_hand_seen, by_hand_trained) in zip(actual, expected, strict=True):
        torch.testing.assert_close(seen, by_hand_seen, rtol=0, atol=0)
        torch.testing.assert_close(trained, by_hand_trained, rtol=0, atol=0)
        torch.testing.assert_close(trained, actual[0][1], rtol=0, atol=0)
    counts = [len(seen) for seen, _ in actual]
    assert sum(counts) == 2 * -(-size // BATCH_SIZE)  # nothing was filled up


@pytest.mark.parametrize("use_regional_compilation", [False, True])
def test_compiled_models_join_too(rank_pool, use_regional_compilation):
    plugin = TorchDynamoPlugin(backend="eager", use_regional_compilation=use_regional_compilation)
    expected = rank_pool.run(by_hand, 10)
    actual = rank_pool.run(with_accelerator, 10, plugin, timeout=60)
    for (seen, _), (by_hand_seen, _) in zip(actual, expected, strict=True):
        torch.testing.assert_close(seen, by_hand_seen, rtol=0, atol=0)


def prepared(**options):
    accelerator = Accelerator(cpu=True, **options)
    model = accelerator.prepare(network())
    return accelerator, model


def num_all_reduces(model):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        model(torch.ones(2, 3))
    return sum(event.name == "c10d::allreduce_" for event in profile.events())


def traces_of_the_block():
    accelerator, model = prepared()
    filters = warnings.filters[:]
    with accelerator.join_uneven_inputs([model]):
        accelerator.backward(model(torch.ones(2, 3)).sum())
        inside = num_all_reduces(model)
    return inside > 0, num_all_reduces(model), warnings.filters == filters


def test_nothing_of_the_block_remains(rank_pool):
    assert rank_pool.run(traces_of_the_block) == [(True, 0, True)] * 2


def failing():
    accelerator, model = prepared()
    loader = accelerator.prepare(DataLoader(range(5)))
    try:
        with accelerator.join_uneven_inputs([model], even_batches=False):
            raise KeyError("on every rank")
    except KeyError:
        return loader.batch_sampler.even_batches, model._join_config.enable
    return None


def test_an_error_in_the_block_comes_out_and_all_is_as_before(rank_pool):
    assert rank_pool.run(failing) == [(True, False)] * 2


def lengths(configured, asked):
    accelerator, model = prepared()
    accelerator.even_batches = configured
    loader = accelerator.prepare(DataLoader(range(5)))
    with accelerator.join_uneven_inputs([model], even_batches=asked):
        inside = len(loader)
    return inside, len(loader)


@pytest.mark.parametrize(
    ("configured", "asked", "expected"),
    [
        (True, None, [(3, 3), (3, 3)]),
        (True, False, [(3, 3), (2, 3)]),
        (False, True, [(3, 3), (3, 2)]),
        (False, None, [(3, 3), (2, 2)]),
    ],
)
def test_even_batches_is_changed_inside_only(rank_pool, configured, asked, expected):
    assert rank_pool.run(lengths, configured, asked) == expected


def error_of(make):
    accelerator, model = prepared()
    try:
        with accelerator.join_uneven_inputs(make(model)):
            pass
    except ConfigurationError as error:
        return str(error)
    return None


def none(model):
    return []


def not_prepared(model):
    return [model, network()]


def optimizer_alone(model):
    return [torch.optim.SGD(model.parameters(), lr=0.1)]


def no_model(model):
    return [model, "text"]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (none, "pass at least one prepared model"),
        (optimizer_alone, "pass at least one prepared model"),
        (not_prepared, "[..., Sequential, ...]): pass what `prepare` has returned"),
        (no_model, "[..., str, ...]): pass what `prepare` has returned"),
    ],
)
def test_what_cannot_be_joined_is_named(rank_pool, make, text):
    assert all(text in error for error in rank_pool.run(error_of, make))


def frozen_beside():
    accelerator, model = prepared()
    teacher = accelerator.prepare(network().requires_grad_(False))
    optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=0.1))
    with accelerator.join_uneven_inputs([model, teacher, optimizer]):
        for _ in range(1 + accelerator.process_index):
            step(model, optimizer, accelerator.backward, torch.ones(2, 3))
    return state(model.module)


def test_what_does_not_communicate_need_not_be_left_out(rank_pool):
    one, other = rank_pool.run(frozen_beside)
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def zero_redundancy(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, when this is loaded
        from torch.distributed.optim import ZeroRedundancyOptimizer
    return ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.1)


def sharded_optimizer():
    accelerator, model = prepared()
    optimizer = accelerator.prepare(zero_redundancy(model))
    with accelerator.join_uneven_inputs([model, optimizer]):
        for _ in range(1 + accelerator.process_index):
            step(model, optimizer, accelerator.backward, torch.ones(2, 3))
    return state(model.module)


def sharded_optimizer_by_hand():
    dist.init_process_group("gloo", timeout=TIMEOUT)
    model = DistributedDataParallel(network())
    optimizer = zero_redundancy(model)
    with Join([model, optimizer]):
        for _ in range(1 + dist.get_rank()):
            step(model, optimizer, torch.Tensor.backward, torch.ones(2, 3))
    return state(model.module)


def test_an_optimizer_that_communicates_joins(rank_pool):
    expected = rank_pool.run(sharded_optimizer_by_hand)
    torch.testing.assert_close(rank_pool.run(sharded_optimizer), expected, rtol=0, atol=0)


def accumulating():
    accelerator, model = prepared(gradient_accumulation_steps=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with accelerator.join_uneven_inputs([model]):
            pass
    return [str(warning.message) for warning in caught]


def test_accumulation_is_warned_about_once(rank_pool):
    (warning,), none = rank_pool.run(accumulating)
    assert "gradient_accumulation_steps=2" in warning
    assert none == []


def whole_windows():
    """Accumulate over two batches, 4 on rank 0 and 2 on rank 1."""
    accelerator, model = prepared(gradient_accumulation_steps=2)
    bare = model.module
    optimizer = accelerator.prepare(torch.optim.SGD(bare.parameters(), lr=0.1))
    batches = list(samples(12).split(2))
    mine = batches[:4] if accelerator.is_main_process else batches[4:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with accelerator.join_uneven_inputs([model]):
            for batch in mine:
                with accelerator.accumulate(model):
                    step(model, optimizer, accelerator.backward, batch)
    return state(bare)


def test_whole_windows_of_accumulation_join(rank_pool):
    one, other = rank_pool.run(whole_windows)
    torch.testing.assert_close(one, other, rtol=0, atol=0)
