import os
import sys
from pathlib import Path
from typing import Any

import pytest

from accelerate.launching import mpi
from accelerate.launching.machine import Machine
from accelerate.launching.mpi import MpiLauncher, find_kind, kind_of
from accelerate.launching.plan import Resolution, resolve
from accelerate.launching.select import select

HOSTS = {"two": "a slots=2\nb slots=2\n", "plain": "a\nb\n", "here": "localhost slots=3\n"}


def resolution(file: str, kind: str | None = None, **typed: Any) -> Resolution:
    machine = Machine(
        installed_gpus=0,
        gpus=0,
        evidence="none",
        cores=4,
        read_text=HOSTS.get,
        find_mpi=lambda: "openmpi",
    )
    fixed = {"training_script": "t.py", "training_script_args": ["--x"], "mpirun_hostfile": file, "cpu": True}
    return resolve({**fixed, "mpirun_kind": kind, **typed}, machine, {})


def command(file: str, kind: str | None = None, **typed: Any) -> str:
    plan = resolution(file, kind, **typed).checked()
    assert isinstance(select(plan), MpiLauncher)
    return " ".join(MpiLauncher().command(plan)).replace(sys.executable, "python")


def test_open_mpi_is_told_what_to_pass_on() -> None:
    line = command("two")
    assert line.startswith("mpirun --hostfile two -np 4 --map-by ppr:2:node:OVERSUBSCRIBE --bind-to none -x ")
    assert line.endswith(" python -u t.py --x")
    for name in ("OMP_NUM_THREADS", "ACCELERATE_USE_CPU", "MASTER_ADDR", "MASTER_PORT", "PYTHONPATH"):
        assert line.count(f"-x {name} ") == 1


@pytest.mark.parametrize("kind", ["intel", "mpich"])
def test_hydra(kind: str) -> None:
    program = "mpirun" if kind == "intel" else "mpiexec"
    assert command("two", kind) == f"{program} -f two -n 4 -ppn 2 -genvall python -u t.py --x"


def test_mvapich() -> None:
    expected = "mpirun_rsh -export-all -np 6 -hostfile plain python -u t.py --x"
    assert command("plain", "mvapich", num_processes=6) == expected


def test_the_list_says_how_many_and_where() -> None:
    plan = resolution("two").checked()
    found = plan.num_machines, plan.num_processes, plan.main_process_ip, plan.main_process_port
    assert found == (2, 4, "a", 29500)
    assert plan.sources["num_processes"] == "detected"
    assert MpiLauncher().environ(plan)["MASTER_ADDR"] == "a"
    assert resolution("plain").checked().num_processes == 2
    assert resolution("two", num_processes=8, main_process_ip="c").checked().main_process_ip == "c"


def test_processes_are_shared_out_evenly() -> None:
    (problem,) = resolution("two", num_processes=3).problems
    assert "2 machines cannot share it evenly" in problem


def test_one_machine_takes_a_free_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    plan = resolution("here").checked()
    assert plan.num_processes == 3
    assert "MASTER_PORT" not in MpiLauncher().environ(plan)
    local = MpiLauncher().local_environ(plan)
    assert int(local["MASTER_PORT"]) > 1023
    assert local["OMPI_ALLOW_RUN_AS_ROOT"] == "1"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "OMPI_ALLOW_RUN_AS_ROOT" not in MpiLauncher().local_environ(plan)


def test_the_callers_rank_is_not_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.setenv(name, "0")
    full = MpiLauncher().full_environ(resolution("here").plan)
    assert not full.keys() & {"RANK", "WORLD_SIZE", "LOCAL_RANK"}
    assert full["MASTER_ADDR"] == "127.0.0.1"


def test_what_has_no_effect() -> None:
    (warning,) = resolution("here", max_restarts=1, log_dir="logs").warnings
    assert warning == "--log_dir, --max_restarts: no effect, since mpirun starts the processes"


def test_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    plan = resolution("two", training_script=__file__).plan
    no_file, no_program = MpiLauncher().problems(plan)
    assert "two: there is no such file" in no_file
    assert "no mpirun on PATH" in no_program
    (tmp_path / "empty").write_text("# none\n")
    plan = resolution(str(tmp_path / "empty"), training_script=__file__).plan
    assert "empty: it lists no machine" in MpiLauncher().problems(plan)[0]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("mpirun (Open MPI) 5.0.11\n", "openmpi"),
        ("mpirun (OpenRTE) 2.1.1\n", "openmpi"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.12 Build 20240213", "intel"),
        ("HYDRA build details:\n    Version: 4.2.0\n", "mpich"),
        ("", "openmpi"),
    ],
)
def test_whose_it_is(text: str, kind: str) -> None:
    assert kind_of(text) == kind


def test_it_is_asked_for_its_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_kind() is None
    (tmp_path / "mpirun_rsh").write_text("#!/bin/sh\n")
    (tmp_path / "mpirun_rsh").chmod(0o755)
    assert find_kind() == "mvapich"
    (tmp_path / "mpiexec").write_text("#!/bin/sh\necho HYDRA build details\n")
    (tmp_path / "mpiexec").chmod(0o755)
    assert find_kind() == "mpich"
    (tmp_path / "mpirun").write_text("no program\n")
    (tmp_path / "mpirun").chmod(0o755)
    assert find_kind() == "openmpi"  # it cannot be run: the launch will say so


def test_its_exit_status_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi.MpiLauncher, "command", lambda self, plan: ["sh", "-c", "exit 7"])
    assert MpiLauncher().run(resolution("here").plan) == 7
