"""The rank pool: gloo worker processes that live for the whole test run. Used by the fixture `rank_pool`.

Starting a process that imports torch takes seconds, a call to a worker that has done so takes
milliseconds. Worker number i always plays rank i. A call that fails in good order leaves its workers in
place; a worker that hangs, dies or cannot be cleaned up is killed, and a new one is made when next needed.
"""

import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

from tests.support.rank_worker import RAISED, RESET, STACK_SIGNAL

__all__ = ["MAX_RANKS", "RankError", "RankFailure", "RankPool"]

MAX_RANKS = 4
START_TIMEOUT = 120.0  # seconds; a loaded machine imports torch slowly
RESET_TIMEOUT = 10.0  # seconds
GRACE = 1.0  # seconds that the other ranks have to answer once one has failed
HEAD_START = 0.003  # seconds for rank 0, which makes the store; a rank that comes too early waits 0.3 s
OUTPUT_LIMIT = 20_000  # characters of a rank's output shown in a failure, the last ones
TRACEBACK_START = "most recent call first"


@dataclass(frozen=True, kw_only=True)
class RankFailure:
    """What went wrong on one rank."""

    rank: int
    summary: str  # one line: "raised ValueError", "ended with exit code 3", "timed out after 30 s" ...
    error_type: str = ""  # name of the exception's class, for a rank that raised
    details: str  # traceback or stacks
    output: str  # what the rank wrote to its standard streams during the call

    def __str__(self) -> str:
        """Lay the failure out for a terminal."""
        parts = [f"---- rank {self.rank} {self.summary}", self.details.rstrip()]
        if self.output.strip():
            parts += [f"---- output of rank {self.rank}", self.output.rstrip()]
        return "\n".join(part for part in parts if part)


class RankError(AssertionError):
    """At least one rank did not return. `failures` holds one entry per such rank, the first to fail first."""

    def __init__(self, function: str, num_ranks: int, failures: list[RankFailure]) -> None:
        """Compose the message from every failure, in the order in which they happened."""
        self.failures = failures
        first = failures[0]
        title = f"{function} on {num_ranks} ranks: rank {first.rank} {first.summary}"
        super().__init__("\n\n".join([title, *map(str, failures)]))


