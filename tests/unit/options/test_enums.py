import copy
import enum
import pickle
from typing import Any

import pytest

from accelerate.options import enums
from accelerate.options.enums import BaseEnum, DistributedType, DynamoBackend, EnumWithContains, LoggerType

PRINTS_VALUE = ["DDPCommunicationHookType", "DynamoBackend", "LoggerType", "PrecisionType", "RNGType"]
IS_TEXT = [
    "ComputeEnvironment",
    "DistributedType",
    "DynamoBackend",
    "FP8BackendType",
    "PrecisionType",
    "SageMakerDistributedType",
]
VALUES = {
    "ComputeEnvironment": "LOCAL_MACHINE AMAZON_SAGEMAKER",
    "CustomDtype": "fp8 int4 int2",
    "DDPCommunicationHookType": "no fp16 bf16 power_sgd batched_power_sgd",
    "DistributedType": "NO MULTI_CPU MULTI_GPU MULTI_NPU MULTI_MLU MULTI_SDAA MULTI_MUSA MULTI_XPU DEEPSPEED "
    "FSDP XLA MEGATRON_LM MULTI_HPU MULTI_NEURON",
    "DynamoBackend": "NO EAGER AOT_EAGER INDUCTOR AOT_TS_NVFUSER NVPRIMS_NVFUSER CUDAGRAPHS OFI FX2TRT "
    "ONNXRT TENSORRT AOT_TORCHXLA_TRACE_ONCE TORCHXLA_TRACE_ONCE TVM HPU_BACKEND NEURON",
    "FP8BackendType": "NO TE MSAMP AO",
    "LoggerType": "all aim tensorboard wandb trackio comet_ml mlflow clearml dvclive swanlab",
    "PrecisionType": "no fp8 fp16 bf16",
    "RNGType": "torch cuda mlu sdaa musa npu xla xpu hpu neuron generator",
    "SageMakerDistributedType": "NO DATA_PARALLEL MODEL_PARALLEL",
}
ALL = [pytest.param(getattr(enums, name), id=name) for name in VALUES]


def test_every_enumeration_is_listed_here() -> None:
    assert set(enums.__all__) == {*VALUES, "BaseEnum", "EnumWithContains"}


@pytest.mark.parametrize("kind", ALL)
def test_values_in_order(kind: type[enum.Enum]) -> None:
    assert [member.value for member in kind] == VALUES[kind.__name__].split()


@pytest.mark.parametrize("kind", ALL)
def test_names_are_the_values_in_upper_case_but_for_comet(kind: type[enum.Enum]) -> None:
    assert all(m.name in (m.value.upper(), m.value.upper().replace("_", "")) for m in kind)


@pytest.mark.parametrize("kind", ALL)
def test_text(kind: Any) -> None:
    member = next(iter(kind))
    printed = member.value if kind.__name__ in PRINTS_VALUE else f"{kind.__name__}.{member.name}"
    assert str(member) == printed
    assert repr(member) == f"<{kind.__name__}.{member.name}: {member.value!r}>"


@pytest.mark.parametrize("kind", ALL)
def test_which_members_are_text(kind: Any) -> None:
    member = next(iter(kind))
    assert (member == member.value) is (kind.__name__ in IS_TEXT)
    assert isinstance(member, str) is (kind.__name__ in IS_TEXT)


@pytest.mark.parametrize("kind", [p for p in ALL if p.id in PRINTS_VALUE])
def test_base_enums_list_their_values_and_contain_them(kind: Any) -> None:
    assert kind.list() == VALUES[kind.__name__].split()
    assert all(type(text) is str for text in kind.list())
    assert f"{next(iter(kind))}" == kind.list()[0]
    assert all(value in kind for value in kind.list())
    assert next(iter(kind)) in kind
    for stranger in ("junk", None, 3, ["no"]):
        assert stranger not in kind


@pytest.mark.parametrize("kind", ALL)
def test_unknown_values_are_refused(kind: Any) -> None:
    with pytest.raises(ValueError, match="'junk' is not a valid"):
        kind("junk")


@pytest.mark.parametrize("kind", ALL)
def test_members_survive_pickle_and_copy(kind: Any) -> None:
    for member in kind:
        assert pickle.loads(pickle.dumps(member)) is member
        assert copy.deepcopy(member) is member


def test_users_may_derive_their_own() -> None:
    class Mine(BaseEnum):
        ONE = "one"

    assert type(Mine) is EnumWithContains
    assert "one" in Mine
    assert Mine.list() == ["one"]
    assert BaseEnum.list() == []


def test_members_hash_as_their_text() -> None:
    assert {"NO": 1}[DistributedType.NO] == 1
    assert {"INDUCTOR": 1}[DynamoBackend.INDUCTOR] == 1
    assert {"all": 1}.get(LoggerType.ALL) is None  # type: ignore[call-overload]
