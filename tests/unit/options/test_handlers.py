import copy
import dataclasses
import pickle
from datetime import timedelta
from typing import Any

import pytest

from accelerate.compat import env
from accelerate.errors import ConfigurationError
from accelerate.options.codec import fill_from_environ
from accelerate.options.enums import DDPCommunicationHookType
from accelerate.options.field import option
from accelerate.options.handlers import (
    AutocastKwargs,
    DistributedDataParallelKwargs,
    GradScalerKwargs,
    InitProcessGroupKwargs,
    KwargsHandler,
)

HANDLERS = [AutocastKwargs, DistributedDataParallelKwargs, GradScalerKwargs, InitProcessGroupKwargs]


@dataclasses.dataclass
class FromEnvironment(KwargsHandler):
    size: int | None = option(None, env="T_HANDLER_SIZE", fallback=1)

    def __post_init__(self) -> None:
        fill_from_environ(self)


@pytest.mark.parametrize("handler", HANDLERS)
def test_a_default_handler_hands_nothing_over(handler: Any) -> None:
    assert handler().to_kwargs() == {}
    assert handler() == handler()


@pytest.mark.parametrize("handler", HANDLERS)
def test_handlers_are_mutable_values(handler: Any) -> None:
    first = handler()
    name = dataclasses.fields(handler)[0].name
    setattr(first, name, "changed")
    assert first != handler()
    assert first.to_kwargs() == {name: "changed"}
    assert pickle.loads(pickle.dumps(first)) == first == copy.copy(first)


def test_only_differences_are_handed_over() -> None:
    handler = DistributedDataParallelKwargs(0, False, 25, True)
    assert handler.to_kwargs() == {"broadcast_buffers": False, "find_unused_parameters": True}


def test_dictionaries_are_deep_copies() -> None:
    handler = DistributedDataParallelKwargs(comm_hook="power_sgd", comm_state_option={"rank": [1]})
    taken = handler.to_dict(ignore_keys=())
    taken["comm_state_option"]["rank"].append(2)
    assert handler.comm_state_option == {"rank": [1]}


def test_what_differs_from_the_environment_alone_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_HANDLER_SIZE", "8")
    assert FromEnvironment().to_kwargs() == {"size": 8}
    assert FromEnvironment(1).to_kwargs() == {}
    assert env.get("T_HANDLER_SIZE") == "8"


def test_attributes_beyond_the_fields_are_handed_over() -> None:
    handler = AutocastKwargs()
    handler.extra = 1  # type: ignore[attr-defined]
    assert handler.to_kwargs() == {"extra": 1}


def test_hook_fields_are_no_arguments_of_the_wrapper() -> None:
    handler = DistributedDataParallelKwargs(comm_hook=DDPCommunicationHookType.FP16, bucket_cap_mb=1)
    assert handler.to_kwargs() == {"bucket_cap_mb": 1}
    assert set(handler.to_dict()) == {
        "dim",
        "broadcast_buffers",
        "bucket_cap_mb",
        "find_unused_parameters",
        "check_reduction",
        "gradient_as_bucket_view",
        "static_graph",
    }


def test_hooks_by_name() -> None:
    handler = DistributedDataParallelKwargs(comm_hook="power_sgd", comm_wrapper="bf16")  # type: ignore[arg-type]
    assert handler.comm_hook is DDPCommunicationHookType.POWER_SGD
    assert handler.comm_wrapper is DDPCommunicationHookType.BF16


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("comm_hook", "junk", "no, fp16, bf16, power_sgd, batched_power_sgd"),
        ("comm_wrapper", "power_sgd", "no, fp16, bf16$"),
    ],
)
def test_unknown_hooks_are_refused(field: str, value: str, allowed: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{field}='{value}'\): use one of {allowed}"):
        DistributedDataParallelKwargs(**{field: value})  # type: ignore[arg-type]


def test_a_state_for_a_hook_without_one_is_warned_about() -> None:
    state = {"matrix_approximation_rank": 2}
    with pytest.warns(UserWarning, match="comm_hook='fp16'.*has no use for comm_state_option"):
        DistributedDataParallelKwargs(comm_hook="fp16", comm_state_option=state)  # type: ignore[arg-type]
    DistributedDataParallelKwargs(comm_hook="power_sgd", comm_state_option=state)  # type: ignore[arg-type]


def test_representation() -> None:
    assert repr(DistributedDataParallelKwargs()) == (
        "DistributedDataParallelKwargs(dim=0, broadcast_buffers=True, bucket_cap_mb=25, "
        "find_unused_parameters=False, check_reduction=False, gradient_as_bucket_view=False, "
        "static_graph=False, comm_hook=<DDPCommunicationHookType.NO: 'no'>, "
        "comm_wrapper=<DDPCommunicationHookType.NO: 'no'>, comm_state_option={})"
    )
    assert repr(InitProcessGroupKwargs()) == (
        "InitProcessGroupKwargs(backend='nccl', init_method=None, timeout=datetime.timedelta(seconds=600))"
    )
    assert repr(AutocastKwargs()) == "AutocastKwargs(enabled=True, cache_enabled=None)"
    assert repr(GradScalerKwargs()) == (
        "GradScalerKwargs(init_scale=65536.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, "
        "enabled=True)"
    )


@pytest.mark.parametrize(
    ("backend", "seconds", "kwargs"),
    [
        ("nccl", 600, {}),
        ("gloo", 1800, {"backend": "gloo", "timeout": timedelta(minutes=30)}),
        ("xccl", 1800, {"backend": "xccl", "timeout": timedelta(minutes=30)}),
        (None, 1800, {"backend": None, "timeout": timedelta(minutes=30)}),
    ],
)
def test_default_timeouts(backend: str | None, seconds: int, kwargs: dict[str, Any]) -> None:
    handler = InitProcessGroupKwargs(backend=backend)
    assert handler.timeout == timedelta(seconds=seconds)
    assert handler.to_kwargs() == kwargs


def test_a_chosen_timeout_stays() -> None:
    handler = InitProcessGroupKwargs(timeout=timedelta(weeks=52))
    assert handler.to_kwargs() == {"timeout": timedelta(weeks=52)}


@pytest.mark.parametrize("minutes", [10, 30])
def test_a_chosen_timeout_is_handed_over_also_where_it_is_a_default(minutes: int) -> None:
    timeout = timedelta(minutes=minutes)
    assert InitProcessGroupKwargs(timeout=timeout).to_kwargs() == {"timeout": timeout}


def test_no_more_than_the_fields_is_told() -> None:
    handler = InitProcessGroupKwargs(timeout=timedelta(minutes=1))
    assert list(handler.to_dict()) == ["backend", "init_method", "timeout"]
    assert handler == InitProcessGroupKwargs(timeout=timedelta(minutes=1))
