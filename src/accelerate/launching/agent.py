"""The ranks of one machine under torch elastic's agent. Called by elastic.py; this room's only torch.

[Note: who does what]
The *agent* (torch) starts, polls and restarts the ranks and hosts the store in which they meet. The
*console* (ours) carries their output. *Signals* that ask to end come to us alone, since the ranks live in
sessions of their own. The *watchdog* is a process that outlives us just long enough to end the ranks if we
are killed.
"""

import errno
import logging
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from torch.distributed import DistNetworkError
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.api import to_map
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from accelerate.compat import env
from accelerate.compat.system import get_free_port, is_port_in_use
from accelerate.errors import ConfigurationError, LaunchError
from accelerate.launching.base import exit_status
from accelerate.launching.console import STDERR, STDOUT, Console, same_target
from accelerate.launching.guard import Signals, Watchdog
from accelerate.launching.postmortem import Ending, examine, keep_tails
from accelerate.launching.report import failure_report, first_failure, restart_notice
from accelerate.options.launch import LaunchPlan

__all__ = ["run_ranks"]

_LOOPBACK = "127.0.0.1"
_BIND_ATTEMPTS = 5  # a free port may be taken by somebody else before we listen on it
_LEFTOVER_GRACE = 2.0  # seconds for processes that a dead rank left behind
# A rank that is starting may lose an interrupt (importing torch does that) or sit in native code, waiting for
# a peer that is gone. It has nothing to save yet, so that it may be asked in a way that needs no answer.
_STARTUP = 30.0  # seconds
_STARTUP_GRACE = 2.0  # seconds
_SIGNALS_VARIABLE = "TORCHELASTIC_SIGNALS_TO_HANDLE"


def run_ranks(plan: LaunchPlan, command: list[str]) -> int:
    """Run all ranks of `plan` and return the exit status of the launch.

    Args:
        plan: the launch; one machine.
        command: argument list of one rank.

    Raises:
        ConfigurationError: there can be no files in the folder that logs were to go into.
        LaunchError: no port could be had, or the machine has no room for the ranks (files, memory, disk).
    """
    with ExitStack() as stack:
        stack.enter_context(_elastic_logs(shown=plan.debug))
        # The agent's own handlers would cut the start of the ranks in two; it skips names it does not know.
        stack.enter_context(env.patch_environment(**{_SIGNALS_VARIABLE: "none"}))
        console = Console()
        stack.callback(console.close)
        launch = _Launch(plan, command, console, stack)
        return launch.run()


