"""Each misuse that the interface names raises its type, with a message that says what to do instead."""

import pickle

import pytest
import torch
from torch import nn

from accelerate import Accelerator
from accelerate.errors import AccelerateError
from accelerate.logging import get_logger
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import (
    DistributedDataParallelKwargs,
    GradientAccumulationPlugin,
    ProfileKwargs,
    TorchDynamoPlugin,
)


@pytest.fixture(autouse=True)
def fresh():
    AcceleratorState._reset_state(True)
    yield
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


CONSTRUCTION = [
    ({"mixed_precision": "foo"}, ValueError, r"Unknown mixed_precision mode: foo\. Choose between \['no'"),
    ({"mixed_precision": "fp8"}, ValueError, "'fp8'.*Pass one of them"),
    (
        {
            "gradient_accumulation_steps": 2,
            "gradient_accumulation_plugin": GradientAccumulationPlugin(num_steps=2),
        },
        ValueError,
        "pass one of them",
    ),
    (
        {"kwargs_handlers": [DistributedDataParallelKwargs()] * 2},
        ValueError,
        "pass one with all the settings",
    ),
    ({"kwargs_handlers": [{"find_unused_parameters": True}]}, AssertionError, r"such as Dist\w+Kwargs\(\)"),
    (
        {"dynamo_backend": "eager", "dynamo_plugin": TorchDynamoPlugin(backend="eager")},
        ValueError,
        "were both passed: pass one",
    ),
    ({"dynamo_backend": "foo"}, ValueError, "foo.*use one of NO, EAGER"),
    ({"gradient_accumulation_steps": 0}, ValueError, "at least 1"),
    ({"log_with": "foo"}, ValueError, "Leave it out"),
    ({"fsdp_plugin": object()}, ValueError, "pass a FullyShardedDataParallelPlugin"),
]


@pytest.mark.parametrize(("arguments", "kind", "way_out"), CONSTRUCTION)
def test_construction(arguments, kind, way_out):
    with pytest.raises(kind, match=way_out):
        Accelerator(cpu=True, **arguments)
    assert Accelerator(cpu=True).mixed_precision == "no"  # the failed one is not in the way


def test_another_precision_in_a_run():
    Accelerator(cpu=True)
    with pytest.raises(
        ValueError, match=r"AcceleratorState has already been initialized.*restart your runtime"
    ):
        Accelerator(cpu=True, mixed_precision="bf16")


def train_step(accelerator):
    model = accelerator.prepare(nn.Linear(2, 1))
    return model(torch.ones(1, 2)).sum()


CALLS = {
    "prepare nothing": (lambda a: a.prepare(), IndexError, "needs at least one object"),
    "a placement for too few": (
        lambda a: a.prepare(nn.Linear(1, 1), device_placement=[True, False]),
        ValueError,
        "2 elements, but 1 objects were passed: give True, False or None for each",
    ),
    "a learning rate for backward": (
        lambda a: a.backward(train_step(a), learning_rate=0.1),
        TypeError,
        "Leave it out",
    ),
    "LOMO without LOMO": (
        lambda a: a.lomo_backward(train_step(a), 0.1),
        ValueError,
        r"Pass one to `prepare`, or call `backward\(loss\)`",
    ),
    "an argument that torch does not know": (
        lambda a: a.backward(train_step(a), learning_rat=0.1),
        TypeError,
        "learning_rat",
    ),
    "an attribute of the user's optimizer": (
        lambda a: a.prepare(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)).fused_step,
        AttributeError,
        "'AcceleratedOptimizer' object has no attribute 'fused_step'",
    ),
    "accumulation steps": (
        lambda a: setattr(a, "gradient_accumulation_steps", 0),
        ValueError,
        "it must be at least 1",
    ),
    "an object without state": (
        lambda a: a.register_for_checkpointing(3),
        ValueError,
        "objects with `state_dict` and `load_state_dict` methods",
    ),
    "an activity": (
        lambda a: a.profile(ProfileKwargs(activities=["foo"])).__enter__(),
        ValueError,
        "no such activity; use cpu, cuda",
    ),
    "a schedule": (
        lambda a: a.profile(ProfileKwargs(schedule_option={"wait": 1})).__enter__(),
        ValueError,
        "give wait, warmup, active",
    ),
    "a log level": (lambda a: get_logger("misuse", "foo"), ValueError, "Use debug, info, warning"),
    "an axis without a mesh": (lambda a: a.tensor_parallel_rank, RuntimeError, "process_index"),
    "an axis of later": (lambda a: a.pipeline_parallel_rank, NotImplementedError, "process_index"),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    misuse, kind, way_out = CALLS[name]
    accelerator = Accelerator(cpu=True)
    with pytest.raises(kind, match=way_out):
        misuse(accelerator)


def test_logging_before_the_run():
    with pytest.raises(
        RuntimeError, match=r"either `PartialState\(\)` or `Accelerator\(\)` before"
    ) as failure:
        get_logger("misuse").warning("too early")
    assert isinstance(failure.value, AccelerateError)


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_a_prepared_model_can_be_pickled(precision):
    accelerator = Accelerator(cpu=True, mixed_precision=precision)
    model = accelerator.prepare(nn.Linear(2, 1))
    again = pickle.loads(pickle.dumps(model))
    torch.testing.assert_close(again(torch.ones(1, 2)), model(torch.ones(1, 2)))
