"""`accelerate test` as users start it, and what it says when a rank is wrong."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from accelerate.test_utils.processes import path_in_accelerate_package
from accelerate.test_utils.scripts import test_distributed_data_loop, test_ops, test_script, test_sync

COMMAND = [sys.executable, "-m", "accelerate.commands.accelerate_cli"]
NUM_CHECKS = sum(
    len(script.CHECKS) for script in (test_distributed_data_loop, test_ops, test_script, test_sync)
)
LINE = re.compile(r"^(core|operations|data loop|sync): .+ \.\.\. (ok|skipped: .+) \(\d+\.\d\d s\)$")


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False, env=os.environ
    )


@pytest.mark.parametrize("num_processes", [1, 2])
def test_all_checks_pass(num_processes: int) -> None:
    ended = run("test", "--cpu", "--num_processes", str(num_processes))
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert f"{num_processes} process(es)" in lines[2]
    assert [line for line in lines[3:-1] if not LINE.match(line)] == []
    assert len(lines[3:-1]) == NUM_CHECKS == 30
    assert lines[-1] == "Test is a success! You are ready for your distributed training!"


def test_a_script_runs_alone() -> None:
    script = path_in_accelerate_package("test_utils", "scripts", "test_ops.py")
    ended = run("launch", "--cpu", "--num_processes", "2", str(script))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len([line for line in ended.stdout.splitlines() if LINE.match(line)]) == len(test_ops.CHECKS)


def test_a_failure_names_check_and_rank(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from accelerate.test_utils.scripts.report import expect, run\n"
        "def passes(accelerator):\n    pass\n"
        "def fails(accelerator):\n    expect(accelerator.process_index, 0, 'the rank')\n"
        "run('core', {'this one': passes, 'that one': fails, 'never': passes})\n"
    )
    ended = run("launch", "--cpu", "--num_processes", "2", str(script))
    assert ended.returncode == 1
    first, second = ended.stdout.splitlines()
    assert first.startswith("core: this one ... ok")
    assert second == "core: that one ... FAILED on rank 1 of 2: AssertionError: the rank is 1, but must be 0"
    assert ended.stderr.splitlines()[-1] == "AssertionError: the rank is 1, but must be 0"
