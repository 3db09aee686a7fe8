"""`accelerate config` on a terminal: five ways through the questions, and the screen at the end."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from accelerate.options.config_file import read
from tests.support.terminal import KINDS, Terminal

ENTER, DOWN, UP = "\r", "\x1b[B", "\x1b[A"
COMMAND = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "config"]

Start = Callable[..., Terminal]


@pytest.fixture(params=sorted(KINDS))
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Give a function that starts `accelerate config` on a terminal, and end it after the test."""
    opened = []

    def open_terminal(*arguments: str) -> Terminal:
        environ = {**os.environ, "HF_HOME": str(tmp_path / "home")}
        opened.append(KINDS[request.param]([*COMMAND, *arguments], environ))
        return opened[-1]

    yield open_terminal
    for terminal in opened:
        terminal.close()


def answer(terminal: Terminal, *steps: tuple[str, str]) -> None:
    """For each step wait for its question, then type the answer."""
    for question, keys in steps:
        terminal.wait_for(question)
        terminal.send(keys)


def saved(file: Path) -> dict[str, object]:
    """Return what was written, which the launcher has to understand."""
    assert read(file).problems == ()
    text = file.read_text()
    content: dict[str, object] = json.loads(text) if file.suffix == ".json" else yaml.safe_load(text)
    return content


def test_one_process_on_the_cpu(start: Start, tmp_path: Path) -> None:
    terminal = start()
    shown = terminal.wait_for("In which compute environment are you running?")
    assert "This machine" in shown
    assert "AWS (Amazon SageMaker)" in shown
    answer(
        terminal,
        ("In which compute", ENTER),
        ("Which kind of machine trains?", ENTER),
        ("Train on the CPU only", "y"),
        ("torch.compile?", "n"),
        ("Which precision?", DOWN + DOWN + ENTER),
    )
    file = tmp_path / "home/accelerate/default_config.yaml"
    shown = terminal.wait_for("Launch with it: accelerate launch script.py")
    assert f"accelerate configuration saved at {file}" in shown.replace("\n", "")
    assert "distributed_type: 'NO'" in shown
    content = saved(file)
    assert (content["use_cpu"], content["mixed_precision"], content["num_processes"]) == (True, "bf16", 1)


