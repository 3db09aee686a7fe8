"""What only a real launch shows: ranks, their output, their ends. Scripts without torch start in no time."""

import json
import os
import pty
import resource
import select
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

LAUNCH = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch"]
TIMEOUT = 60.0  # seconds

GLOO = """
import datetime, json, os, pathlib, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
rank = dist.get_rank()
"""

# Says that it is there, and then waits to be ended.
WAIT = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1], os.environ["RANK"]).write_text(str(os.getpid()))
time.sleep(50)
"""


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder in which a launch makes its temporary files, and removes them."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    """Give a function that writes a script and returns its path."""

    def write_script(text: str) -> str:
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(text))
        return str(script)

    return write_script


def launch(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*LAUNCH, "--cpu", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
        env={**os.environ, **environ},
    )


def start(*arguments: str) -> "subprocess.Popen[str]":
    # A session of its own, as a terminal gives it: a signal to the group is Ctrl-C.
    return subprocess.Popen(
        [*LAUNCH, "--cpu", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"


def wait_until(condition: Callable[[], bool], timeout: float = 20.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def wait_for_ranks(folder: Path, count: int = 2) -> list[int]:
    """Return the process numbers of all ranks, once they are all there."""
    files = [folder / str(rank) for rank in range(count)]
    wait_until(lambda: all(file.is_file() and file.read_text() for file in files))
    return [int(file.read_text()) for file in files]


def test_two_ranks_meet_and_leave_without_a_word(
    write: Callable[[str], str], tmp_path: Path, scratch: Path
) -> None:
    script = write(
        GLOO
        + """
total = torch.ones(1)
dist.all_reduce(total)
facts = {"argv": sys.argv[2:], "total": total.item(), "environ": dict(os.environ)}
pathlib.Path(sys.argv[1], str(rank)).write_text(json.dumps(facts))
print(f"rank {rank}\\n", end="")
dist.destroy_process_group()
"""
    )
    caller = {"OMP_NUM_THREADS": "3", "ACCELERATE_MIXED_PRECISION": "bf16"}
    ended = launch("--num_processes", "2", script, str(tmp_path), "--lr", "1", **caller)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert sorted(ended.stdout.splitlines()) == ["rank 0", "rank 1"]
    assert list(scratch.iterdir()) == []
    for rank in (0, 1):
        facts = json.loads((tmp_path / str(rank)).read_text())
        environ = facts["environ"]
        assert facts["argv"] == ["--lr", "1"]
        assert facts["total"] == 2.0
        assert (environ["RANK"], environ["LOCAL_RANK"]) == (str(rank), str(rank))
        assert (environ["WORLD_SIZE"], environ["LOCAL_WORLD_SIZE"]) == ("2", "2")
        assert environ["MASTER_ADDR"] == "127.0.0.1"
        assert (environ["ACCELERATE_USE_CPU"], environ["ACCELERATE_MIXED_PRECISION"]) == ("True", "no")
        assert environ["OMP_NUM_THREADS"] == "3"


# Ranks that have not joined each other write their output piece by piece, as Python does without buffers.
ONE_WRITE = "print('fine\\n', end='')"


def test_a_clean_launch_has_nothing_to_say_even_if_warnings_are_errors(write: Callable[[str], str]) -> None:
    done = launch("--num_processes", "2", write(ONE_WRITE), PYTHONWARNINGS="error")
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\nfine\n", "")


@pytest.mark.parametrize("num_processes", [1, 2])
def test_closed_standard_streams_are_no_failure(write: Callable[[str], str], num_processes: int) -> None:
    command = [*LAUNCH, "--cpu", "--num_processes", str(num_processes), write("print('lost')")]
    shell = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command]
    assert subprocess.run(shell, timeout=TIMEOUT, check=False).returncode == 0


def test_a_full_disk_below_the_logs_does_not_stop_the_ranks(
    write: Callable[[str], str], tmp_path: Path
) -> None:
    script = write("""
        import sys
        for _ in range(1000):
            print("x" * 400, file=sys.stderr)
    """)
    limits = (16 * 1024, 16 * 1024)  # bytes of any one file; more than this fails as on a full disk
    done = subprocess.run(
        [*LAUNCH, "--cpu", "--num_processes", "2", "--log_dir", str(tmp_path / "logs"), script],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count("x" * 400 + "\n") == 2000
    assert done.stderr.count("cannot be written any further: File too large") == 2


def test_logs_that_cannot_be_had_are_an_error_in_a_line(write: Callable[[str], str], tmp_path: Path) -> None:
    below_a_file = tmp_path / "script.py" / "logs"
    done = launch("--num_processes", "2", "--log_dir", str(below_a_file), write("print('fine')"))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert f"--log_dir {below_a_file}: Not a directory" in done.stderr


def test_a_failing_rank_ends_the_launch_and_has_the_last_word(write: Callable[[str], str]) -> None:
    script = write(
        GLOO
        + """
