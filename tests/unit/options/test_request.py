import pytest

from accelerate.options.accumulation import GradientAccumulationPlugin
from accelerate.options.dynamo import TorchDynamoPlugin
from accelerate.options.enums import DynamoBackend
from accelerate.options.handlers import (
    AutocastKwargs,
    DistributedDataParallelKwargs,
    GradScalerKwargs,
    InitProcessGroupKwargs,
    KwargsHandler,
)
from accelerate.options.profile import ProfileKwargs
from accelerate.options.request import Request, accumulation_plugin, dynamo_plugin, sort_handlers

HANDLERS = {
    "autocast": AutocastKwargs(),
    "ddp": DistributedDataParallelKwargs(),
    "process_group": InitProcessGroupKwargs(),
    "profile": ProfileKwargs(),
    "scaler": GradScalerKwargs(),
}


def test_each_handler_fills_its_field():
    assert sort_handlers(HANDLERS.values()) == HANDLERS
    request = Request(**sort_handlers(HANDLERS.values()))
    assert {name: getattr(request, name) for name in HANDLERS} == HANDLERS
    assert sort_handlers(None) == sort_handlers([]) == {}


def test_a_subclass_of_a_handler_counts():
    class Mine(ProfileKwargs):
        pass

    mine = Mine()
    assert sort_handlers([mine]) == {"profile": mine}


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS)
def test_two_of_a_class_are_an_error(handler):
    with pytest.raises(ValueError, match=f"two {type(handler).__name__}"):
        sort_handlers([handler, handler])


@pytest.mark.parametrize("other", ["text", None, ProfileKwargs])
def test_what_is_no_handler_is_an_error(other):
    with pytest.raises(AssertionError, match="must hold KwargsHandler objects"):
        sort_handlers([other])


@pytest.mark.parametrize(
    ("plugin", "argument"),
    [
        (GradientAccumulationPlugin(num_steps=2), "gradient_accumulation_plugin"),
        (TorchDynamoPlugin(backend="eager"), "dynamo_plugin"),
    ],
)
def test_a_plugin_is_sent_to_its_argument(plugin, argument):
    with pytest.raises(ValueError, match=rf"pass it as Accelerator\({argument}=\.\.\.\)"):
        sort_handlers([plugin])


def test_a_handler_that_nobody_knows_is_an_error():
    class Other(KwargsHandler):
        pass

    with pytest.raises(ValueError, match="Other, which is not available in this version"):
        sort_handlers([Other()])


def test_dynamo_backend_alone():
    plugin = dynamo_plugin("aot_eager", None)
    assert plugin == TorchDynamoPlugin(backend=DynamoBackend.AOT_EAGER)
    assert dynamo_plugin(DynamoBackend.EAGER, None).backend is DynamoBackend.EAGER


def test_dynamo_plugin_alone():
    plugin = TorchDynamoPlugin(backend="eager", fullgraph=True)
    assert dynamo_plugin(None, plugin) is plugin


def test_dynamo_by_the_environment(monkeypatch):
    assert dynamo_plugin(None, None).backend is DynamoBackend.NO
    assert Request().dynamo.backend is DynamoBackend.NO
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "EAGER")
    monkeypatch.setenv("ACCELERATE_DYNAMO_USE_FULLGRAPH", "True")
    assert dynamo_plugin(None, None) == TorchDynamoPlugin(backend="eager", fullgraph=True)
    assert dynamo_plugin("inductor", None).backend is DynamoBackend.INDUCTOR
    assert Request().dynamo.backend is DynamoBackend.NO


def test_both_kinds_of_dynamo_are_an_error():
    with pytest.raises(ValueError, match="were both passed"):
        dynamo_plugin("eager", TorchDynamoPlugin(backend="eager"))
    with pytest.raises(ValueError, match="use one of NO, EAGER"):
        dynamo_plugin("fast", None)


@pytest.mark.parametrize("steps", [4, "4", 4.0])
def test_accumulation_steps_are_a_whole_number(steps):
    assert accumulation_plugin(steps, None, {}).num_steps == 4


@pytest.mark.parametrize("steps", [0, -2, 2.5, "2.5", "auto", None, float("inf")])
def test_other_accumulation_steps_are_an_error(steps):
    with pytest.raises(
        ValueError, match=r"gradient_accumulation_steps=.* must be a whole number, at least 1"
    ):
        accumulation_plugin(steps, None, {})