def test_several_gpus_with_fsdp(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "fsdp.yaml"
    terminal = start("--config_file", str(file))
    answer(
        terminal,
        ("In which compute", ENTER),
        ("Which kind of machine trains?", DOWN * 4 + ENTER),
        ("How many machines", ENTER),
        ("Check the shapes", "n"),
        ("torch.compile?", "n"),
        ("Use DeepSpeed?", "n"),
        ("Use FSDP", "y"),
        ("Which version of FSDP?", ENTER),
        ("Free gathered parameters", "y"),
        ("Keep parameters and gradients in CPU memory", "n"),
        ("sharded on their own?", ENTER),
        ("_no_split_modules", "n"),
        ("Class names of the blocks", "LlamaDecoderLayer" + ENTER),
        ("In which form shall weights be saved?", ENTER),
        ("Shall only rank 0 read", "y"),
        ("Compute activations again", "y"),
        ("Combine axes of parallelism", "n"),
        ("How many processes in all?", "\x7f4" + ENTER),
        ("Which precision?", DOWN + DOWN + ENTER),
    )
    shown = terminal.wait_for("Launch with it: accelerate launch --config_file")
    assert "fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer" in shown
    content = saved(file)
    assert (content["distributed_type"], content["num_processes"]) == ("FSDP", 4)
    assert content["fsdp_config"] == {
        "fsdp_activation_checkpointing": True,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_cpu_ram_efficient_loading": True,
        "fsdp_offload_params": False,
        "fsdp_reshard_after_forward": True,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_transformer_layer_cls_to_wrap": "LlamaDecoderLayer",
        "fsdp_version": 2,
    }


def test_two_machines_with_deepspeed(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "zero.yaml"
    terminal = start("--config_file", str(file))
    answer(
        terminal,
        ("In which compute", ENTER),
        ("Which kind of machine trains?", DOWN * 4 + ENTER),
        ("How many machines", "\x7f2" + ENTER),
        ("Which number has this machine", "\x7f1" + ENTER),
        ("Address of machine 0", "10.0.0.1" + ENTER),
        ("Port on machine 0", ENTER),
        ("in one local network?", "n"),
        ("How do the machines find each other", ENTER),
        ("Check the shapes", "n"),
        ("torch.compile?", "n"),
        ("Use DeepSpeed?", "y"),
        ("JSON file of DeepSpeed", "n"),
        ("ZeRO stage", DOWN + ENTER),
        ("Where shall optimizer states be kept?", DOWN + DOWN + ENTER),
        ("Folder on nvme for optimizer states?", ENTER),
        ("Where shall parameters be kept?", ENTER),
        ("How many micro-batches", ENTER),
        ("Clip gradients?", "y"),
        ("Largest norm", ENTER),
        ("Gather the 16-bit weights", "y"),
        ("from the start (zero.Init)?", "y"),
        ("mixture-of-experts layers?", "n"),
        ("How are other machines reached?", DOWN + ENTER),
        ("How many processes in all over all machines?", "\x7f" * 3 + "8" + ENTER),
        ("Which precision?", ENTER),
    )
    terminal.wait_for("Launch with it")
    content = saved(file)
    assert (content["num_machines"], content["machine_rank"], content["main_process_port"]) == (2, 1, 29500)
    assert content["deepspeed_config"] == {
        "deepspeed_multinode_launcher": "standard",
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "offload_optimizer_device": "nvme",
        "offload_optimizer_nvme_path": "/nvme",
        "offload_param_device": "none",
        "zero3_init_flag": True,
        "zero3_save_16bit_model": True,
        "zero_stage": 3,
    }


def test_cpu_ranks_compiled_as_json_and_a_wrong_answer(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "cpu.json"
    terminal = start("--config_file", str(file))
    answer(
        terminal,
        ("In which compute", ENTER),
        ("Which kind of machine trains?", DOWN + ENTER),
        ("How many machines", ENTER),
        ("Check the shapes", "y"),
        ("with mpirun?", "n"),
        ("torch.compile?", "y"),
        ("Which backend", ENTER),
        ("Choose how it compiles", "n"),
        ("How many processes in all?", "\x7f" * 3 + "none" + ENTER),
        ("use a whole number of at least 1", "\x7f" * 4 + "2" + ENTER),
        ("Which precision?", ENTER),
    )
    terminal.wait_for("Launch with it")
    content = saved(file)
    assert (content["distributed_type"], content["num_processes"], content["use_cpu"]) == (
        "MULTI_CPU",
        2,
        True,
    )
    assert content["dynamo_config"] == {"dynamo_backend": "INDUCTOR"}
    assert content["debug"] is True


def test_sagemaker(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "aws.yaml"
    terminal = start("--config_file", str(file))
    answer(
        terminal,
        ("In which compute", DOWN + ENTER),
        ("Use a profile", "y"),
        ("Name of the profile?", ENTER),
        ("AWS region?", ENTER),
        ("IAM role", "trainer" + ENTER),
        ("Docker image", "n"),
        ("input channels?", "n"),
        ("metrics to record?", "n"),
        ("How is the run distributed?", DOWN + ENTER),
        ("torch.compile?", "n"),
        ("Type of machine?", ENTER),
        ("Check the shapes", "n"),
        ("How many machines", "\x7f2" + ENTER),
        ("Which precision?", ENTER),
    )
    terminal.wait_for("Launch with it")
    content = saved(file)
    assert content["iam_role_name"] == "trainer"
    assert (content["ec2_instance_type"], content["num_machines"]) == ("ml.p3.16xlarge", 2)


def test_ctrl_c_writes_nothing(start: Start, tmp_path: Path) -> None:
    terminal = start()
    answer(terminal, ("In which compute", ENTER), ("Which kind of machine trains?", "\x03"))
    terminal.wait_for("interrupted")
    assert not (tmp_path / "home").exists()