class _Launch:
    """One launch from its first attempt to its end."""

    def __init__(self, plan: LaunchPlan, command: list[str], console: Console, stack: ExitStack) -> None:
        self._plan = plan
        self._command = command
        self._console = console
        self._begin = time.monotonic()
        self._run_id = uuid.uuid4().hex[:12]
        self._logs = RankLogs(plan, console, self._run_id)
        stack.callback(self._logs.discard_unless_kept)
        self._watchdog = stack.enter_context(Watchdog())
        self._signals = stack.enter_context(Signals(self._interrupted, self._watchdog.kill))

    def run(self) -> int:
        """Run to the end and report."""
        try:
            result = self._run_agent()
        except SignalException as interruption:
            self._watchdog.end(_LEFTOVER_GRACE)
            # Each rank printed a traceback of its own interruption: that is no news.
            self._console.finish(untold=frozenset(range(self._plan.num_processes)))
            return 128 + interruption.sigval
        endings = _endings(result)
        if not endings:
            self._console.finish(untold=frozenset())
            return 0
        self._watchdog.end(_LEFTOVER_GRACE)
        return self._report(endings)

    def _run_agent(self) -> RunResult:
        for _ in range(_BIND_ATTEMPTS):
            port = self._port()
            agent = RankAgent(self._spec(port), self._logs, self._console, self._watchdog, self._signals)
            try:
                result: RunResult = agent.run()
                return result
            except DistNetworkError as error:
                reason = error
            except OSError as error:
                raise LaunchError(f"the ranks cannot be run: {error}{_remedy(error)}") from error
        raise LaunchError(f"no port to meet at could be had: {reason}") from reason

    def _port(self) -> int:
        asked = self._plan.main_process_port
        if asked and not is_port_in_use(asked):
            return asked
        port = get_free_port()
        if asked:
            self._console.say(
                f"accelerate launch: --main_process_port {asked} is in use, probably by another launch; "
                f"using {port} instead\n"
            )
        return port

    def _spec(self, port: int) -> WorkerSpec:
        plan = self._plan
        address = plan.main_process_ip or _LOOPBACK
        handler = get_rendezvous_handler(
            RendezvousParameters(
                backend="static",
                endpoint=f"[{address}]:{port}" if ":" in address else f"{address}:{port}",
                run_id=self._run_id,
                min_nodes=plan.num_machines,
                max_nodes=plan.num_machines,
                rank=0,
            )
        )
        return WorkerSpec(
            role=plan.role,
            local_world_size=plan.num_processes,
            entrypoint=self._command[0],
            args=tuple(self._command[1:]),
            rdzv_handler=handler,
            max_restarts=plan.max_restarts,
            monitor_interval=plan.monitor_interval,
            master_addr=address,
            master_port=port,
        )

    def _interrupted(self, number: signal.Signals) -> SignalException:
        if not self._plan.quiet:
            self._console.say(
                f"accelerate launch: {number.name}: ending {self._plan.num_processes} processes "
                "(once more: kill them)\n"
            )
        self._console.expect_end()
        if number is signal.SIGINT and time.monotonic() - self._begin < _STARTUP:
            self._watchdog.insist(signal.SIGTERM, _STARTUP_GRACE)
        return SignalException(f"launcher got {number.name}", sigval=number)

    def _report(self, endings: list[Ending]) -> int:
        self._console.drain()
        files = self._logs.files or keep_tails(endings, self._console, self._logs.folder)
        failures = examine(endings, self._console, files)
        first = first_failure(failures)
        if self._plan.quiet:
            self._console.finish(untold=frozenset())
        else:
            self._console.finish(untold=frozenset(ending.local_rank for ending in endings))
            self._logs.keep(any(failure.log for failure in failures if failure is not first))
            self._console.say(failure_report(failures, self._plan.num_processes))
        return exit_status(first.return_code)


class RankAgent(LocalElasticAgent):
    """torch's agent, which also tells the console and the watchdog about the processes that it starts."""

    def __init__(
        self, spec: WorkerSpec, logs: "RankLogs", console: Console, guard: Watchdog, signals: Signals
    ) -> None:
        super().__init__(spec, logs_specs=logs)
        self._logs = logs
        self._console = console
        self._guard = guard
        self._signals = signals
        self._last_result: RunResult | None = None

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        if self._last_result is not None:
            self._end_attempt(self._last_result, worker_group.spec.max_restarts)
        with self._signals.deferred():
            processes: dict[int, Any] = super()._start_workers(worker_group)
            self._signals.install()
            self._guard.guard(processes.values())
            for local_rank, pid in processes.items():
                self._console.watch(local_rank, pid)
        self._close_streams()
        return processes

    def _close_streams(self) -> None:
        """Close our own copies of the ranks' streams, which torch leaves to the garbage collector."""
        handlers: dict[int, Any] = getattr(self._pcontext, "subprocess_handlers", {})
        for handler in handlers.values():
            for stream in (handler._stdout, handler._stderr):
                if stream is not None:
                    stream.close()

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        self._last_result = super()._monitor_workers(worker_group)
        return self._last_result

    def _end_attempt(self, result: RunResult, max_restarts: int) -> None:
        """Tell of the attempt that failed, before the next one begins."""
        self._console.drain()
        failures = examine(_endings(result), self._console, {})
        self._console.finish(untold=frozenset())
        attempt = max_restarts - self._remaining_restarts
        self._console.say(restart_notice(failures, attempt, max_restarts))


