"""Each argument of DistributedDataParallel that the handler takes has its effect, without a warning."""

import inspect

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from accelerate import Accelerator, DistributedDataParallelKwargs


def prepared(model, **options):
    accelerator = Accelerator(cpu=True, kwargs_handlers=[DistributedDataParallelKwargs(**options)])
    return accelerator, accelerator.prepare(model)


class Branches(nn.Module):
    """Uses one of two layers, and counts how often it was called."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, values, index=0):
        self.calls += 1
        return self.layers[index](values)


def step(accelerator, model, index=0):
    values = torch.full((2, 4), accelerator.process_index + 1.0)
    accelerator.backward(model(values, index).sum())


def what_torch_is_given(options):
    """Return the arguments with which `prepare` calls DistributedDataParallel."""
    calls = []
    original = DistributedDataParallel.__init__

    def spy(self, *args, **kwargs):
        calls.append(inspect.signature(original).bind(self, *args, **kwargs).arguments)
        original(self, *args, **kwargs)

    DistributedDataParallel.__init__ = spy
    try:
        prepared(Branches(), **options)
    finally:
        DistributedDataParallel.__init__ = original
    (arguments,) = calls
    return {name: value for name, value in arguments.items() if name not in ("self", "module")}


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ({}, {}),
        ({"bucket_cap_mb": 25, "find_unused_parameters": False, "broadcast_buffers": True}, {}),
        ({"dim": 1}, {"dim": 1}),
        ({"broadcast_buffers": False}, {"broadcast_buffers": False}),
        ({"bucket_cap_mb": 5}, {"bucket_cap_mb": 5}),
        ({"find_unused_parameters": True}, {"find_unused_parameters": True}),
        ({"check_reduction": True}, {}),  # torch only warns of it
        ({"gradient_as_bucket_view": True}, {"gradient_as_bucket_view": True}),
        ({"static_graph": True}, {"static_graph": True}),
        ({"comm_hook": "fp16", "comm_state_option": {}}, {}),
    ],
    ids=str,
)
def test_only_what_was_set_is_passed_on(rank_pool, options, given):
    assert rank_pool.run(what_torch_is_given, options) == [{"device_ids": None, **given}] * 2


def unused_branch(find_unused_parameters):
    accelerator, model = prepared(Branches(), find_unused_parameters=find_unused_parameters)
    try:
        for index in (0, 1, 0):
            step(accelerator, model, index)
    except RuntimeError as error:
        return str(error)
    return [None if layer.weight.grad is None else layer.weight.grad[0, 0].item() for layer in layers(model)]


def layers(model):
    return model.module.layers


def test_find_unused_parameters(rank_pool):
    assert rank_pool.run(unused_branch, True) == [[6.0, 3.0]] * 2  # mean of 2 and 4, twice and once
    assert all("find_unused_parameters" in error for error in rank_pool.run(unused_branch, False))


class UsedTwice(nn.Module):
    """Recomputes a layer twice in one backward pass, and leaves another one out."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, values, index):
        return torch.utils.checkpoint.checkpoint(
            self.layers[0],
            torch.utils.checkpoint.checkpoint(self.layers[0], values, use_reentrant=True),
            use_reentrant=True,
        )


def reentrant(static_graph):
    accelerator, model = prepared(UsedTwice(), static_graph=static_graph)
    values = torch.full((2, 4), accelerator.process_index + 1.0, requires_grad=True)
    try:
        for _ in range(3):
            accelerator.backward(model(values, 0).sum())
    except RuntimeError as error:
        return str(error)
    return layers(model)[0].weight.grad.tolist()


def test_static_graph(rank_pool):
    """Without the promise, torch cannot tell that a parameter used twice is ready only the second time."""
    one, other = rank_pool.run(reentrant, True)
    assert one == other
    assert all("only once" in error or "twice" in error for error in rank_pool.run(reentrant, False))


def gradient_storages(gradient_as_bucket_view):
    accelerator, model = prepared(nn.Linear(4, 4), gradient_as_bucket_view=gradient_as_bucket_view)
    accelerator.backward(model(torch.ones(1, 4)).sum())
    return len({parameter.grad.untyped_storage().data_ptr() for parameter in model.parameters()})


def test_gradient_as_bucket_view(rank_pool):
    assert rank_pool.run(gradient_storages, True) == [1, 1]
    assert rank_pool.run(gradient_storages, False) == [2, 2]


def num_all_reduces(bucket_cap_mb):
    accelerator, model = prepared(
        nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)]), bucket_cap_mb=bucket_cap_mb
    )
    accelerator.backward(model(torch.ones(1, 64)).sum())  # torch makes its buckets in the first pass
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        accelerator.backward(model(torch.ones(1, 64)).sum())
    return sum(event.name == "c10d::allreduce_" for event in profile.events())


def test_bucket_cap_mb(rank_pool):
    assert rank_pool.run(num_all_reduces, 1) == [1, 1]
    assert rank_pool.run(num_all_reduces, 0.02) == [2, 2]  # of two layers each


def buffers(broadcast_buffers):
    handler = DistributedDataParallelKwargs(broadcast_buffers=broadcast_buffers)
    accelerator = Accelerator(cpu=True, kwargs_handlers=[handler])
    model = Branches()
    model.calls += 100 * accelerator.process_index
    model = accelerator.prepare(model)
    at_start = model.module.calls.item()
    with torch.no_grad():
        model(torch.ones(1, 4))
    return at_start, model.module.calls.item()


def test_broadcast_buffers(rank_pool):
    assert rank_pool.run(buffers, True) == [(0.0, 1.0), (0.0, 1.0)]
    assert rank_pool.run(buffers, False) == [(0.0, 1.0), (100.0, 101.0)]


def accepted(options):
    accelerator, model = prepared(Branches(), **options)
    step(accelerator, model)
    return type(model).__name__


@pytest.mark.parametrize("options", [{"check_reduction": True}, {"dim": 0}], ids=str)
def test_what_changes_nothing_on_cpu_is_accepted(rank_pool, options):
    options = {**options, "find_unused_parameters": True}
    assert rank_pool.run(accepted, options) == ["DistributedDataParallel"] * 2
