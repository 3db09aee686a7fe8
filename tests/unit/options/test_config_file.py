import json
import os
import shlex
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from accelerate.commands.launch import launch_command_parser
from accelerate.commands.utils import typed_options
from accelerate.errors import ConfigurationError, MissingConfigurationError
from accelerate.launching.machine import Machine
from accelerate.launching.plan import resolve
from accelerate.options.config_file import (
    LEGACY,
    ConfigFile,
    flatten,
    parse,
    parse_text,
    read,
    sections,
    to_content,
    to_text,
    write,
)
from accelerate.options.field import options
from accelerate.options.launch import LaunchPlan
from tests.golden.plan_cases import CASES

TRL = sorted(Path("tests/golden/configs/trl").glob("*.yaml"))


def from_yaml(text: str) -> ConfigFile:
    return parse(yaml.safe_load(text) or {}, "c.yaml")


@pytest.mark.parametrize("file", TRL, ids=lambda file: file.stem)
def test_what_trl_ships_loads_without_a_word(file: Path) -> None:
    content = read(file)
    assert (content.problems, content.warnings) == ((), ())
    assert content.values["num_processes"] == 8
    assert content.values["downcast_bf16"] is False


def test_there_are_files_of_trl() -> None:
    assert len(TRL) == 7


def test_values_know_their_keys() -> None:
    found = from_yaml("num_processes: 2\nfsdp_config:\n  version: 2\n")
    assert found.values == {"num_processes": 2, "fsdp_version": "2"}
    assert found.keys == {"num_processes": "num_processes", "fsdp_version": "fsdp_config.version"}


@pytest.mark.parametrize("text", ["NO", "'NO'", "no", "No"])
def test_no_is_a_word_though_yaml_reads_it_as_false(text: str) -> None:
    found = from_yaml(f"distributed_type: {text}\nmixed_precision: {text.lower()}")
    assert (found.distributed_type, found.values, found.problems) == ("NO", {"mixed_precision": "no"}, ())


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("num_processes: '4'", "num_processes", 4),
        ("num_processes: 4.0", "num_processes", 4),
        ("downcast_bf16: 'no'", "downcast_bf16", False),
        ("use_cpu: yes", "cpu", True),
        ("gpu_ids: 0", "gpu_ids", "0"),
        ("gpu_ids: [0, 2]", "gpu_ids", "0,2"),
        ("tpu_vm: [a, b]", "vm", ("a", "b")),
        ("tpu_env: A=1", "env", ("A=1",)),
        ("fsdp_config: {fsdp_offload_params: true}", "fsdp_offload_params", "true"),
        ("fsdp_config: {fsdp_offload_params: 'True'}", "fsdp_offload_params", "true"),
        ("fsdp_config: {fsdp_sharding_strategy: 1}", "fsdp_sharding_strategy", "1"),
        ("fsdp_config: {fsdp_version: 2}", "fsdp_version", "2"),
        ("deepspeed_config: {zero_stage: 3}", "zero_stage", 3),
        ("deepspeed_config: {gradient_clipping: 1}", "gradient_clipping", 1.0),
        ("dynamo_config: {dynamo_backend: INDUCTOR}", "dynamo_backend", "inductor"),
        ("dynamo_config: {dynamo_backend: NO}", "dynamo_backend", "no"),
        ("dynamo_config: {dynamo_backend: TORCHXLA_TRACE_ONCE}", "dynamo_backend", "torchxla_trace_once"),
        ("fp8_config: {backend: AO}", "fp8_backend", "ao"),
        (
            "fp8_config: {override_linear_precision: 'true,false,false'}",
            "fp8_override_linear_precision",
            ("true", "false", "false"),
        ),
        ("megatron_lm_config: {megatron_lm_no_load_optim: false}", "megatron_lm_no_load_optim", False),
    ],
)
def test_values_have_the_type_of_their_option(text: str, name: str, value: object) -> None:
    found = from_yaml(text)
    assert found.problems == ()
    assert found.values == {name: value}
    assert type(found.values[name]) is type(value)


@pytest.mark.parametrize("text", ["null", "''", "[]", "{}"])
@pytest.mark.parametrize("key", ["main_process_ip", "fsdp_config", "commands"])
def test_what_says_nothing_counts_as_not_there(key: str, text: str) -> None:
    found = from_yaml(f"{key}: {text}")
    assert (found.values, found.problems, found.rest) == ({}, (), {})


