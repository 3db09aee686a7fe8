"""Run scripts and commands from a test, with their output and their failure told. Called by users' tests."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from accelerate.compat import env as environment

__all__ = [
    "DEFAULT_LAUNCH_COMMAND",
    "RunOutput",
    "SubprocessCallException",
    "execute_subprocess_async",
    "get_launch_command",
    "get_torch_dist_unique_port",
    "path_in_accelerate_package",
    "pytest_xdist_worker_id",
    "run_command",
]

_DEFAULT_PORT = 29500
_LINE_LIMIT = 2**26  # bytes; asyncio gives up on longer lines, and its own limit is 64 KiB
_CONSOLE = ("-m", "accelerate.commands.accelerate_cli")


class SubprocessCallException(Exception):
    """A command ended with an exit status other than 0; the message holds its output."""


class RunOutput:
    """How a process ended and what it printed.

    Attributes:
        returncode: its exit status.
        stdout, stderr: lines, without line ends.
    """

    def __init__(self, returncode: int, stdout: list[str], stderr: list[str]) -> None:
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr


def execute_subprocess_async(
    cmd: Sequence[Any],
    env: Mapping[str, str] | None = None,
    stdin: Any = None,
    timeout: float = 180,
    quiet: bool = False,
    echo: bool = True,
) -> RunOutput:
    """Run a command, show its lines as they come, and return them when it has ended.

    Args:
        cmd: the program and its arguments. `accelerate` means the one that belongs to this Python.
        env: the whole environment of the process; that of this one when None.
        stdin: a file for it to read; that of this process when None.
        timeout: seconds after which it is killed, with all processes that it started.
        quiet: do not show its lines.
        echo: print the command first.

    Raises:
        RuntimeError: it ended with an exit status other than 0, or was killed after `timeout`; the message
            holds what it wrote to standard error.

    Example:
        >>> ended = execute_subprocess_async([sys.executable, "-c", "print(2)"], quiet=True, echo=False)
        >>> ended.returncode, ended.stdout
        (0, ['2'])
    """
    command = [str(part) for part in cmd]
    shown = " ".join(command)
    if echo:
        print("\nRunning: ", shown, flush=True)
    result, in_time = asyncio.run(_run(_of_this_python(command), env, stdin, timeout, quiet))
    told = "\n".join(result.stderr)
    if not in_time:
        raise RuntimeError(
            f"'{shown}' was killed after timeout={timeout} seconds.\n\n"
            f"The combined stderr from workers follows:\n{told}"
        )
    if result.returncode != 0:
        raise RuntimeError(
            f"'{shown}' failed with returncode {result.returncode}\n\n"
            f"The combined stderr from workers follows:\n{told}"
        )
    return result


async def _run(
    command: list[str], env: Mapping[str, str] | None, stdin: Any, timeout: float, quiet: bool
) -> tuple[RunOutput, bool]:
    """Return what the process printed, and whether it ended in time."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
        limit=_LINE_LIMIT,
        start_new_session=os.name == "posix",  # so that a time-out reaches the ranks as well
    )
    assert process.stdout is not None
    assert process.stderr is not None
    result = RunOutput(0, [], [])
    reading = asyncio.gather(
        _read(process.stdout, result.stdout, None if quiet else sys.stdout, "stdout:"),
        _read(process.stderr, result.stderr, None if quiet else sys.stderr, "stderr:"),
        process.wait(),
    )
    in_time = True
    try:
        await asyncio.wait_for(reading, timeout)
    except asyncio.TimeoutError:  # until Python 3.11 not the builtin TimeoutError
        in_time = False
    finally:
        if process.returncode is None or not in_time:
            _kill(process)
    result.returncode = await process.wait()
    return result, in_time


async def _read(stream: asyncio.StreamReader, lines: list[str], to: TextIO | None, label: str) -> None:
    while line := await stream.readline():
        text = line.decode("utf-8", errors="replace").rstrip()
        lines.append(text)
        if to is not None:
            print(label, text, file=to, flush=True)


def _kill(process: asyncio.subprocess.Process) -> None:
    try:
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except ProcessLookupError:
        return  # it has just ended by itself


def run_command(
    command: Sequence[Any], return_stdout: bool = False, env: Mapping[str, str] | None = None
) -> str | None:
    """Run a command and wait for it.

    Args:
        command: the program and its arguments. `accelerate` means the one that belongs to this Python.
        return_stdout: return what it printed, standard error included; otherwise None.
        env: the whole environment of the process; that of this one when None.

    Raises:
        SubprocessCallException: it ended with an exit status other than 0; the message holds its output.

    Example:
        >>> run_command([sys.executable, "-c", "print(2)"], return_stdout=True)
        '2\\n'
    """
    parts = [str(part) for part in command]
    ended = subprocess.run(
        _of_this_python(parts),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=None if env is None else dict(env),
        check=False,
    )
    output = ended.stdout.decode("utf-8", errors="replace")
    if ended.returncode != 0:
        raise SubprocessCallException(
            f"Command `{' '.join(parts)}` failed with the following error:\n\n{output}"
        )
    return output if return_stdout else None


def _of_this_python(command: list[str]) -> list[str]:
    """Replace `accelerate`, of which PATH may know another one or none, by the one of this interpreter."""
    if command[:1] == ["accelerate"]:
        return [sys.executable, *_CONSOLE, *command[1:]]
    return command


def get_launch_command(**kwargs: Any) -> list[str]:
    """Return the command that launches a script, which the caller adds to it.

    Args:
        kwargs: options of `accelerate launch` by name: True for a flag, None for what is to be left out.

    Example:
        >>> get_launch_command(num_processes=2, cpu=True)
        ['accelerate', 'launch', '--num_processes=2', '--cpu']
    """
    command = ["accelerate", "launch"]
    for name, value in kwargs.items():
        if value is not None:
            command.append(f"--{name}" if value is True else f"--{name}={value}")
    return command


def pytest_xdist_worker_id() -> int:
    """Return the number of this worker of pytest-xdist, 0 where tests run one after the other."""
    worker = environment.get("PYTEST_XDIST_WORKER") or "gw0"
    return int(worker.removeprefix("gw"))


def get_torch_dist_unique_port() -> int:
    """Return a port for the process group of a test that no other worker of pytest-xdist gets."""
    return _DEFAULT_PORT + pytest_xdist_worker_id()


def path_in_accelerate_package(*components: str) -> Path:
    """Return the path of a file or folder of this package.

    Example:
        >>> path_in_accelerate_package("test_utils", "scripts").name
        'scripts'
    """
    return Path(__file__).resolve().parents[1].joinpath(*components)


DEFAULT_LAUNCH_COMMAND = get_launch_command(num_processes=1, monitor_interval=0.1)
