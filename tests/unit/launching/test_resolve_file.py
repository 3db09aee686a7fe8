"""Flag before file before what the machine has before the default. launching/plan.py, with a file."""

from typing import Any

import pytest

from accelerate.launching.machine import Machine
from accelerate.launching.plan import Resolution, resolve
from accelerate.options.config_file import parse

FOUR_GPUS = Machine(installed_gpus=4, gpus=4, evidence="made up", cores=8)


def found(content: dict[str, Any], **typed: object) -> Resolution:
    return resolve({"training_script": "t.py", **typed}, FOUR_GPUS, {}, parse(content, "c.yaml"))


def test_each_value_has_its_source() -> None:
    plan = found({"num_processes": 2, "mixed_precision": "bf16"}, num_processes=3).plan
    assert (plan.num_processes, plan.sources["num_processes"]) == (3, "flag")
    assert (plan.mixed_precision, plan.sources["mixed_precision"]) == ("bf16", "file")
    assert (plan.multi_gpu, plan.sources["multi_gpu"]) == (True, "detected")
    assert (plan.tee, plan.sources["tee"]) == ("0", "default")


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("rdzv_backend", "c10d", "rdzv_backend"),
        ("same_network", True, "same_network"),
        ("enable_cpu_affinity", True, "enable_cpu_affinity"),
        ("use_cpu", True, "cpu"),
        ("debug", True, "debug"),
        ("main_process_port", 1234, "main_process_port"),
        ("tpu_use_sudo", True, "tpu_use_sudo"),
    ],
)
def test_top_level_values_count_also_where_the_flag_has_a_default(key: str, value: object, name: str) -> None:
    plan = found({"distributed_type": "MULTI_CPU", key: value}).plan
    assert (getattr(plan, name), plan.sources[name]) == (value, "file")


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("MULTI_GPU", "multi_gpu"),
        ("MULTI_XPU", "multi_gpu"),
        ("MULTI_CPU", "cpu"),
        ("FSDP", "use_fsdp"),
        ("DEEPSPEED", "use_deepspeed"),
        ("MEGATRON_LM", "use_megatron_lm"),
        ("XLA", "tpu"),
    ],
)
def test_the_distributed_type_chooses(kind: str, field: str) -> None:
    plan = found({"distributed_type": kind, "num_processes": 2}).plan
    fields = ("multi_gpu", "cpu", "use_fsdp", "use_deepspeed", "use_megatron_lm", "tpu")
    assert [name for name in fields if getattr(plan, name)] == [field]
    assert plan.sources[field] == "file"


def test_a_typed_engine_overrules_the_distributed_type() -> None:
    resolution = found(
        {"distributed_type": "FSDP", "num_processes": 4, "fsdp_config": {"fsdp_version": 2}}, multi_gpu=True
    )
    assert (resolution.plan.use_fsdp, resolution.plan.multi_gpu) == (False, True)
    assert resolution.warnings == ("fsdp_config in c.yaml: no effect without --use_fsdp",)
    assert resolution.problems == ()


def test_the_cpu_flag_overrules_gpus_of_the_file_and_the_other_way_round() -> None:
    plan = found({"distributed_type": "MULTI_GPU", "num_processes": 4}, cpu=True).checked()
    assert (plan.cpu, plan.multi_gpu, plan.num_processes) == (True, False, 4)
    plan = found(
        {"distributed_type": "MULTI_CPU", "use_cpu": True, "num_processes": 4}, multi_gpu=True
    ).checked()
    assert (plan.cpu, plan.multi_gpu, plan.num_processes) == (False, True, 4)


def test_no_is_one_process_whatever_the_number() -> None:
    resolution = found({"distributed_type": "NO", "num_processes": 8})
    assert (resolution.plan.num_processes, resolution.plan.distributed) == (1, False)
    assert "num_processes: 8 in c.yaml has no effect: distributed_type is NO" in resolution.warnings[0]
    assert found({"distributed_type": "NO"}).plan.num_processes == 1
    assert found({"distributed_type": "NO"}, num_processes=2).checked().num_processes == 2


def test_no_file_and_an_empty_one_are_the_same() -> None:
    assert found({}).plan == resolve({"training_script": "t.py"}, FOUR_GPUS, {}).plan


@pytest.mark.parametrize(
    ("section", "version", "source"),
    [
        ({}, "2", "default"),
        ({"fsdp_version": 1}, "1", "file"),
        ({"fsdp_version": 2, "fsdp_sync_module_states": True}, "2", "file"),
        ({"fsdp_sharding_strategy": "FULL_SHARD"}, "1", "detected"),
        ({"fsdp_use_orig_params": False}, "1", "detected"),
        ({"fsdp_reshard_after_forward": "SHARD_GRAD_OP"}, "1", "detected"),
        ({"fsdp_reshard_after_forward": False}, "2", "default"),
        ({"fsdp_state_dict_type": "LOCAL_STATE_DICT"}, "1", "detected"),
        ({"fsdp_state_dict_type": "SHARDED_STATE_DICT"}, "2", "default"),
    ],
)
def test_fsdp_is_version_2_unless_something_asks_for_1(
    section: dict[str, object], version: str, source: str
) -> None:
    plan = found({"distributed_type": "FSDP", "num_processes": 4, "fsdp_config": section}).plan
    assert (plan.fsdp_version, plan.sources["fsdp_version"]) == (version, source)


def test_axes_in_the_file_turn_them_on() -> None:
    content = {"distributed_type": "FSDP", "parallelism_config": {"parallelism_config_tp_size": 2}}
    assert found(content).plan.use_parallelism_config
    assert not found({"distributed_type": "FSDP", "parallelism_config": {}}).plan.use_parallelism_config


def test_several_machines_have_a_port_and_share_processes() -> None:
    plan = found({"num_machines": 2, "machine_rank": 1, "main_process_ip": "a"}).checked()
    assert (plan.main_process_port, plan.num_processes, plan.processes_per_machine) == (29500, 8, 4)