class Worker:
    """One process of the pool, as its parent sees it."""

    def __init__(self, rank: int, folder: Path) -> None:
        """Start the process; `answer` then gives its list of complaints (none) once it is ready."""
        self.rank = rank
        self.output_file = folder / f"rank{rank}.output"
        self.stacks_file = folder / f"rank{rank}.stacks"
        self.stacks_file.write_text("")
        self.connection, theirs = Pipe()
        with theirs, open(self.output_file, "ab") as output:
            output.truncate(0)
            script = Path(__file__).with_name("rank_worker.py")
            self.process = subprocess.Popen(
                [sys.executable, "-u", str(script), str(theirs.fileno()), str(self.stacks_file)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=_environment(),
                start_new_session=True,  # Ctrl-C is for pytest, whose end the workers notice
            )

    def send(self, message: bytes) -> None:
        """Send bytes; a worker that has died is noticed by the next `answer`, not here."""
        try:
            self.connection.send_bytes(message)
        except OSError:
            self.connection.close()

    def answer(self) -> Any:
        """Return the next message, or raise EOFError when the process is gone."""
        try:
            return pickle.loads(self.connection.recv_bytes())
        except OSError as error:
            raise EOFError from error

    def is_idle(self) -> bool:
        """Return whether the process lives and has nothing to say: what an end of its pipe would be."""
        return self.process.poll() is None and not self.connection.poll()

    def clear_output(self) -> None:
        """Forget what the process wrote so far."""
        os.truncate(self.output_file, 0)

    def output(self) -> str:
        """Return the last part of what the process wrote since `clear_output`."""
        text = self.output_file.read_text(errors="replace")
        return text if len(text) <= OUTPUT_LIMIT else f"[...]{text[-OUTPUT_LIMIT:]}"

    def stacks(self) -> str:
        """Have the process dump the stack of each of its threads, and return the text."""
        os.truncate(self.stacks_file, 0)
        self.process.send_signal(STACK_SIGNAL)
        end = time.monotonic() + 2.0
        text, before = "", None
        while time.monotonic() < end and (TRACEBACK_START not in text or text != before):
            time.sleep(0.05)
            before, text = text, self.stacks_file.read_text(errors="replace")
        return text or "(the process did not dump its stacks within 2 s)"

    def stop(self) -> int:
        """Kill the process with all that it started, and return its exit code."""
        self.connection.close()
        code = self.process.poll()
        if code is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            code = self.process.wait()
        return code

    def exit_code(self) -> int:
        """Return the exit code of a process whose pipe has ended."""
        try:
            return self.process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            return self.stop()


@dataclass
class Call:
    """One call while it runs: who has answered what."""

    function: str
    workers: list[Worker]
    timeout: float  # seconds
    values: dict[int, Any] = field(default_factory=dict)  # rank -> returned value
    failures: dict[int, RankFailure] = field(default_factory=dict)  # rank -> failure, first to fail first
    lost: list[Worker] = field(default_factory=list)  # killed, dead, or not to be used again

    def collect(self) -> None:
        """Wait for every rank's outcome; once one fails, the others have `GRACE` seconds."""
        deadline = time.monotonic() + self.timeout
        waiting = {worker.connection: worker for worker in self.workers}
        while waiting:
            left = deadline - time.monotonic()
            ready = [waiting.pop(c) for c in _wait(waiting, left)]
            if not ready:
                return self._give_up(waiting.values())
            for worker in ready:
                self._record(worker)
            if self.failures:
                deadline = min(deadline, time.monotonic() + GRACE)
        return None

    def _record(self, worker: Worker) -> None:
        try:
            kind, value, details = worker.answer()
        except EOFError:
            self.fail(worker, f"ended with exit code {worker.exit_code()}", lost=True)
            return
        if kind == RAISED:
            self.fail(worker, f"raised {value}", details, error_type=value)
        else:
            self.values[worker.rank] = pickle.loads(value)

    def _give_up(self, workers: Iterable[Worker]) -> None:
        late = f"was still running {GRACE:g} s after that, and was ended"
        summary = late if self.failures else f"timed out after {self.timeout:g} s"
        for worker in sorted(workers, key=lambda worker: worker.rank):
            self.fail(worker, summary, worker.stacks(), lost=True)

    def settle(self) -> None:
        """Have the workers that answered reset themselves; what they cannot mend is a failure as well."""
        workers = [worker for worker in self.workers if worker not in self.lost]
        for worker in workers:
            worker.send(RESET)
        deadline = time.monotonic() + RESET_TIMEOUT
        for worker in workers:
            try:
                late = not worker.connection.poll(max(0.0, deadline - time.monotonic()))
                complaints = (
                    [f"not reset within {RESET_TIMEOUT:g} s:\n{worker.stacks()}"] if late else worker.answer()
                )
            except (EOFError, OSError):
                complaints = [f"the process ended while being reset, exit code {worker.exit_code()}"]
            if complaints:
                self.fail(worker, "left something behind", "\n".join(complaints), lost=True)

    def fail(
        self, worker: Worker, summary: str, details: str = "", *, error_type: str = "", lost: bool = False
    ) -> None:
        """Note a rank's failure; its first one counts."""
        failure = RankFailure(
            rank=worker.rank, summary=summary, error_type=error_type, details=details, output=worker.output()
        )
        self.failures.setdefault(worker.rank, failure)
        if lost:
            self.lost.append(worker)


class RankPool:
    """Runs functions on 1 to 4 ranks, each a process of its own. One pool serves the whole test run."""

    def __init__(self) -> None:
        """Make an empty pool; workers start with the first call that needs them."""
        self._workers: dict[int, Worker] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None  # outputs and stacks of the workers
        self._ports = _ports()

    def run(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        num_ranks: int = 2,
        timeout: float = 30.0,
        **kwargs: Any,
    ) -> list[Any]:
        """Call `function(*args, **kwargs)` on every rank and return the values in rank order.

        Each rank sees this process's environment, folder, `sys.path` and warning filters as they are now,
        and the variables of a launcher (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and a
        MASTER_PORT of its own). No process group is made. Afterwards the ranks are reset: groups,
        accelerate's state, environment, random generators, torch's defaults.

        Args:
            function: a function of a module that the ranks can import (no lambda, nothing nested).
            args: positional arguments; picklable, as is the value that comes back.
            num_ranks: 1 to 4.
            timeout: seconds for the call itself, without the start of new workers.
            kwargs: keyword arguments.

        Raises:
            RankError: a rank raised, died, timed out, or left something behind that cannot be undone.
            TypeError: the function or an argument cannot be pickled.
        """
        if not 1 <= num_ranks <= MAX_RANKS:
            raise ValueError(f"num_ranks={num_ranks}: the pool has 1 to {MAX_RANKS} ranks")
        name = f"{function.__module__}.{function.__qualname__}"
        payload = _pickled_call(name, function, args, kwargs)
        workers = self._ensure(num_ranks)
        call = Call(name, workers, timeout)
        try:
            self._send(workers, payload)
            call.collect()
            call.settle()
        except BaseException:
            call.lost = workers
            raise
        finally:
            self._discard(call.lost)
        if call.failures:
            raise RankError(name, num_ranks, list(call.failures.values()))
        return [call.values[rank] for rank in range(num_ranks)]

    def pids(self) -> list[int]:
        """Return the process id of every live worker, in rank order."""
        return [self._workers[rank].process.pid for rank in sorted(self._workers)]

    def close(self) -> None:
        """End every worker. The pool can be used again; it then starts new ones."""
        self._discard(list(self._workers.values()))
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _ensure(self, num_ranks: int) -> list[Worker]:
        self._discard([worker for worker in self._workers.values() if not worker.is_idle()])
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="rank-pool-")
        folder = Path(self._folder.name)
        fresh = [Worker(rank, folder) for rank in range(num_ranks) if rank not in self._workers]
        self._workers.update({worker.rank: worker for worker in fresh})
        call = Call("start of the rank pool", fresh, START_TIMEOUT)
        deadline = time.monotonic() + START_TIMEOUT
        for worker in fresh:
            try:
                if worker.connection.poll(max(0.0, deadline - time.monotonic())):
                    worker.answer()
                else:
                    call.fail(worker, f"was not ready after {START_TIMEOUT:g} s", worker.stacks(), lost=True)
            except EOFError:
                call.fail(worker, f"ended with exit code {worker.exit_code()}", lost=True)
        self._discard(call.lost)
        if call.failures:
            raise RankError(call.function, num_ranks, list(call.failures.values()))
        return [self._workers[rank] for rank in range(num_ranks)]

    def _send(self, workers: list[Worker], payload: bytes) -> None:
        port = next(self._ports)
        for worker in workers:
            worker.clear_output()
            surroundings = {
                "path": sys.path,
                "folder": os.getcwd(),
                "environment": _environment() | _launcher_variables(worker.rank, len(workers), port),
                "filters": pickle.dumps(list(warnings.filters)),
            }
            worker.send(pickle.dumps((surroundings, payload)))
            if worker.rank == 0 and len(workers) > 1:
                time.sleep(HEAD_START)

    def _discard(self, workers: list[Worker]) -> None:
        for worker in workers:
            worker.stop()
            self._workers.pop(worker.rank, None)