if rank == 1:
    time.sleep(0.5)
    raise ValueError("boom on rank 1")
print("waiting", flush=True)
dist.all_reduce(torch.ones(1))
"""
    )
    begin = time.monotonic()
    ended = launch("--num_processes", "2", script)
    assert time.monotonic() - begin < 25.0  # the group's own time-out is 30
    assert ended.returncode == 1
    assert ended.stdout == "waiting\n"
    lines = ended.stderr.splitlines()
    assert lines[0] == "accelerate launch: rank 1 of 2 failed with exit code 1."
    assert lines[1].startswith("  rank 0: ")
    assert lines[2:4] == ["rank 1:", "Traceback (most recent call last):"]
    assert lines[-1] == "ValueError: boom on rank 1"
    assert ended.stderr.count("Traceback") == 1
    assert "torch/distributed/elastic" not in ended.stderr


def test_a_failure_before_anything_of_ours_is_imported(write: Callable[[str], str]) -> None:
    ended = launch("--num_processes", "2", write("import no_such_module\n"))
    assert ended.returncode == 1
    lines = ended.stderr.splitlines()
    assert lines[-1] == "ModuleNotFoundError: No module named 'no_such_module'"
    assert ended.stderr.count("Traceback") == 1
    folded = lines[1]
    assert ": same error  (" in folded
    log = Path(folded.rsplit("(", 1)[1].rstrip(")"))
    assert "no_such_module" in log.read_text()


def test_a_script_that_does_not_parse(write: Callable[[str], str]) -> None:
    ended = launch("--num_processes", "2", write("def f(:\n"))
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "SyntaxError: invalid syntax"
    assert ended.stderr.count("SyntaxError") == 1


def test_the_scripts_exit_code_is_the_launchers(write: Callable[[str], str]) -> None:
    script = write(
        """
        import os, sys, time
        if os.environ["RANK"] == "1":
            sys.exit(3)
        time.sleep(50)
        """
    )
    begin = time.monotonic()
    ended = launch("--num_processes", "2", script)
    assert time.monotonic() - begin < 25.0
    assert ended.returncode == 3
    assert "rank 1 of 2 failed with exit code 3." in ended.stderr
    assert "rank 0: stopped by the launcher" in ended.stderr
    quiet = launch("-q", "--num_processes", "2", script)
    assert (quiet.returncode, quiet.stderr) == (3, "")


def test_a_rank_that_is_killed_says_how_and_why(write: Callable[[str], str]) -> None:
    script = write(
        GLOO
        + """
if rank == 1:
    time.sleep(0.3)
    os.kill(os.getpid(), 9)
