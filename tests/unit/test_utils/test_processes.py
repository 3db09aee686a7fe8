import sys
import time
from pathlib import Path

import pytest

import accelerate
from accelerate.test_utils import processes
from accelerate.test_utils.processes import (
    DEFAULT_LAUNCH_COMMAND,
    SubprocessCallException,
    execute_subprocess_async,
    get_launch_command,
    get_torch_dist_unique_port,
    path_in_accelerate_package,
    pytest_xdist_worker_id,
    run_command,
)

BOTH = 'import sys; print("out"); print("err", file=sys.stderr)'


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_lines_are_shown_and_returned(capsys: pytest.CaptureFixture[str]) -> None:
    ended = execute_subprocess_async(python(BOTH))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, ["out"], ["err"])
    shown = capsys.readouterr()
    assert shown.out == f"\nRunning:  {sys.executable} -c {BOTH}\nstdout: out\n"
    assert shown.err == "stderr: err\n"


def test_quiet_and_without_echo(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute_subprocess_async(python(BOTH), quiet=True, echo=False).stdout == ["out"]
    assert capsys.readouterr() == ("", "")


def test_a_failure_holds_the_standard_error() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)failed with returncode 3.*follows:\nerr"):
        execute_subprocess_async(python(BOTH + "; sys.exit(3)"), quiet=True)


def test_the_environment_is_the_one_given() -> None:
    code = 'import os; print(os.environ.get("GIVEN"), "PATH" in os.environ)'
    assert execute_subprocess_async(python(code), env={"GIVEN": "1"}).stdout == ["1 False"]
    assert run_command(python(code), return_stdout=True, env={"GIVEN": "1"}) == "1 False\n"


def test_long_lines_arrive_whole() -> None:
    (line,) = execute_subprocess_async(python("print('x' * 300_000)"), quiet=True).stdout
    assert len(line) == 300_000


def test_a_time_out_kills_what_was_started_too(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    child = f"import time, pathlib; time.sleep(3); pathlib.Path({str(mark)!r}).touch()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    began = time.monotonic()
    with pytest.raises(RuntimeError, match=r"killed after timeout=0\.5 seconds"):
        execute_subprocess_async(python(parent), timeout=0.5, quiet=True)
    assert time.monotonic() - began < 2.5
    time.sleep(3.2 - (time.monotonic() - began))
    assert not mark.exists()


def test_run_command(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(BOTH)
    output = run_command([sys.executable, script], return_stdout=True)
    assert output is not None
    assert sorted(output.splitlines()) == ["err", "out"]
    assert run_command([sys.executable, script]) is None


def test_a_failing_command_shows_its_output() -> None:
    with pytest.raises(SubprocessCallException, match=r"(?s)Command `.*` failed.*out.*ZeroDivisionError"):
        run_command(python('print("out", flush=True); 1/0'))


def test_accelerate_is_the_one_of_this_python() -> None:
    assert "usage: accelerate <command>" in str(run_command(["accelerate", "--help"], return_stdout=True))
    assert execute_subprocess_async(["accelerate", "--help"], quiet=True, echo=False).returncode == 0


def test_launch_commands() -> None:
    assert get_launch_command(num_processes=2, cpu=True, debug=None, tee="3") == [
        "accelerate",
        "launch",
        "--num_processes=2",
        "--cpu",
        "--tee=3",
    ]
    assert DEFAULT_LAUNCH_COMMAND == ["accelerate", "launch", "--num_processes=1", "--monitor_interval=0.1"]


def test_the_default_command_launches(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.argv[1])")
    assert run_command([*DEFAULT_LAUNCH_COMMAND, script, "argument"], return_stdout=True) == "argument\n"


def test_workers_of_xdist_have_ports_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    assert (pytest_xdist_worker_id(), get_torch_dist_unique_port()) == (0, 29500)
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw3")
    assert (pytest_xdist_worker_id(), get_torch_dist_unique_port()) == (3, 29503)


def test_paths_in_the_package() -> None:
    assert path_in_accelerate_package() == Path(str(accelerate.__file__)).resolve().parent
    assert path_in_accelerate_package("test_utils", "processes.py") == Path(processes.__file__).resolve()