def test_a_number_of_processes_that_is_left_open() -> None:
    assert from_yaml("num_processes: -1").values == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("num_procesess: 2", "num_procesess in c.yaml: there is no such key; did you mean num_processes?"),
        ("zzz: 2", "zzz in c.yaml: there is no such key"),
        ("fsdp_version: 2", "did you mean fsdp_config.fsdp_version?"),
        ("zero_stage: 2", "did you mean deepspeed_config.zero_stage?"),
        ("fsdp_config: {fsdp_offlod_params: 1}", "did you mean fsdp_config.fsdp_offload_params?"),
        ("fsdp_config: {offlod_params: 1}", "did you mean fsdp_config.fsdp_offload_params?"),
        ("deepspeed_config: {fsdp_version: 1}", "did you mean fsdp_config.fsdp_version?"),
        ("num_processes: two", "num_processes: two in c.yaml: use a whole number"),
        ("num_processes: true", "num_processes: true in c.yaml: use a whole number"),
        ("num_processes: 1.5", "use a whole number"),
        ("use_cpu: maybe", "use_cpu: maybe in c.yaml: use true or false"),
        ("mixed_precision: fp64", "use one of no, fp16, bf16, fp8"),
        ("deepspeed_config: {zero_stage: 4}", "use one of 0, 1, 2, 3"),
        ("deepspeed_config: {gradient_clipping: much}", "use a number"),
        ("main_process_ip: {a: 1}", "use a text, not a section"),
        ("fsdp_config: 3", "fsdp_config in c.yaml: this is a section of keys, not one value"),
        ("distributed_type: MULTI", "distributed_type: MULTI in c.yaml: use one of NO, MULTI_CPU"),
        ("compute_environment: MOON", "use one of LOCAL_MACHINE, AMAZON_SAGEMAKER"),
        ("compute_environment: AMAZON_SAGEMAKER\nnum_processes: 2", "num_processes in c.yaml"),
        ("iam_role_name: x", "iam_role_name in c.yaml: there is no such key"),
    ],
)
def test_each_mistake_says_what_is_allowed(text: str, words: str) -> None:
    (problem,) = from_yaml(text).problems
    assert words in problem


def test_all_mistakes_are_found_at_once() -> None:
    assert len(from_yaml("num_machines: x\nbogus: 1\nfsdp_config: {bogus: 1}\nuse_cpu: x").problems) == 4


LEGACY_VALUES = {
    "fp16": (True, {"mixed_precision": "fp16"}),
    "dynamo_backend": ("INDUCTOR", {"dynamo_backend": "inductor"}),
    "ipex_config": ({"ipex": True}, {}),
    "use_xpu": (True, {}),
    "fsdp_config.fsdp_backward_prefetch_policy": (
        "BACKWARD_PRE",
        {"fsdp_backward_prefetch": "BACKWARD_PRE"},
    ),
    "fsdp_config.limit_all_gathers": (True, {}),
    "fp8_config.amax_history_length": (8, {"fp8_amax_history_len": 8}),
    "fp8_config.amax_compute_algorithm": ("max", {"fp8_amax_compute_algo": "max"}),
    "fp8_config.optimization_level": ("O1", {"fp8_opt_level": "O1"}),
}


@pytest.mark.parametrize("key", LEGACY)
def test_each_legacy_key_counts_and_is_warned_about(key: str) -> None:
    value, values = LEGACY_VALUES[key]
    section, _, name = key.rpartition(".")
    found = parse({section: {name: value}} if section else {name: value}, "c.yaml")
    assert (found.values, found.problems) == (values, ())
    (warning,) = found.warnings
    assert warning == f"{key} in c.yaml: {LEGACY[key].why}"


@pytest.mark.parametrize("order", [("fp16", "mixed_precision"), ("mixed_precision", "fp16")])
def test_the_present_key_wins_over_the_legacy_one(order: tuple[str, str]) -> None:
    both = {"fp16": True, "mixed_precision": "bf16"}
    assert parse({key: both[key] for key in order}, "c").values == {"mixed_precision": "bf16"}


def test_fp16_false_is_no() -> None:
    assert from_yaml("fp16: false").values == {"mixed_precision": "no"}


