"""Models compiled by `prepare`: what they compute, what they are called, what is saved of them."""

import gc

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from accelerate import Accelerator
from accelerate.utils import TorchDynamoPlugin, has_compiled_regions, is_compiled_module
from tests.support.plain_torch import TIMEOUT

# torch's own, while it compiles what needs a gradient.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not:UserWarning")

NAMES = [f"layers.{index}.{kind}" for index in range(3) for kind in ("weight", "bias")]
KINDS = {
    "whole": {"backend": "eager"},
    "whole, aot": {"backend": "aot_eager", "dynamic": False},
    "regions": {"backend": "eager", "use_regional_compilation": True},
}


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

    def forward(self, values):
        for layer in self.layers:
            values = layer(values).tanh()
        return values


def inputs(step, rank):
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(10 * step + rank))


def train(model, optimizer, backward, rank, steps=4):
    for step in range(steps):
        backward(model(inputs(step, rank)).square().mean())
        optimizer.step()
        optimizer.zero_grad()


def weights(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def accelerated(kind):
    accelerator = Accelerator(cpu=True, dynamo_plugin=TorchDynamoPlugin(**KINDS[kind]))
    bare = Stack()
    model, optimizer = accelerator.prepare(bare, torch.optim.SGD(bare.parameters(), lr=0.1))
    return accelerator, bare, model, optimizer


def by_hand():
    dist.init_process_group("gloo", timeout=TIMEOUT)
    model = DistributedDataParallel(Stack())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, optimizer, torch.Tensor.backward, dist.get_rank())
    return weights(model)


def with_accelerator(kind):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    accelerator, bare, model, optimizer = accelerated(kind)
    train(model, optimizer, accelerator.backward, accelerator.process_index)
    return weights(bare), torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_training_is_that_of_hand_written_ddp(rank_pool, kind, num_ranks):
    expected = rank_pool.run(by_hand, num_ranks=num_ranks)
    actual = rank_pool.run(with_accelerator, kind, num_ranks=num_ranks, timeout=60)
    for (trained, num_graphs), by_hand_trained in zip(actual, expected, strict=True):
        torch.testing.assert_close(trained, by_hand_trained, rtol=0, atol=0)
        assert num_graphs > 0


def facts(kind):
    accelerator, bare, model, _ = accelerated(kind)
    inside = model._orig_mod if is_compiled_module(model) else model
    kept = accelerator.unwrap_model(model)
    return (
        (is_compiled_module(model), type(inside).__name__, has_compiled_regions(model)),
        accelerator._models[0] is bare,
        accelerator.unwrap_model(model, keep_torch_compile=False) is bare,
        (is_compiled_module(kept), has_compiled_regions(kept), hasattr(kept, "module")),
        list(accelerator.get_state_dict(model)),
        accelerator.prepare(model) is model and len(accelerator._models),
    )


def test_a_whole_model_is_compiled_last(rank_pool):
    assert (
        rank_pool.run(facts, "whole")
        == [((True, "DistributedDataParallel", True), True, True, (True, True, False), NAMES, 1)] * 2
    )


def test_regions_are_compiled_inside_of_the_wrapper(rank_pool):
    assert (
        rank_pool.run(facts, "regions")
        == [((False, "DistributedDataParallel", True), True, True, (False, True, False), NAMES, 1)] * 2
    )


def local_gradients(kind):
    accelerator, bare, model, _ = accelerated(kind)
    rank = accelerator.process_index
    with accelerator.no_sync(model):
        accelerator.backward(model(inputs(0, rank)).sum())
    local = bare.layers[0].weight.grad.clone()
    with accelerator.no_sync(model):
        loss = model(inputs(1, rank)).sum()
    with accelerator.trigger_sync_in_backward(model):
        accelerator.backward(loss)
    return local, bare.layers[0].weight.grad


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_stay_local_in_no_sync_and_are_reduced_when_asked(rank_pool, kind):
    (local, reduced), (other_local, other_reduced) = rank_pool.run(local_gradients, kind, timeout=60)
    assert not torch.equal(local, other_local)
    assert torch.equal(reduced, other_reduced)


def save_and_load(kind, folder):
    accelerator, bare, model, optimizer = accelerated(kind)
    train(model, optimizer, accelerator.backward, accelerator.process_index)
    accelerator.save_state(f"{folder}/state")
    accelerator.save_model(model, f"{folder}/weights")
    train(model, optimizer, accelerator.backward, accelerator.process_index)
    expected = weights(bare)
    accelerator.load_state(f"{folder}/state")
    train(model, optimizer, accelerator.backward, accelerator.process_index)
    return torch.equal(weights(bare), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_has_the_names_of_the_model_and_loads_again(rank_pool, kind, tmp_path):
    assert rank_pool.run(save_and_load, kind, str(tmp_path), timeout=60) == [True, True]
    for folder in ("state", "weights"):
        assert sorted(load_file(tmp_path / folder / "model.safetensors")) == sorted(NAMES)


def holders_of_the_group(kind):
    accelerator, _, model, optimizer = accelerated(kind)
    train(model, optimizer, accelerator.backward, accelerator.process_index)
    replica = model._orig_mod if is_compiled_module(model) else model
    holders = gc.get_referrers(replica.process_group)
    return [holder is vars(replica) for holder in holders if isinstance(holder, dict) and "reducer" in holder]


@pytest.mark.parametrize("kind", KINDS)
def test_compiling_does_not_keep_the_process_group_alive(rank_pool, kind):
    """Or its threads would be there when the interpreter goes, and abort the process now and then."""
    assert rank_pool.run(holders_of_the_group, kind, timeout=60) == [[True], [True]]


def accumulated(kind):
    accelerator = Accelerator(
        cpu=True, gradient_accumulation_steps=2, dynamo_plugin=TorchDynamoPlugin(**KINDS[kind])
    )
    bare = Stack()
    model, optimizer = accelerator.prepare(bare, torch.optim.SGD(bare.parameters(), lr=0.1))
    for step in range(6):
        with accelerator.accumulate(model):
            accelerator.backward(model(inputs(step, accelerator.process_index)).square().mean())
            optimizer.step()
            optimizer.zero_grad()
    return weights(bare)


def accumulated_by_hand():
    dist.init_process_group("gloo", timeout=TIMEOUT)
    model = DistributedDataParallel(Stack())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(0, 6, 2):
        with model.no_sync():
            (model(inputs(step, dist.get_rank())).square().mean() / 2).backward()
        (model(inputs(step + 1, dist.get_rank())).square().mean() / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights(model)


@pytest.mark.parametrize("kind", KINDS)
def test_accumulation_is_that_of_hand_written_ddp(rank_pool, kind):
    expected = rank_pool.run(accumulated_by_hand)
    for trained, by_hand_trained in zip(rank_pool.run(accumulated, kind, timeout=60), expected, strict=True):
        torch.testing.assert_close(trained, by_hand_trained, rtol=0, atol=0)