class RankLogs(LogsSpecs):
    """Where each rank writes: to the console, and into files where those were asked for.

    Attributes:
        folder: holds the error files of the ranks and their logs.
        files: local rank -> log of its standard error, in the current attempt.
    """

    def __init__(self, plan: LaunchPlan, console: Console, run_id: str) -> None:
        super().__init__(log_dir=plan.log_dir)
        self.files: dict[int, str] = {}
        self._plan = plan
        self._console = console
        self._tee: dict[int, Std] = to_map(Std.from_str(plan.tee), plan.num_processes)
        self._kept = plan.log_dir is not None or any(self._tee.values())
        self.folder = _new_folder(plan.log_dir, run_id)

    @property
    def root_log_dir(self) -> str:
        """The folder, by the name that torch gives it."""
        return str(self.folder)

    def keep(self, wanted: bool) -> None:
        """Leave the folder in place after the launch, if `wanted` or if it was asked for anyway."""
        self._kept = self._kept or wanted

    def discard_unless_kept(self) -> None:
        """Remove the folder of a launch that asked for no logs and has nothing to show."""
        if not self._kept:
            shutil.rmtree(self.folder, ignore_errors=True)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Open the streams of one attempt. Called by the agent just before it starts the processes."""
        destination = LogsDest()
        self.files = {}
        attempt = envs[0]["TORCHELASTIC_RESTART_COUNT"]
        for local_rank, variables in envs.items():
            folder = self.folder / f"attempt_{attempt}" / str(local_rank)
            folder.mkdir(parents=True, exist_ok=True)
            error_file = str(folder / "error.json")
            destination.error_files[local_rank] = error_file
            variables["TORCHELASTIC_ERROR_FILE"] = error_file
            variables[_SIGNALS_VARIABLE] = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
            out, err = self._open(local_rank, folder)
            destination.stdouts[local_rank] = out
            destination.stderrs[local_rank] = err
        return destination

    def _open(self, local_rank: int, folder: Path) -> tuple[str, str]:
        """Return the paths for standard output and error; an empty one means: as the launcher's."""
        tee = self._tee[local_rank]
        keep = self._plan.log_dir is not None
        if not keep and not tee and same_target(STDOUT, STDERR):
            path = self._console.add(local_rank, STDERR)
            return path, path
        prefix = f"[{self._plan.role}{local_rank}]:"
        error_log = str(folder / "stderr.log") if keep or Std.ERR in tee else None
        if error_log is not None:
            self.files[local_rank] = error_log
        err = self._console.add(local_rank, STDERR, prefix=prefix if Std.ERR in tee else "", log=error_log)
        if not keep and Std.OUT not in tee:
            return "", err
        output_log = str(folder / "stdout.log")
        out = self._console.add(local_rank, STDOUT, prefix=prefix if Std.OUT in tee else "", log=output_log)
        return out, err


def _new_folder(log_dir: str | None, run_id: str) -> Path:
    """Make and return a folder for this launch alone, inside of `log_dir`, or among temporary files."""
    try:
        if log_dir is None:
            return Path(tempfile.mkdtemp(prefix="accelerate_launch_"))
        Path(log_dir).mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{run_id}_", dir=log_dir)).absolute()
    except OSError as error:
        where = "no temporary folder can be made" if log_dir is None else f"--log_dir {log_dir}"
        raise ConfigurationError(
            f"{where}: {error.strerror}; give a folder in which files can be written"
            + (" in the variable TMPDIR" if log_dir is None else "")
        ) from error


def _remedy(error: OSError) -> str:
    return "; allow more with `ulimit -n`" if error.errno == errno.EMFILE else ""


def _endings(result: RunResult) -> list[Ending]:
    return [
        Ending(
            rank=rank,
            local_rank=failure.local_rank,
            return_code=failure.exitcode,
            error_file=failure.error_file,
        )
        for rank, failure in sorted(result.failures.items())
    ]


@contextmanager
def _elastic_logs(*, shown: bool) -> Iterator[None]:
    """Keep torch elastic's own account of a failure off the screen, on which the report stands."""
    logger = logging.getLogger("torch.distributed.elastic")
    former = logger.propagate
    logger.propagate = shown
    silence = logging.NullHandler()
    logger.addHandler(silence)
    try:
        yield
    finally:
        logger.propagate = former
        logger.removeHandler(silence)
