"""Launches from a configuration file, for real."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

LAUNCH = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch"]
SCRIPT = """
import os, sys
names = ("RANK", "WORLD_SIZE", "ACCELERATE_MIXED_PRECISION", "ACCELERATE_USE_CPU", "MASTER_PORT")
print(" ".join(os.environ[name] for name in names) + "\\n", end="")
"""


def _without_ours(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.startswith("ACCELERATE_")}


@pytest.fixture
def run(tmp_path: Path) -> "Run":
    return Run(tmp_path)


class Run:
    """Writes a script and a configuration, and launches the one with the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "script.py").write_text(SCRIPT)

    def __call__(
        self, config: str, *arguments: str, default: bool = False
    ) -> "subprocess.CompletedProcess[str]":
        home = self._folder / "home/accelerate"
        home.mkdir(parents=True, exist_ok=True)
        file = home / "default_config.yaml" if default else self._folder / "config.yaml"
        file.write_text(config)
        named = [] if default else ["--config_file", str(file)]
        return subprocess.run(
            [*LAUNCH, *named, *arguments, str(self._folder / "script.py")],
            env={**_without_ours(os.environ), "HF_HOME": str(self._folder / "home")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


def test_two_ranks_by_the_default_file(run: Run) -> None:
    ended = run("distributed_type: MULTI_CPU\nnum_processes: 2\nmixed_precision: bf16\n", default=True)
    assert ended.returncode == 0, ended.stderr
    lines = sorted(line.split()[:4] for line in ended.stdout.splitlines())
    assert lines == [["0", "2", "bf16", "True"], ["1", "2", "bf16", "True"]]


def test_flags_win(run: Run) -> None:
    config = "distributed_type: MULTI_CPU\nnum_processes: 2\nmixed_precision: bf16\n"
    ended = run(config, "--num_processes", "3", "--mixed_precision", "no")
    assert ended.returncode == 0, ended.stderr
    assert sorted(line.split()[:3] for line in ended.stdout.splitlines()) == [
        [str(r), "3", "no"] for r in range(3)
    ]


def test_a_port_that_is_taken_is_another_one(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run(f"distributed_type: MULTI_CPU\nnum_processes: 2\nmain_process_port: {port}\n")
    assert ended.returncode == 0, ended.stderr
    assert {line.split()[4] for line in ended.stdout.splitlines()} != {str(port)}
    assert f"{port} is in use" in ended.stderr


def test_with_mistakes_nothing_starts(run: Run) -> None:
    ended = run(
        "distributed_type: MULTI_CPU\nnum_proceses: 2\nfsdp_config:\n  fsdp_versoin: 2\n", "--tee", "9"
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "3 problems, nothing was started" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_explain_is_what_a_launch_does(run: Run) -> None:
    config = "distributed_type: MULTI_CPU\nnum_processes: 2\nmixed_precision: bf16\ndebug: true\n"
    explained = run(config, "--explain").stdout
    promised = dict(
        line.strip().split("=", 1) for line in explained.splitlines() if line.startswith("  ACCELERATE_")
    )
    Path(run._folder / "script.py").write_text(
        "import os\nif os.environ['RANK'] == '0':\n"
        "    print(*(f'{k}={v}' for k, v in os.environ.items() if k.startswith('ACCELERATE_')), sep='\\n')\n"
    )
    given = dict(line.split("=", 1) for line in run(config).stdout.splitlines())
    assert given == promised
