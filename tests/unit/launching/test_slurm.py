import sys
from typing import Any

import pytest

from accelerate.errors import ConfigurationError
from accelerate.launching.command import inherited
from accelerate.launching.elastic import ElasticLauncher
from accelerate.launching.machine import Machine
from accelerate.launching.plan import Resolution, resolve
from accelerate.launching.select import select
from accelerate.launching.simple import SimpleLauncher
from accelerate.launching.slurm import SlurmLauncher, SlurmRankLauncher, find_job
from accelerate.options.config_file import parse
from accelerate.options.launch import LaunchPlan

# The variables of SLURM 22.05, as it sets them.
JOB = {
    "SLURM_JOB_ID": "42",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_JOB_CPUS_PER_NODE": "8(x2)",
    "SLURM_NODEID": "0",
    "SLURM_PROCID": "0",  # in sbatch's script too
    "SLURM_LOCALID": "0",
}
STEP = {
    **JOB,
    "SLURM_STEP_ID": "3",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_NODEID": "1",
    "SLURM_PROCID": "1",
}
TASKS = {
    **STEP,
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_TASKS_PER_NODE": "3,2",
    "SLURM_PROCID": "4",
    "SLURM_LOCALID": "1",
}
ONE_NODE = {**JOB, "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_CPUS_PER_NODE": "8"}
SHELL = {"SLURM_STEP_ID": "4294967290", "SLURM_STEP_NODELIST": "n1", "SLURM_STEP_NUM_TASKS": "1"}
INTERACTIVE = {**STEP, **SHELL}
MACHINE = Machine(installed_gpus=4, gpus=4, evidence="made up", cores=8)


def resolution(environ: dict[str, str], content: dict[str, Any] | None = None, **typed: Any) -> Resolution:
    given = {"training_script": "t.py", "training_script_args": ["--x", "two words"], **typed}
    file = None if content is None else parse(content, "c.yaml")
    return resolve(given, MACHINE, environ, file)


def plan(environ: dict[str, str], content: dict[str, Any] | None = None, **typed: Any) -> LaunchPlan:
    return resolution(environ, content, **typed).checked()


@pytest.mark.parametrize(
    ("environ", "part"),
    [
        ({}, None),
        (JOB, "srun"),
        (STEP, "node"),
        (TASKS, "rank"),
        (ONE_NODE, "no"),
        (INTERACTIVE, "srun"),
        ({**STEP, "SLURM_STEP_NODELIST": "n2", "SLURM_STEP_NUM_TASKS": "1"}, "no"),
        ({**STEP, "SLURM_STEP_NODELIST": "n2", "SLURM_STEP_NUM_TASKS": "2"}, "rank"),
        ({**STEP, "RANK": "1", "WORLD_SIZE": "2"}, None),
        ({**STEP, "TORCHELASTIC_RUN_ID": "x"}, None),
        ({**JOB, "WORLD_SIZE": "2"}, "srun"),
        ({**JOB, "SLURM_HET_SIZE": "2"}, None),
        ({"SLURM_JOB_ID": "1", "SLURM_STEP_NUM_TASKS": "2"}, None),
    ],
)
def test_where_the_command_stands(environ: dict[str, str], part: str | None) -> None:
    job = find_job(environ)
    assert (None if job is None else job.part) == part


def test_a_job_starts_the_command_on_each_node() -> None:
    made = plan(JOB, mixed_precision="bf16", debug=True, tee="3")
    assert isinstance(select(made), SlurmLauncher)
    assert made.num_machines == 2
    words = SlurmLauncher().command(made)
    assert " ".join(words[:8]) == "srun --nodes 2 --ntasks 2 --ntasks-per-node 1 --kill-on-bad-exit=0"
    python = words.index(sys.executable)
    assert words[8:python] == ["--cpus-per-task=8"]
    inner = "-m accelerate.commands.launch --slurm node --debug --mixed_precision bf16 --tee 3 t.py --x"
    assert words[python + 1 :] == [*inner.split(), "two words"]


def test_options_of_all_kinds_are_typed_again() -> None:
    made = plan(
        JOB, rdzv_conf="-a=1", gpu_ids="0,1", module=True, fp8_override_linear_precision=(True, False, True)
    )
    line = " ".join(SlurmLauncher().command(made))
    assert "--rdzv_conf=-a=1" in line
    assert "--fp8_override_linear_precision True,False,True" in line
    assert "--module" in line
    assert "--num_machines" not in line