dist.all_reduce(torch.ones(1))
"""
    )
    ended = launch("--num_processes", "2", script)
    assert ended.returncode == 137
    lines = ended.stderr.splitlines()
    assert lines[0] == "accelerate launch: rank 1 of 2 was ended by SIGKILL."
    assert "out of memory" in lines[-1]


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_every_rank(
    number: signal.Signals, status: int, write: Callable[[str], str], tmp_path: Path, scratch: Path
) -> None:
    with start("--num_processes", "2", write(WAIT), str(tmp_path)) as launcher:
        ranks = wait_for_ranks(tmp_path)
        if number == signal.SIGINT:
            os.killpg(launcher.pid, number)
        else:
            launcher.send_signal(number)
        output, errors = launcher.communicate(timeout=TIMEOUT)
    assert launcher.returncode == status
    assert not any(is_alive(pid) for pid in ranks)
    assert list(scratch.iterdir()) == []
    assert errors == f"accelerate launch: {number.name}: ending 2 processes (once more: kill them)\n"
    assert output == ""


def test_an_interrupt_before_there_are_ranks(write: Callable[[str], str]) -> None:
    with start("--num_processes", "2", write(WAIT)) as launcher:
        time.sleep(0.5)  # torch is being imported
        launcher.send_signal(signal.SIGINT)
        output, errors = launcher.communicate(timeout=TIMEOUT)
    assert launcher.returncode == 130
    assert output == ""
    assert len(errors.splitlines()) == 1
    assert errors.startswith("accelerate launch: ")


def test_a_second_signal_kills_ranks_that_do_not_listen(write: Callable[[str], str], tmp_path: Path) -> None:
    script = write("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + WAIT)
    with start("--num_processes", "2", script, str(tmp_path)) as launcher:
        ranks = wait_for_ranks(tmp_path)
        launcher.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert launcher.poll() is None
        launcher.send_signal(signal.SIGINT)
        launcher.communicate(timeout=15)
    assert launcher.returncode == 130
    assert not any(is_alive(pid) for pid in ranks)


def test_ranks_do_not_survive_a_launcher_that_is_killed(write: Callable[[str], str], tmp_path: Path) -> None:
    with start("--num_processes", "2", write(WAIT), str(tmp_path)) as launcher:
        ranks = wait_for_ranks(tmp_path)
        launcher.kill()
        launcher.communicate(timeout=TIMEOUT)
        wait_until(lambda: not any(is_alive(pid) for pid in ranks))


def test_children_of_a_failed_rank_do_not_survive(write: Callable[[str], str], tmp_path: Path) -> None:
    script = write(
        """
        import os, pathlib, subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(50)"])
        pathlib.Path(sys.argv[1], os.environ["RANK"]).write_text(str(child.pid))
        os.kill(os.getpid(), 9)
        """
    )
    ended = launch("--num_processes", "2", script, str(tmp_path))
    assert ended.returncode == 137
    written = [file for rank in (0, 1) if (file := tmp_path / str(rank)).is_file()]
    assert written
    wait_until(lambda: not any(is_alive(int(file.read_text())) for file in written))


def test_restarts_are_told_and_may_succeed(write: Callable[[str], str]) -> None:
    script = write(
        """
        import os, time
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            if os.environ["RANK"] == "1":
                raise ValueError("first time")
            time.sleep(50)
        print("done\\n", end="")
        """
    )
    ended = launch("--num_processes", "2", "--max_restarts", "1", script)
    assert ended.returncode == 0
    assert ended.stdout == "done\ndone\n"
    assert ended.stderr.startswith("Traceback (most recent call last):")
    assert ended.stderr.splitlines()[-1] == (
        "accelerate launch: rank 1 failed with exit code 1: ValueError: first time; "
        "starting all ranks again (1 of 1)"
    )


TWO_STREAMS = """
import os, sys
sys.stdout.write(f"out of {os.environ['RANK']}\\n")
sys.stderr.write(f"err of {os.environ['RANK']}\\n")
"""


def test_log_dir_keeps_both_streams_of_every_rank(write: Callable[[str], str], tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    ended = launch("--num_processes", "2", "--log_dir", str(logs), write(TWO_STREAMS))
    assert ended.returncode == 0
    assert sorted(ended.stdout.splitlines()) == ["out of 0", "out of 1"]
    assert sorted(ended.stderr.splitlines()) == ["err of 0", "err of 1"]
    (run,) = logs.iterdir()
    for rank in (0, 1):
        folder = run / "attempt_0" / str(rank)
        assert (folder / "stdout.log").read_text() == f"out of {rank}\n"
        assert (folder / "stderr.log").read_text() == f"err of {rank}\n"


def test_tee_prefixes_the_streams_that_were_asked_for(write: Callable[[str], str]) -> None:
    ended = launch(
        "--num_processes",
        "2",
        "--tee",
        "0:1,1:2",
        "--role",
        "trainer",
        write(TWO_STREAMS),
    )
    assert sorted(ended.stdout.splitlines()) == ["[trainer0]:out of 0", "out of 1"]
    assert sorted(ended.stderr.splitlines()) == ["[trainer1]:err of 1", "err of 0"]


def test_streams_that_go_to_one_place_keep_their_order(write: Callable[[str], str]) -> None:
    script = write(
        """
        import sys
        for index in range(200):
            (sys.stdout, sys.stderr)[index % 2].write(f"{index}\\n")
        """
    )
    ended = subprocess.run(
        [*LAUNCH, "--cpu", "--num_processes", "2", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    lines = [int(line) for line in ended.stdout.splitlines()]
    assert len(lines) == 400
    # Each rank's lines are in order, so that the numbers are two rising sequences, merged.
    second: list[int] = []
    first: list[int] = []
    for number in lines:
        (first if len(first) == number else second).append(number)
    assert first == second == list(range(200))


def test_a_port_in_use_is_named_and_another_one_taken(write: Callable[[str], str]) -> None:
    script = write("import os, sys; sys.stdout.write(os.environ['MASTER_PORT'] + '\\n')")
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = launch("--num_processes", "2", "--main_process_port", str(port), script)
    assert ended.returncode == 0
    assert ended.stderr.startswith(f"accelerate launch: --main_process_port {port} is in use")
    used = ended.stdout.split()
    assert len(set(used)) == 1
    assert used[0] != str(port)
    assert used[0] in ended.stderr


def test_a_free_port_that_was_asked_for_is_used(write: Callable[[str], str]) -> None:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    ended = launch(
        "--num_processes",
        "2",
        "--main_process_port",
        str(port),
        write("import os, sys; sys.stdout.write(os.environ['MASTER_PORT'] + '\\n')"),
    )
    assert (ended.stdout.split(), ended.stderr) == ([str(port)] * 2, "")


@pytest.fixture
def terminal() -> Iterator[Callable[..., tuple[str, int]]]:
    """Give a function that runs a launch in a terminal and returns what was on it, and the status."""
    children = []

    def run(*arguments: str, press: bytes = b"", after: str = "") -> tuple[str, int]:
        pid, descriptor = pty.fork()
        if pid == 0:
            os.execv(LAUNCH[0], [*LAUNCH, "--cpu", *arguments])
        children.append(pid)
        shown = b""
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            if not select.select([descriptor], [], [], 0.1)[0]:
                continue
            try:
                shown += os.read(descriptor, 65536)
            except OSError:
                break
            if press and after.encode() in shown:
                os.write(descriptor, press)
                press = b""
        os.close(descriptor)
        status = os.waitstatus_to_exitcode(os.waitpid(children.pop(), 0)[1])
        return shown.decode(), status

    yield run
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_in_a_terminal_ranks_have_a_terminal_and_progress_bars_redraw(
    write: Callable[[str], str], terminal: Callable[..., tuple[str, int]]
) -> None:
    script = write(
        """
        import os, sys, time
        assert sys.stdout.isatty() and sys.stderr.isatty()
        if os.environ["RANK"] == "0":
            for step in range(3):
                print(f"\\rstep {step}", end="", file=sys.stderr, flush=True)
                time.sleep(0.1)
            print("\\nend")
        """
    )
    shown, status = terminal("--num_processes", "2", "--log_prefix", "never", script)
    assert status == 0
    assert shown == "\rstep 0\rstep 1\rstep 2\r\nend\r\n"
    shown, status = terminal("--num_processes", "2", script)
    assert status == 0
    assert shown == "\r[0] step 0\r[0] step 1\r[0] step 2\r\n[0] end\r\n"


def test_lines_carry_their_rank_when_asked(write: Callable[[str], str]) -> None:
    done = launch("--num_processes", "2", "--log_prefix", "always", write(TWO_STREAMS))
    assert sorted(done.stdout.splitlines()) == ["[0] out of 0", "[1] out of 1"]
    assert sorted(done.stderr.splitlines()) == ["[0] err of 0", "[1] err of 1"]


def test_a_rank_that_is_stopped_ends_with_the_others(write: Callable[[str], str], tmp_path: Path) -> None:
    with start("--num_processes", "2", write(WAIT), str(tmp_path)) as launcher:
        ranks = wait_for_ranks(tmp_path)
        os.kill(ranks[0], signal.SIGSTOP)
        begin = time.monotonic()
        launcher.send_signal(signal.SIGTERM)
        launcher.communicate(timeout=TIMEOUT)
    assert launcher.returncode == 143
    assert time.monotonic() - begin < 8.0  # the grace period is 10
    assert not any(is_alive(pid) for pid in ranks)


def test_the_grace_period_is_for_saving_and_ends(write: Callable[[str], str], tmp_path: Path) -> None:
    script = write(
        """
        import os, pathlib, signal, sys, time

        def save(number, frame):
            pathlib.Path(sys.argv[1], "saved" + os.environ["RANK"]).write_text("yes")

        signal.signal(signal.SIGTERM, save)
        pathlib.Path(sys.argv[1], os.environ["RANK"]).write_text(str(os.getpid()))
        while True:
            time.sleep(50)
        """
    )
    with start("--num_processes", "2", "--grace_period", "1.5", script, str(tmp_path)) as launcher:
        ranks = wait_for_ranks(tmp_path)
        begin = time.monotonic()
        launcher.send_signal(signal.SIGTERM)
        launcher.communicate(timeout=TIMEOUT)
    assert launcher.returncode == 143
    assert 1.0 < time.monotonic() - begin < 10.0
    assert not any(is_alive(pid) for pid in ranks)
    assert all((tmp_path / f"saved{rank}").is_file() for rank in (0, 1))


def test_restarted_ranks_meet_in_a_store_without_the_former_ones(write: Callable[[str], str]) -> None:
    script = write(
        GLOO
        + """
