"""Plans of the interface's prepare_* functions, compared as values."""

import argparse
import os
import sys

import pytest

from accelerate.commands.config.config_args import SageMakerConfig
from accelerate.commands.launch import launch_command_parser
from accelerate.utils import launch
from accelerate.utils.launch import (
    _filter_args,
    env_var_path_add,
    prepare_deepspeed_cmd_env,
    prepare_extend_env_parallelism_config,
    prepare_multi_gpu_env,
    prepare_sagemager_args_inputs,
    prepare_simple_launcher_cmd_env,
    prepare_tpu,
    setup_fp8_env,
)


def parse(*arguments: str) -> argparse.Namespace:
    args: argparse.Namespace = launch_command_parser().parse_args([*arguments, "t.py", "--lr", "1"])
    return args


def test_one_process() -> None:
    command, environ = prepare_simple_launcher_cmd_env(parse("--cpu", "--mixed_precision", "bf16"))
    assert command == [sys.executable, "t.py", "--lr", "1"]
    assert (environ["ACCELERATE_MIXED_PRECISION"], environ["ACCELERATE_USE_CPU"]) == ("bf16", "True")
    assert environ["PATH"] == os.environ["PATH"]


def test_ranks_of_one_machine() -> None:
    args = parse("--cpu", "--num_processes", "2", "--main_process_port", "1234")
    environ = prepare_multi_gpu_env(args)
    assert environ["ACCELERATE_MIXED_PRECISION"] == "no"
    assert (args.nproc_per_node, args.master_port) == ("2", "1234")


@pytest.mark.parametrize(
    ("network", "names"),
    [
        ([], {"rdzv_endpoint": "10.0.0.1:1234"}),
        (["--same_network"], {"master_addr": "10.0.0.1", "master_port": "1234"}),
    ],
)
def test_ranks_of_two_machines(network: list[str], names: dict[str, str]) -> None:
    meeting = ["--main_process_ip", "10.0.0.1", "--main_process_port", "1234"]
    args = parse(
        "--cpu", "--num_processes", "4", "--num_machines", "2", "--machine_rank", "1", *meeting, *network
    )
    prepare_multi_gpu_env(args)
    assert (args.nproc_per_node, args.nnodes, args.node_rank) == ("2", "2", 1)
    assert {name: getattr(args, name) for name in names} == names


def test_deepspeed() -> None:
    args = parse("--cpu", "--use_deepspeed", "--zero_stage", "3", "--num_processes", "2")
    command, environ = prepare_deepspeed_cmd_env(args)
    assert command is None
    assert (environ["ACCELERATE_USE_DEEPSPEED"], environ["ACCELERATE_DEEPSPEED_ZERO_STAGE"]) == ("true", "3")
    assert environ["PYTHONPATH"].split(os.pathsep)[-1] == os.getcwd()
    assert args.nproc_per_node == "2"
    meeting = ["--num_machines", "2", "--machine_rank", "1", "--main_process_ip", "a"]
    command, _ = prepare_deepspeed_cmd_env(
        parse("--cpu", "--use_deepspeed", "--num_processes", "2", *meeting)
    )
    assert command is not None
    assert command[:4] == ["deepspeed", "--no_local_rank", "--launcher", "pdsh"]


def test_tpu() -> None:
    args = parse("--tpu", "--num_processes", "8", "--mixed_precision", "bf16", "--vm", "v")
    assert prepare_tpu(args, {"A": "1"}) == (args, {"A": "1", "XLA_USE_BF16": "1"})
    args.tpu_name, args.downcast_bf16 = "pod", True
    changed, environ = prepare_tpu(args, {}, pod=True)
    assert (changed.tpu, changed.vm, environ) == ("pod", ["v"], {"XLA_DOWNCAST_BF16": "1"})


def test_sagemaker() -> None:
    config = SageMakerConfig(
        compute_environment="AMAZON_SAGEMAKER",
        distributed_type="NO",
        mixed_precision="no",
        use_cpu=False,
        debug=False,
        ec2_instance_type="ml.p3.2xlarge",
        iam_role_name="role",
        profile="me",
    )
    arguments, inputs = prepare_sagemager_args_inputs(config, parse())
    assert (arguments["entry_point"], arguments["hyperparameters"], inputs) == ("t.py", {"lr": 1}, None)


def test_fp8_and_axes_extend_an_environment() -> None:
    environ = setup_fp8_env(
        parse("--fp8_backend", "te", "--fp8_override_linear_precision", "true,false,false"), {}
    )
    assert environ["ACCELERATE_FP8_BACKEND"] == "TE"
    assert environ["ACCELERATE_FP8_OVERRIDE_FPROP"] == "true"
    environ = prepare_extend_env_parallelism_config(parse("--parallelism_config_tp_size", "2"), {"A": "1"})
    assert environ == {
        "A": "1",
        "ACCELERATE_USE_PARALLELISM_CONFIG": "true",
        "PARALLELISM_CONFIG_CP_BACKEND": "torch",
        "PARALLELISM_CONFIG_CP_SIZE": "1",
        "PARALLELISM_CONFIG_DP_REPLICATE_SIZE": "1",
        "PARALLELISM_CONFIG_DP_SHARD_SIZE": "1",
        "PARALLELISM_CONFIG_SP_BACKEND": "deepspeed",
        "PARALLELISM_CONFIG_SP_SIZE": "1",
        "PARALLELISM_CONFIG_TP_SIZE": "2",
    }


def test_contradictions_are_errors() -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        prepare_simple_launcher_cmd_env(parse("--use_fsdp", "--use_deepspeed"))


def test_a_folder_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDERS", "a:b")
    assert env_var_path_add("FOLDERS", "c") == "a:b:c"
    assert env_var_path_add("NO_FOLDERS", "c") == "c"


def test_what_another_parser_knows() -> None:
    other = argparse.ArgumentParser()
    other.add_argument("--num_processes")
    other.add_argument("--unknown_here", default=3)
    found = _filter_args(parse("--num_processes", "2"), other)
    assert vars(found) == {"num_processes": 2, "unknown_here": 3}


def test_everything_is_there_by_its_name() -> None:
    assert all(hasattr(launch, name) for name in launch.__all__)
