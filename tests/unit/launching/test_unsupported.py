import pytest

from accelerate.launching.machine import Machine
from accelerate.launching.plan import resolve
from accelerate.launching.unsupported import find_unsupported

MACHINE = Machine(installed_gpus=4, gpus=4, evidence="made up", cores=4)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ({"use_fsdp": True, "fsdp_version": "1"}, "has version 2 only"),
        ({"use_deepspeed": True}, "has no DeepSpeed yet"),
        ({"use_megatron_lm": True}, "has no Megatron-LM yet"),
        ({"mixed_precision": "fp8"}, "has no fp8 yet"),
    ],
)
def test_what_is_missing_is_named(typed: dict[str, object], words: str) -> None:
    plan = resolve({"training_script": "t.py", **typed}, MACHINE, {}).plan
    (text,) = find_unsupported(plan)
    assert words in text


def test_data_parallelism_is_there() -> None:
    for typed in ({}, {"cpu": True, "num_processes": 2}, {"tpu": True}, {"use_fsdp": True}):
        assert find_unsupported(resolve({"training_script": "t", **typed}, MACHINE, {}).plan) == []