total = torch.ones(1)
dist.all_reduce(total)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and rank == 1:
    os._exit(5)
dist.barrier()
print(f"{total.item():.0f}\\n", end="", flush=True)
dist.destroy_process_group()
"""
    )
    done = launch("--num_processes", "2", "--max_restarts", "1", script)
    assert (done.returncode, done.stdout) == (0, "2\n2\n"), done.stderr


def test_ctrl_c_in_a_terminal(
    write: Callable[[str], str], terminal: Callable[..., tuple[str, int]], tmp_path: Path
) -> None:
    shown, status = terminal(
        "--num_processes",
        "2",
        "--log_prefix",
        "never",
        write(WAIT.replace("time.sleep", "print('up'); time.sleep")),
        str(tmp_path),
        press=b"\x03",
        after="up\r\nup",
    )
    assert status == 130
    assert shown.replace("^C", "").split("\r\n") == [
        "up",
        "up",
        "accelerate launch: SIGINT: ending 2 processes (once more: kill them)",
        "",
    ]
    assert not any(is_alive(pid) for pid in wait_for_ranks(tmp_path))


def test_from_python_several_ranks_run_and_a_failure_raises(
    write: Callable[[str], str], tmp_path: Path
) -> None:
    script = write("import sys; sys.exit(int(sys.argv[1]))")
    code = f"""
import os, signal, subprocess
from accelerate.commands.launch import launch_command, launch_command_parser
before = dict(os.environ), signal.getsignal(signal.SIGTERM)
parse = launch_command_parser().parse_args
launch_command(parse(["--cpu", "--num_processes", "2", {script!r}, "0"]))
assert (dict(os.environ), signal.getsignal(signal.SIGTERM)) == before
try:
    launch_command(parse(["--cpu", "--num_processes", "2", {script!r}, "6"]))
except subprocess.CalledProcessError as error:
    print("status", error.returncode)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert ended.stdout == "status 6\n", ended.stderr
