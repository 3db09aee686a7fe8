import pytest

from accelerate.launching.checks import Given, find_problems, is_effective, usable_gpus
from accelerate.launching.machine import Machine
from accelerate.launching.plan import resolve
from accelerate.options.config_file import ConfigFile, parse

EIGHT = Machine(installed_gpus=8, gpus=8, evidence="made up", cores=8, port_in_use=lambda port: port == 29500)
TWO_MACHINES = {
    "num_machines": 2,
    "machine_rank": 0,
    "main_process_ip": "10.0.0.1",
    "main_process_port": 29501,
}


def problems(file: ConfigFile | None = None, **typed: object) -> tuple[str, ...]:
    return resolve({"training_script": "t.py", **typed}, EIGHT, {}, file).problems


def test_everything_that_is_wrong_is_told_at_once() -> None:
    file = parse({"num_procesess": 1, "num_machines": 2, "machine_rank": 5}, "c.yaml")
    found = problems(file, use_fsdp=True, use_megatron_lm=True, tee="7", fsdp_version="2")
    assert len(found) == 5
    text = "\n".join(found)
    assert "num_procesess in c.yaml" in text
    assert "machine_rank: 5 in c.yaml: machines are numbered from 0, and there are 2" in text
    assert "num_machines: 2 in c.yaml: pass --main_process_ip too" in text
    assert "--use_fsdp and --use_megatron_lm exclude each other" in text
    assert "--tee 7" in text


def test_the_error_lists_them() -> None:
    with pytest.raises(ValueError, match=r"2 problems, nothing was started:\n  1\. .*\n  2\. "):
        resolve({"tee": "7", "max_restarts": -1, "training_script": "t"}, EIGHT, {}).checked()


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ({**TWO_MACHINES, "main_process_ip": None}, "pass --main_process_ip too"),
        ({**TWO_MACHINES, "machine_rank": None}, "pass --machine_rank too"),
        ({**TWO_MACHINES, "machine_rank": 2}, "--machine_rank 2: machines are numbered from 0"),
        ({**TWO_MACHINES, "num_processes": 5}, "--num_processes 5: this is the number over all machines"),
        (
            {**TWO_MACHINES, "num_processes": 32},
            "8 can be used on each machine (made up); pass --num_processes 16",
        ),
        ({**TWO_MACHINES, "main_process_port": None}, "--main_process_port 29500 is in use on this machine"),
        ({"machine_rank": 1}, "--machine_rank 1: machines are numbered from 0, and there are 1"),
        ({"use_parallelism_config": True}, "--use_parallelism_config needs --use_fsdp"),
        (
            {"use_parallelism_config": True, "use_fsdp": True, "fsdp_version": "1"},
            "--use_parallelism_config needs --use_fsdp with --fsdp_version 2",
        ),
        ({"use_fsdp": True, "fsdp_offload_params": "x"}, "--fsdp_offload_params x: use one of true, false"),
        ({"zero_stage": 4, "use_deepspeed": True}, "--zero_stage 4: use one of 0, 1, 2, 3"),
        ({"fp8_override_linear_precision": ("a",)}, "give three truth values separated by commas"),
        ({"gradient_accumulation_steps": 0, "use_deepspeed": True}, "--gradient_accumulation_steps 0"),
    ],
)
def test_each_contradiction(typed: dict[str, object], words: str) -> None:
    (problem,) = problems(**typed)
    assert words in problem


@pytest.mark.parametrize(
    "typed",
    [
        {**TWO_MACHINES, "machine_rank": 1, "main_process_port": 29500},  # a port of another machine
        TWO_MACHINES,
        {**TWO_MACHINES, "rdzv_backend": "c10d", "machine_rank": None},
        {"main_process_port": 29500},  # on one machine another port is taken
        {"use_parallelism_config": True, "use_fsdp": True},
        {"use_parallelism_config": True, "use_deepspeed": True},
        {"use_fsdp": True, "cpu": True, "num_processes": 9},
        {"use_fsdp": True, "fsdp_sharding_strategy": "full_shard"},
        {"use_fsdp": True, "fsdp_backward_prefetch": "2"},
    ],
)
def test_what_does_not_contradict(typed: dict[str, object]) -> None:
    assert problems(**typed) == ()


def test_where_a_value_was_said() -> None:
    file = parse({"use_cpu": True, "num_processes": 2, "fp8_config": {"margin": 1}}, "c.yaml")
    given = Given({"num_processes": 3, "num_machines": None}, file)
    assert given.get("num_processes") == (3, "flag")
    assert given.get("cpu") == (True, "file")
    assert given.get("num_machines") == (None, None)
    assert given.spell("num_processes") == "--num_processes 3"
    assert given.spell("cpu") == "use_cpu: true in c.yaml"
    assert given.spell("fp8_margin") == "fp8_config.margin: 1 in c.yaml"
    assert given.spell("num_machines") == "--num_machines"


def test_usable_gpus() -> None:
    assert usable_gpus(None, EIGHT) == usable_gpus("all", EIGHT) == 8
    assert usable_gpus("1, 3", EIGHT) == 2


def test_accelerators_that_are_not_counted_are_not_missed() -> None:
    none = Machine(installed_gpus=0, gpus=0, evidence="none", cores=8)
    file = parse({"distributed_type": "MULTI_NPU", "num_processes": 4}, "c.yaml")
    found = resolve({"training_script": "t.py"}, none, {}, file)
    assert (found.problems, found.plan.multi_gpu) == ((), True)
    assert (
        find_problems(found.plan, Given({}, parse({"distributed_type": "MULTI_GPU"}, "c.yaml")), none) != []
    )


def test_what_has_no_effect_is_told() -> None:
    found = resolve({"training_script": "t", "zero_stage": 2, "fsdp_version": "2"}, EIGHT, {})
    assert found.warnings == (
        "--fsdp_version: no effect without --use_fsdp",
        "--zero_stage: no effect without --use_deepspeed",
    )
    assert not is_effective(found.plan, "zero_stage")
    assert is_effective(found.plan, "num_processes")
