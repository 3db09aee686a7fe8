from collections.abc import Iterator

import pytest

from accelerate.compat import env
from accelerate.errors import ConfigurationError, EnvironmentVariableError
from accelerate.options.dynamo import TorchDynamoPlugin
from accelerate.options.enums import DynamoBackend

VARIABLES = {
    "ACCELERATE_DYNAMO_BACKEND": "inductor",
    "ACCELERATE_DYNAMO_MODE": "reduce-overhead",
    "ACCELERATE_DYNAMO_USE_FULLGRAPH": "1",
    "ACCELERATE_DYNAMO_USE_DYNAMIC": "no",
    "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION": "true",
}


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    with env.clear_environment():
        yield


def test_defaults() -> None:
    assert repr(TorchDynamoPlugin()) == (
        "TorchDynamoPlugin(backend=<DynamoBackend.NO: 'NO'>, mode='default', fullgraph=False, dynamic=None, "
        "options=None, disable=False, use_regional_compilation=False)"
    )
    assert TorchDynamoPlugin().to_kwargs() == {}
    assert TorchDynamoPlugin().to_dict()["backend"] == "no"


def test_the_environment_fills_what_was_not_passed() -> None:
    env.put(VARIABLES)
    plugin = TorchDynamoPlugin()
    assert plugin.backend is DynamoBackend.INDUCTOR
    assert plugin.use_regional_compilation is True
    assert plugin.to_kwargs() == {
        "backend": "inductor",
        "mode": "reduce-overhead",
        "fullgraph": True,
        "dynamic": False,
    }


def test_arguments_win_over_the_environment() -> None:
    env.put(VARIABLES)
    plugin = TorchDynamoPlugin(backend="eager", dynamic=True, fullgraph=False)  # type: ignore[arg-type]
    assert (plugin.backend, plugin.mode) == (DynamoBackend.EAGER, "reduce-overhead")
    assert (plugin.dynamic, plugin.fullgraph) == (True, False)


@pytest.mark.parametrize("backend", ["inductor", "INDUCTOR", DynamoBackend.INDUCTOR])
def test_backends_by_name_and_by_member(backend: DynamoBackend) -> None:
    assert TorchDynamoPlugin(backend).backend is DynamoBackend.INDUCTOR
    assert TorchDynamoPlugin(backend, "max-autotune", True).to_kwargs() == {
        "backend": "inductor",
        "mode": "max-autotune",
        "fullgraph": True,
    }


def test_regional_compilation_is_no_argument_of_compile() -> None:
    assert TorchDynamoPlugin(use_regional_compilation=True).to_kwargs() == {}
    assert TorchDynamoPlugin(use_regional_compilation=True).to_dict()["use_regional_compilation"] is True


def test_unknown_backends_are_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"TorchDynamoPlugin\(backend='junk'\): use one of NO, EAGER"
    ):
        TorchDynamoPlugin("junk")  # type: ignore[arg-type]
    env.put({"ACCELERATE_DYNAMO_BACKEND": "junk"})
    with pytest.raises(
        EnvironmentVariableError, match=r"ACCELERATE_DYNAMO_BACKEND='junk'.*use one of NO, EAGER"
    ):
        TorchDynamoPlugin()


def test_flags_that_cannot_be_read_are_refused() -> None:
    env.put({"ACCELERATE_DYNAMO_USE_FULLGRAPH": "maybe"})
    with pytest.raises(EnvironmentVariableError, match="ACCELERATE_DYNAMO_USE_FULLGRAPH='maybe'"):
        TorchDynamoPlugin()
    assert TorchDynamoPlugin(fullgraph=True).fullgraph is True