def test_what_srun_is_told_of_processors_and_gpus() -> None:
    assert find_job({**JOB, "SLURM_JOB_CPUS_PER_NODE": "8,4"}).srun_args == ""  # type: ignore[union-attr]
    by_task = {**JOB, "SLURM_GPUS_PER_TASK": "1", "SLURM_GPUS_ON_NODE": "4"}
    assert plan(by_task).srun_args == "--cpus-per-task=8 --gpus-per-task=4"
    assert plan(JOB, srun_args="--exact --mem=0").srun_args == "--exact --mem=0"


def test_the_launches_on_the_nodes_get_the_callers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert SlurmLauncher().environ(plan(JOB)) == {}
    assert SlurmLauncher().full_environ(plan(JOB))["OMP_NUM_THREADS"] == "3"


def test_a_node_knows_its_number_and_where_to_meet() -> None:
    made = plan(STEP)
    assert isinstance(select(made), ElasticLauncher)
    assert (made.num_machines, made.machine_rank, made.main_process_ip) == (2, 1, "n1")
    assert made.num_processes == 8
    first = plan({**STEP, "SLURM_NODEID": "0", "SLURM_PROCID": "0"})
    assert first.main_process_port == made.main_process_port
    assert 15000 <= (made.main_process_port or 0) < 30000
    assert plan({**STEP, "SLURM_STEP_ID": "4"}).main_process_port != made.main_process_port
    assert plan(STEP, main_process_port=1234).main_process_port == 1234


def test_a_task_is_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(TASKS)
    launcher = select(made)
    assert isinstance(launcher, SlurmRankLauncher)
    assert isinstance(launcher, SimpleLauncher)  # may take the place of this process
    assert launcher.command(made)[:3] == [sys.executable, "-u", "t.py"]
    environ = launcher.environ(made)
    assert environ["MASTER_ADDR"] == "n1"
    assert environ["MASTER_PORT"] == str(made.main_process_port)
    assert environ["WORLD_SIZE"] == "5"
    assert "ACCELERATE_USE_CPU" not in environ
    inside = inherited({**environ, "RANK": "4", "LOCAL_RANK": "1", "HOME": "/"})
    assert inside.keys() & {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "HOME"} == {"HOME"}
    assert launcher.environ(plan(TASKS, cpu=True))["ACCELERATE_USE_CPU"] == "True"
    for name, text in TASKS.items():
        monkeypatch.setenv(name, text)
    expected = {"RANK": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    assert launcher.local_environ(made) == expected
    monkeypatch.delenv("SLURM_STEP_TASKS_PER_NODE")
    with pytest.raises(ConfigurationError, match="no task of a SLURM step"):
        launcher.local_environ(made)


def test_another_number_of_processes_than_tasks() -> None:
    (problem,) = resolution(TASKS, num_processes=4).problems
    assert "srun has started 5 tasks" in problem


@pytest.mark.parametrize(
    "typed",
    [
        {"slurm": "no"},
        {"num_machines": 1},
        {"num_machines": 2, "machine_rank": 1, "main_process_ip": "n1"},
        {"use_deepspeed": True, "deepspeed_multinode_launcher": "pdsh"},
    ],
)
def test_who_places_machines_by_hand_is_obeyed(typed: dict[str, Any]) -> None:
    assert resolution(JOB, **typed).plan.slurm == "no"


def test_what_has_no_effect() -> None:
    assert resolution(TASKS, tee="3").warnings == ("--tee: no effect, since srun has started the processes",)
    (warning,) = resolution({}, srun_args="-x").warnings
    assert "calls no srun" in warning
    assert resolution({}, mpirun_kind="intel").warnings == (
        "--mpirun_kind: no effect without --mpirun_hostfile",
    )


def test_outside_of_a_job() -> None:
    assert plan({}).slurm == "no"
    (problem, *_) = resolution({}, slurm="srun").problems
    assert problem.startswith("--slurm srun: this is no SLURM job")


def test_a_file_for_one_machine_counts_for_each_node() -> None:
    content = {"distributed_type": "MULTI_GPU", "num_machines": 1, "machine_rank": 0, "num_processes": 4}
    found = resolution(STEP, content)
    assert (found.plan.num_machines, found.plan.machine_rank, found.plan.num_processes) == (2, 1, 8)
    assert found.warnings == ("SLURM: 2 nodes, 4 process(es) on each",)
    content |= {"num_machines": 2, "num_processes": 6}
    assert plan(STEP, content).num_processes == 6
