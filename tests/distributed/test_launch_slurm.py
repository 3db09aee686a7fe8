"""`accelerate launch` inside the jobs of a real SLURM with two nodes, both of them this machine."""

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from accelerate.launching.hosts import expand_nodes
from tests.support.slurm_cluster import SlurmCluster, why_not

LAUNCH = f"{sys.executable} -m accelerate.commands.launch --cpu"
SCRIPT = """
import os
import sys
import torch
from accelerate import Accelerator

accelerator = Accelerator()
if "--fail" in sys.argv and accelerator.process_index == 1:
    sys.exit(7)
total = accelerator.reduce(torch.tensor([accelerator.process_index + 1]))
rank, local = accelerator.process_index, accelerator.local_process_index
node = os.environ["SLURMD_NODENAME"]
print(f"rank {rank} {local} {accelerator.num_processes} {total.item()} {node}\\n", end="")
accelerator.end_training()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def run(cluster: SlurmCluster, folder: Path, line: str, *options: str) -> tuple[list[str], str, int]:
    """Run a line as a job; return what the ranks printed, all output and the exit status of the line."""
    (folder / "script.py").write_text(SCRIPT)
    (folder / "job").write_text(f"#!/bin/bash\ncd {folder}\n{line}\necho status $?\n")
    output = folder / "out"
    submitted = cluster.call("sbatch", f"--output={output}", *options, str(folder / "job"))
    assert submitted.returncode == 0, submitted.stderr
    deadline = time.monotonic() + 60
    while True:
        text = output.read_text() if output.exists() else ""
        found = re.search(r"^status (\d+)$", text, re.MULTILINE)
        if found is not None:
            return sorted(line for line in text.splitlines() if line.startswith("rank")), text, int(found[1])
        assert time.monotonic() < deadline, text
        time.sleep(0.1)


def test_each_task_of_a_step_is_a_rank(cluster: SlurmCluster, tmp_path: Path) -> None:
    ranks, text, status = run(cluster, tmp_path, f"srun -n3 {LAUNCH} script.py", "--nodes=2", "--ntasks=3")
    assert status == 0, text
    assert ranks == ["rank 0 0 3 6 127.0.0.1", "rank 1 1 3 6 127.0.0.1", "rank 2 0 3 6 127.0.0.2"]


def test_the_status_of_a_rank_is_that_of_the_step(cluster: SlurmCluster, tmp_path: Path) -> None:
    line = f"srun -n2 --kill-on-bad-exit=0 {LAUNCH} --no_python bash -c 'exit $((RANK * 7))'"
    _, text, status = run(cluster, tmp_path, line, "--nodes=1", "--ntasks=2")
    assert status == 7, text


def test_a_job_of_one_node_is_a_machine(cluster: SlurmCluster, tmp_path: Path) -> None:
    ranks, text, status = run(cluster, tmp_path, f"{LAUNCH} --num_processes 2 script.py", "--nodes=1", "-c2")
    assert status == 0, text
    assert [rank.rpartition(" ")[0] for rank in ranks] == ["rank 0 0 2 3", "rank 1 1 2 3"]


def test_a_job_reaches_its_nodes(cluster: SlurmCluster, tmp_path: Path) -> None:
    options = ("--nodes=2", "--ntasks-per-node=2")
    ranks, text, status = run(cluster, tmp_path, f"{LAUNCH} --num_processes 4 script.py", *options)
    assert status == 0, text
    first = ["rank 0 0 4 10 127.0.0.1", "rank 1 1 4 10 127.0.0.1"]
    assert ranks == [*first, "rank 2 0 4 10 127.0.0.2", "rank 3 1 4 10 127.0.0.2"]


def test_a_failure_ends_all_nodes(cluster: SlurmCluster, tmp_path: Path) -> None:
    _, text, status = run(cluster, tmp_path, f"{LAUNCH} script.py --fail", "--nodes=2")
    assert status == 7, text


def test_names_of_nodes_as_slurm_expands_them(cluster: SlurmCluster) -> None:
    for text in ("n[1-3,07-09]", "a,b[2-3]", "r[1-2]n[01-02]"):
        assert cluster.call("scontrol", "show", "hostnames", text).stdout.split() == expand_nodes(text)