def test_a_file_for_sagemaker() -> None:
    found = read("tests/golden/configs/sagemaker.yaml")
    assert found.on_sagemaker
    assert found.problems == ()
    assert found.rest["iam_role_name"] == "accelerate"
    assert found.values == {"num_machines": 2, "mixed_precision": "fp16"}


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing.yaml"
    with pytest.raises(MissingConfigurationError, match=r"missing\.yaml does not exist"):
        read(missing)
    with pytest.raises(FileNotFoundError):
        parse_text(missing)
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [1\n")
    with pytest.raises(ConfigurationError, match=r"broken\.yaml cannot be read"):
        read(broken)
    broken.write_text("- 1\n- 2\n")
    with pytest.raises(ConfigurationError, match="no `key: value` lines but list"):
        read(broken)
    broken_json = tmp_path / "broken.json"
    broken_json.write_text("a: 1")
    with pytest.raises(ConfigurationError, match=r"broken\.json cannot be read"):
        read(broken_json)


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "empty.yaml"
    file.write_text("# nothing\n")
    assert read(file) == ConfigFile(path=str(file))


@pytest.mark.parametrize("name", ["c.yaml", "c.json", "c.yml"])
def test_what_is_written_is_read_back(tmp_path: Path, name: str) -> None:
    content = {"num_processes": 2, "mixed_precision": "no", "fsdp_config": {"fsdp_version": 2}}
    write(to_text(content, tmp_path / name), tmp_path / name)
    assert parse_text(tmp_path / name) == content
    if name.endswith(".json"):
        assert json.loads((tmp_path / name).read_text()) == content


def test_sections_and_flatten() -> None:
    assert sections() >= {"fsdp_config", "deepspeed_config", "mpirun_config", "dynamo_config"}
    assert dict(flatten({"a": 1, "fsdp_config": {"x": 2}})) == {"a": 1, "fsdp_config.x": 2}


def test_no_two_options_share_a_key() -> None:
    keys = [info.key for info in options(LaunchPlan) if info.key is not None]
    assert len(keys) == len(set(keys))


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(alphabet="noaf16.,- ", max_size=5)
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.sampled_from("ab"), SCALARS, max_size=2)
KEYS = st.sampled_from(
    [*(info.key for info in options(LaunchPlan) if info.key), *LEGACY, "distributed_type", "x"]
)


@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_nothing_that_a_file_may_hold_is_an_accident(flat: dict[str, object]) -> None:
    content: dict[str, object] = {}
    for key, value in flat.items():
        section, _, name = key.rpartition(".")
        target = content.setdefault(section, {}) if section else content
        if isinstance(target, dict):
            target[name] = value
    found = parse(content, "c.yaml")
    for info in options(LaunchPlan):
        if info.name in found.values and (choices := info.values or info.choices):
            assert found.values[info.name] in choices


MACHINE = Machine(installed_gpus=4, gpus=4, evidence="made up", cores=8)
# They have no key: the distributed type stands for them.
CHOOSERS = ("multi_gpu", "tpu", "use_deepspeed", "use_fsdp", "use_megatron_lm", "use_parallelism_config")


def typed_in(case: str) -> dict[str, object]:
    arguments = launch_command_parser().parse_args(shlex.split(CASES[case].arguments))
    return typed_options(arguments, options(LaunchPlan))


SOUND = [
    case for case in CASES if CASES[case].file is None and not resolve(typed_in(case), MACHINE, {}).problems
]


def test_there_are_launches_to_write() -> None:
    assert len(SOUND) > 20


@pytest.mark.parametrize("case", SOUND)
def test_a_plan_written_to_a_file_gives_the_same_launch(case: str, tmp_path: Path) -> None:
    typed = typed_in(case)
    plan = resolve(typed, MACHINE, {}).plan
    write(to_text(to_content(plan), "c.yaml"), tmp_path / "c.yaml")
    without_key = {info.name for info in options(LaunchPlan) if info.key is None} - set(CHOOSERS)
    rest = {name: value for name, value in typed.items() if name in without_key}
    assert resolve(rest, MACHINE, {}, read(tmp_path / "c.yaml")).checked() == plan


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    assert read(os.devnull).values == {}
    receiver, sender = os.pipe()
    os.write(sender, b"mixed_precision: bf16\n")
    os.close(sender)
    try:
        assert read(f"/dev/fd/{receiver}").values == {"mixed_precision": "bf16"}
    finally:
        os.close(receiver)
    with pytest.raises(MissingConfigurationError, match="is a folder: give a file in it"):
        read(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match=r"binary\.yaml cannot be read: 'utf-8' codec"):
        read(tmp_path / "binary.yaml")


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "c.yaml", tmp_path):
        with pytest.raises(ConfigurationError, match=r"cannot be written: .*; give another place"):
            write("", place)
    write("a: 1\n", tmp_path / "new" / "folder" / "c.yaml")
    assert (tmp_path / "new/folder/c.yaml").read_text() == "a: 1\n"
