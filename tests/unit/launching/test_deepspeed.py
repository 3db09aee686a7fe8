from typing import Any

import pytest

from accelerate.launching.deepspeed import DeepSpeedLauncher
from accelerate.launching.elastic import ElasticLauncher
from accelerate.launching.machine import Machine
from accelerate.launching.plan import resolve
from accelerate.launching.select import select
from accelerate.options.launch import LaunchPlan

MACHINE = Machine(installed_gpus=8, gpus=8, evidence="made up", cores=8)


def plan(**typed: Any) -> LaunchPlan:
    two = {"num_machines": 2, "machine_rank": 1, "main_process_ip": "10.0.0.1", "num_processes": 8}
    fixed = {"training_script": "t.py", "training_script_args": ["--x"], "use_deepspeed": True}
    return resolve({**fixed, **two, **typed}, MACHINE, {}).checked()


@pytest.mark.parametrize("launcher", ["pdsh", "openmpi", "mpich", "mvapich", "slurm"])
def test_the_call_names_launcher_machines_and_meeting_point(launcher: str) -> None:
    made = plan(
        deepspeed_multinode_launcher=launcher,
        deepspeed_hostfile="/hosts",
        deepspeed_exclusion_filter="a",
        main_process_port=123,
    )
    assert (
        DeepSpeedLauncher().command(made)
        == (
            f"deepspeed --hostfile /hosts --no_local_rank --launcher {launcher} --exclude a "
            "--master_addr 10.0.0.1 --master_port 123 t.py --x"
        ).split()
    )


def test_without_a_filter_machines_and_devices_are_counted() -> None:
    command = " ".join(DeepSpeedLauncher().command(plan()))
    assert "--launcher pdsh --num_nodes 2 --num_gpus 4 --master_addr" in command
    assert "--include b:0" in " ".join(DeepSpeedLauncher().command(plan(deepspeed_inclusion_filter="b:0")))


def test_without_ssh_each_machine_says_its_number() -> None:
    command = " ".join(DeepSpeedLauncher().command(plan(deepspeed_multinode_launcher="nossh")))
    assert command.startswith("deepspeed --node_rank 1 --no_ssh ")


def test_modules_and_programs() -> None:
    assert DeepSpeedLauncher().command(plan(module=True))[-3:] == ["--module", "t.py", "--x"]
    assert DeepSpeedLauncher().command(plan(no_python=True))[-3:] == ["--no_python", "t.py", "--x"]


def test_one_machine_and_the_standard_launcher_are_torchs() -> None:
    assert isinstance(select(plan()), DeepSpeedLauncher)
    assert isinstance(select(plan(deepspeed_multinode_launcher="standard")), ElasticLauncher)
    assert isinstance(select(plan(num_machines=1, machine_rank=0, num_processes=4)), ElasticLauncher)


def test_modules_beside_the_script_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.chdir("/")
    assert DeepSpeedLauncher().full_environ(plan())["PYTHONPATH"] == "/elsewhere:/"


def test_its_exit_status_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeepSpeedLauncher, "command", lambda self, plan: ["sh", "-c", "exit 7"])
    assert DeepSpeedLauncher().run(plan()) == 7
