from pathlib import Path
from typing import Any

import pytest

from accelerate.launching.deepspeed import DeepSpeedLauncher, environment_file
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


def test_the_environment_goes_to_the_other_machines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    for folder, text in (("home", "MINE=1\n# no variable\n"), ("here", "NCCL_DEBUG=INFO\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / ".deepspeed_env").write_text(text)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    monkeypatch.chdir(tmp_path / "here")
    script = f'cp "$DS_ENV_FILE" {seen}; stat -c %a "$DS_ENV_FILE" >> {seen}; echo "$DS_ENV_FILE" >> {seen}'
    monkeypatch.setattr(DeepSpeedLauncher, "command", lambda self, plan: ["sh", "-c", script])
    assert DeepSpeedLauncher().run(plan()) == 0
    *lines, mode, name = seen.read_text().splitlines()
    assert lines[-2:] == ["MINE=1", "NCCL_DEBUG=INFO"]  # the user's have the last word
    assert "ACCELERATE_USE_DEEPSPEED=true" in lines
    assert "NCCL_DEBUG=WARN" in lines
    assert mode == "600"
    assert not Path(name).exists()


def test_what_such_a_file_cannot_hold() -> None:
    environ = {"A": "1", "B": "two words", "C": "a;b", "": "x", "D": "", "E": "<", "PWD": "/", "F": "b=c"}
    assert environment_file(environ) == "A=1\nF=b=c\n"


def test_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    problems = DeepSpeedLauncher().problems(plan(deepspeed_hostfile="/no/hosts"))
    assert any("no program `deepspeed` on PATH" in problem for problem in problems)
    assert any("--deepspeed_hostfile /no/hosts: there is no such file" in problem for problem in problems)


def test_its_exit_status_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeepSpeedLauncher, "command", lambda self, plan: ["sh", "-c", "exit 7"])
    assert DeepSpeedLauncher().run(plan()) == 7
