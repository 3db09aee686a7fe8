"""What the interface calls an error is one, of the type that callers catch, and says what to do instead."""

from collections.abc import Callable
from typing import Any

import pytest

from accelerate import Accelerator, PartialState, utils
from accelerate.errors import AccelerateError
from accelerate.state import AcceleratorState
from accelerate.utils.imports import deepspeed_required


def another_precision() -> None:
    Accelerator(cpu=True)
    Accelerator(cpu=True, mixed_precision="bf16")


def before_any_run() -> None:
    state = PartialState(cpu=True)
    PartialState._reset_state()
    state.on_main_process(print)


def after_a_reset() -> None:
    state = PartialState(cpu=True)
    PartialState._reset_state()
    _ = state.device


def unequal_parts() -> None:
    state = PartialState(cpu=True)
    state.num_processes = 2
    with state.split_between_processes({"a": [1, 2], "b": [1]}):
        raise AssertionError("the block runs")


def without_deepspeed() -> None:
    Accelerator(cpu=True)
    deepspeed_required(print)()


MISUSES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a training state before any Accelerator": (AcceleratorState, ValueError, "make one first"),
    "another precision": (another_precision, ValueError, "restart your runtime"),
    "an unknown precision": (
        lambda: Accelerator(cpu=True, mixed_precision="foo"),
        ValueError,
        "foo.*Choose between",
    ),
    "a decorator before any run": (before_any_run, ValueError, r"call `PartialState\(\)`"),
    "an attribute after a reset": (after_a_reset, AttributeError, r"_reset_state\(\)"),
    "an attribute that is unknown": (
        lambda: PartialState(cpu=True).devise,
        AttributeError,
        "'PartialState' object has no attribute 'devise'",
    ),
    "a plugin that is not in use": (
        lambda: Accelerator(cpu=True).state.fsdp_plugin,
        AttributeError,
        "no plugin that brings it",
    ),
    "parts of different lengths": (unequal_parts, ValueError, "length"),
    "text that is no truth value": (lambda: utils.str_to_bool("maybe"), ValueError, "maybe"),
    "an unknown comparison": (
        lambda: utils.compare_versions("torch", "~=", "2.0"),
        ValueError,
        "'~='.*use one of",
    ),
    "a device that drives two kinds": (
        lambda: utils.is_torch_xla_available(check_is_tpu=True, check_is_gpu=True),
        ValueError,
        "Ask twice",
    ),
    "a random state of no kind": (
        lambda: utils.synchronize_rng_states(["dice"]),
        ValueError,
        "dice",
    ),
    "a function for DeepSpeed without it": (without_deepspeed, ValueError, "`deepspeed_plugin=`"),
    "a bar with the former first argument": (lambda: utils.tqdm(True), ValueError, "main_process_only="),
    "a notebook's installer elsewhere": (utils.install_xla, RuntimeError, "pip install"),
}


@pytest.mark.parametrize(("misuse", "kind", "text"), MISUSES.values(), ids=list(MISUSES))
def test_a_misuse_is_an_error_that_names_the_way_out(
    misuse: Callable[[], Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text) as caught:
        misuse()
    assert kind is AttributeError or isinstance(caught.value, AccelerateError)
