"""Forks processes that run a scenario, so that each starts with torch imported: `Server` talks to it.

Run as a script it reads a job a line from its standard input, as JSON, and answers each with a line.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
TIMEOUT = 60.0  # seconds for one job
PATIENCE = 10.0  # seconds for the other ranks to end by themselves once one has died


class Server:
    """A process that forks others. It has no threads, and has imported all that they need."""

    def __init__(self, *prefix: str) -> None:
        """Start the process.

        Args:
            prefix: a command that runs the one behind it.
        """
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        variables["OMP_NUM_THREADS"] = "1"
        variables["PYTHONPATH"] = os.pathsep.join([*sys.path, str(ROOT)])
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "tests.checkpoint.crash.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=variables,
        )

    def run(self, function: str, *args: Any, **job: Any) -> list[dict[str, Any]]:
        """Run a function of the scenario; return for each rank what it reported and how it ended.

        Args:
            function: its name.
            args: its arguments.
            job: `num_ranks`, which are runs of their own with `apart`; `kill` and `fail`, each (rank, number
                of the call), for a rank that dies or gets an error there; `errno` of that error, `lasting`
                for all calls after it; `after`, seconds until all are killed.

        Returns:
            A dictionary a rank: `value`, `reports`, `calls`, `status` (negative for a signal), `seconds`,
            `raised`, `traceback`.
        """
        self._process.stdin.write(json.dumps({"function": function, "args": args, **job}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the server has ended"
        return json.loads(answer)

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()


def _serve() -> None:
    from tests.checkpoint.crash import scenario

    scenario.warm_up()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a scenario prints is no answer
    for line in sys.stdin:
        answers.write(json.dumps(_run(scenario, json.loads(line))) + "\n")
        answers.flush()


def _run(scenario: Any, job: dict[str, Any]) -> list[dict[str, Any]]:
    num_ranks = job.get("num_ranks", 1)
    port = _free_port()
    children, pipes = [], []
    for rank in range(num_ranks):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _child(scenario, job, rank, num_ranks, port, writing)
        os.close(writing)
        children.append(child)
        pipes.append(reading)
    return _wait(children, pipes, job)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _child(scenario: Any, job: dict[str, Any], rank: int, num_ranks: int, port: int, pipe: int) -> None:
    from accelerate.checkpoint import disk

    def report(message: dict[str, Any]) -> None:
        os.write(pipe, json.dumps(message).encode() + b"\n")

    status = 1
    try:
        if num_ranks > 1 and not job.get("apart"):
            os.environ.update(
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                WORLD_SIZE=str(num_ranks),
                LOCAL_WORLD_SIZE=str(num_ranks),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
            )
        warnings.simplefilter("error")
        observer = _Observer(job, rank)
        with disk.observed(observer):
            value = getattr(scenario, job["function"])(*job["args"], report)
        report({"value": value, "calls": observer.number})
        status = 0
    except BaseException as error:
        report({"raised": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()})
    finally:
        os._exit(status)


class _Observer:
    """Counts the calls of one rank to the file layer, and strikes at one of them."""

    def __init__(self, job: dict[str, Any], rank: int) -> None:
        self.number = 0
        self._kill = _call_of(job.get("kill"), rank)
        self._fail = _call_of(job.get("fail"), rank)
        self._errno = job.get("errno", 0)
        self._lasting = job.get("lasting", False)

    def __call__(self, operation: str, *paths: Path) -> None:
        self.number += 1
        if self.number == self._kill:
            os.kill(os.getpid(), signal.SIGKILL)
        grows = operation in ("create", "write", "mkdir", "link", "sync")
        if self.number == self._fail or (self._lasting and self._fail and self.number > self._fail and grows):
            raise OSError(self._errno, os.strerror(self._errno), str(paths[0]))


def _call_of(place: list[int] | None, rank: int) -> int:
    return place[1] if place is not None and place[0] == rank else 0


def _wait(children: list[int], pipes: list[int], job: dict[str, Any]) -> list[dict[str, Any]]:
    start = time.monotonic()
    ends = start + job.get("after", TIMEOUT)
    texts = dict.fromkeys(pipes, b"")
    ended: dict[int, tuple[int, float]] = {}  # rank -> status, seconds
    while len(ended) < len(children):
        _read(texts, timeout=0.01)
        for rank, child in enumerate(children):
            found, status = (0, 0) if rank in ended else os.waitpid(child, os.WNOHANG)
            if found:
                ended[rank] = os.waitstatus_to_exitcode(status), time.monotonic() - start
                if ended[rank][0] < 0:
                    ends = min(ends, time.monotonic() + PATIENCE)
        if time.monotonic() > ends:
            for rank in set(range(len(children))) - ended.keys():
                os.kill(children[rank], signal.SIGKILL)
    while _read(texts, timeout=0):
        continue
    for pipe in pipes:
        os.close(pipe)
    return [_outcome(texts[pipe], *ended[rank]) for rank, pipe in enumerate(pipes)]


def _read(texts: dict[int, bytes], timeout: float) -> bool:
    """Add what has come out of the pipes; return whether that was anything."""
    ready, _, _ = select.select(list(texts), [], [], timeout)
    chunks = {pipe: os.read(pipe, 1 << 16) for pipe in ready}
    for pipe, chunk in chunks.items():
        texts[pipe] += chunk
    if not any(chunks.values()):
        time.sleep(timeout)  # a pipe that has ended is always ready
    return any(chunks.values())


def _outcome(text: bytes, status: int, seconds: float) -> dict[str, Any]:
    messages = [json.loads(line) for line in text.splitlines() if line.endswith(b"}")]
    outcome: dict[str, Any] = {"status": status, "seconds": seconds, "reports": []}
    for message in messages:
        if "value" in message or "raised" in message:
            outcome |= message
        else:
            outcome["reports"].append(message)
    return outcome


if __name__ == "__main__":
    _serve()