def _pickled_call(name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> bytes:
    try:
        return pickle.dumps((function, args, kwargs))
    except Exception as error:
        raise TypeError(
            f"rank_pool.run({name}, ...) cannot be sent to the ranks: {error}. "
            "Pass a function defined at the top level of a module, and arguments that can be pickled"
        ) from error


def _wait(waiting: dict[Connection, Worker], seconds: float) -> list[Connection]:
    closed = [connection for connection in waiting if connection.closed]
    return closed or wait(list(waiting), max(0.0, seconds))  # type: ignore[return-value]


def _environment() -> dict[str, str]:
    """Return this process's environment, with defaults that keep ranks from waiting for cores and networks.

    torch's store asks the name server for the name of 127.0.0.1 at each connection, and an answer that is
    lost costs 5 s unless the resolver is told otherwise.
    """
    defaults = {"OMP_NUM_THREADS": "1", "RES_OPTIONS": "timeout:1 attempts:1"}
    if Path("/sys/class/net/lo").exists():
        defaults["GLOO_SOCKET_IFNAME"] = "lo"
    return defaults | dict(os.environ)


def _launcher_variables(rank: int, size: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def _ports() -> Iterator[int]:
    """Yield free ports, never the same one twice in a row of thousands.

    They lie below the range from which systems take the ports of outgoing connections, so that nothing
    but another pool can take one between this look and the store's bind; pools start at different places.
    """
    first, count = 20_000, 10_000
    offset = os.getpid() * 37
    while True:
        offset += 1
        port = first + offset % count
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                continue
        yield port
