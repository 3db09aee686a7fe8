"""The ranks of one machine under torch elastic's agent. Called by elastic.py, which loads without torch.

[Note: who does what]
The *agent* (torch) starts, polls and restarts the ranks. The *meeting* (ours) holds the store in which they
meet, and brings several machines together. The *console* (ours) carries their output. *Signals* that ask to
end come to us alone, since the ranks live in sessions of their own. The *watchdog* is a process that
outlives us just long enough to end the ranks if we are killed.
"""

import dataclasses
import errno
import logging
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch.distributed import DistNetworkError
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import SignalException

from accelerate.compat import env
from accelerate.compat.system import get_free_port, is_port_in_use
from accelerate.errors import LaunchError
from accelerate.launching.base import exit_status
from accelerate.launching.console import Console
from accelerate.launching.guard import Signals, Watchdog
from accelerate.launching.machines import meeting_settings
from accelerate.launching.meeting import LocalMeeting, MachineEnded, MachineLost, Meeting
from accelerate.launching.postmortem import Ending, examine, keep_tails
from accelerate.launching.preflight import preflight
from accelerate.launching.rank_logs import SIGNALS_VARIABLE, RankLogs
from accelerate.launching.report import RankFailure, failure_report, first_failure, restart_notice
from accelerate.options.launch import LaunchPlan

__all__ = ["run_ranks"]

_LOOPBACK = "127.0.0.1"
_BIND_ATTEMPTS = 5  # a free port may be taken by somebody else before we listen on it
_TRACEBACK_SENT = 32 * 1024  # characters of a traceback that other machines are told
_LEFTOVER_GRACE = 2.0  # seconds for processes that a dead rank left behind
# A rank that is starting may lose an interrupt (importing torch does that) or sit in native code, waiting for
# a peer that is gone. It has nothing to save yet, so that it may be asked in a way that needs no answer.
_STARTUP = 30.0  # seconds
_STARTUP_GRACE = 2.0  # seconds
_IDENTICAL_VARIABLE = "TORCH_ELASTIC_WORKER_IDENTICAL"  # all machines start equally many ranks


def run_ranks(plan: LaunchPlan, command: list[str]) -> int:
    """Run all ranks of `plan` and return the exit status of the launch.

    Args:
        plan: the launch; of several machines this one's part.
        command: argument list of one rank.

    Raises:
        ConfigurationError: there can be no files in the folder that logs were to go into.
        LaunchError: no port could be had, or the machine has no room for the ranks (files, memory, disk).
    """
    with ExitStack() as stack:
        stack.enter_context(_elastic_logs(shown=plan.debug))
        # The agent's own handlers would cut the start of the ranks in two; it skips names it does not know.
        stack.enter_context(env.patch_environment(**{SIGNALS_VARIABLE: "none", _IDENTICAL_VARIABLE: "1"}))
        console = Console()
        stack.callback(console.close)
        launch = _Launch(plan, command, console, stack)
        try:
            return launch.run()
        except LaunchFollowed as followed:
            if str(followed) and not plan.quiet:
                console.say(f"accelerate launch: {followed}\n")
            return followed.status


class _Launch:
    """One launch, on this machine, from its first attempt to its end."""

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
        self._meeting: Meeting | None = None
        if plan.num_machines > 1:
            self._meeting = Meeting(plan, meeting_settings(plan), self._run_id, console.say)
            stack.callback(self._meeting.close)

    def run(self) -> int:
        """Run to the end and report."""
        try:
            result = self._run_agent() if self._meeting is None else self._run_with_others(self._meeting)
        except SignalException as interruption:
            self._end_here()
            return 128 + interruption.sigval
        endings = _endings(result)
        if not endings:
            self._console.finish(untold=frozenset())
            return 0
        self._watchdog.end(_LEFTOVER_GRACE)
        return self._report(endings)

    def _end_here(self) -> None:
        self._watchdog.end(_LEFTOVER_GRACE)
        # Each rank printed a traceback of its own interruption: that is no news.
        self._console.finish(untold=frozenset(range(self._plan.processes_per_machine)))

    def _run_agent(self) -> RunResult:
        address = self._plan.main_process_ip or _LOOPBACK
        for _ in range(_BIND_ATTEMPTS):
            port = self._port()
            try:
                return self._run_ranks(LocalMeeting(self._run_id, address, port), address, port)
            except DistNetworkError as error:
                reason = error
        raise LaunchError(f"no port to meet at could be had: {reason}") from reason

    def _run_with_others(self, meeting: Meeting) -> RunResult:
        plan = self._plan
        try:
            if plan.preflight:
                preflight(plan, meeting, self._console.say)
            return self._run_ranks(meeting, plan.main_process_ip or "", plan.main_process_port or 0)
        except MachineEnded as ended:
            self._end_here()
            return self._followed(meeting, ended)
        except MachineLost as lost:
            meeting.link.tell(ended=f"stopped, since {lost}", status=1)
            self._end_here()
            raise LaunchError(f"{lost}; the ranks here were stopped") from lost
        except LaunchError as error:
            meeting.link.tell(ended=f"gave up: {error}", status=1)
            raise

    def _run_ranks(self, meeting: "Meeting | LocalMeeting", address: str, port: int) -> RunResult:
        spec = WorkerSpec(
            role=self._plan.role,
            local_world_size=self._plan.processes_per_machine,
            entrypoint=self._command[0],
            args=tuple(self._command[1:]),
            rdzv_handler=meeting,
            max_restarts=self._plan.max_restarts,
            monitor_interval=self._plan.monitor_interval,
            master_addr=address,
            master_port=port,
        )
        agent = RankAgent(
            spec, self._logs, self._console, self._watchdog, self._signals, self._plan.grace_period
        )
        try:
            result: RunResult = agent.run()
        except OSError as error:
            raise LaunchError(f"the ranks cannot be run: {error}{_remedy(error)}") from error
        return result

    def _followed(self, meeting: Meeting, ended: MachineEnded) -> RunResult:
        """Report what another machine ended of, as the end of this one too."""
        meeting.link.tell(ended="stopped, since another machine ended", status=1)
        meeting.others_are_ending()
        failures = self._failures_elsewhere(meeting)
        if not failures:
            record = ended.records[0]
            raise LaunchFollowed(f"{ended}; the ranks here were stopped", record.status)
        here = [
            RankFailure(rank=rank, return_code=-signal.SIGTERM, at=float("inf"), stopped=True)
            for rank in self._ranks_here(meeting)
        ]
        first = first_failure(failures)
        if not self._plan.quiet:
            self._console.say(failure_report([*failures, *here], self._plan.num_processes))
        raise LaunchFollowed("", exit_status(first.return_code))

    def _ranks_here(self, meeting: Meeting) -> range:
        count = self._plan.processes_per_machine
        return range(meeting.link.record.machine * count, (meeting.link.record.machine + 1) * count)

    def _failures_elsewhere(self, meeting: Meeting) -> list[RankFailure]:
        own = meeting.link.record.machine
        return [
            failure
            for record in meeting.link.summary.ended
            if record.machine != own
            for failure in record.rank_failures(meeting.began_at)
        ]

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

    def _interrupted(self, number: signal.Signals) -> SignalException:
        if self._meeting is not None:
            self._meeting.link.tell(ended=f"was told to end by {number.name}", status=128 + number)
        if not self._plan.quiet:
            self._console.say(
                f"accelerate launch: {number.name}: ending {self._plan.processes_per_machine} processes "
                "(once more: kill them)\n"
            )
        self._console.expect_end()
        if number is signal.SIGINT and time.monotonic() - self._begin < _STARTUP:
            self._watchdog.insist(signal.SIGTERM, _STARTUP_GRACE)
        return SignalException(f"launcher got {number.name}", sigval=number)

    def _report(self, endings: list[Ending]) -> int:
        self._console.drain()
        files = self._logs.files or keep_tails(endings, self._console, self._logs.folder)
        own = examine(endings, self._console, files, self._plan.grace_period)
        failures = own if self._meeting is None else own + self._exchanged(self._meeting, own)
        first = first_failure(failures)
        if self._plan.quiet:
            self._console.finish(untold=frozenset())
        else:
            self._console.finish(untold=frozenset(ending.local_rank for ending in endings))
            self._logs.keep(any(failure.log for failure in failures if failure is not first))
            folder = str(self._logs.folder) if self._logs.asked_for else None
            silent = "" if self._meeting is None else self._meeting.silent()
            self._console.say(
                failure_report(failures, self._plan.num_processes, folder, [silent] if silent else [])
            )
        return exit_status(first.return_code)

    def _exchanged(self, meeting: Meeting, own: list[RankFailure]) -> list[RankFailure]:
        """Tell the others of the ranks that failed here, and return those that failed elsewhere."""
        told = [
            dataclasses.asdict(
                dataclasses.replace(
                    failure,
                    at=failure.at - meeting.began_at,
                    traceback=failure.traceback and failure.traceback[-_TRACEBACK_SENT:],
                )
            )
            for failure in own
        ]
        status = exit_status(first_failure(own).return_code)
        meeting.link.tell(ended="failed", status=status, failures=told)
        meeting.others_are_ending()
        return self._failures_elsewhere(meeting)


class LaunchFollowed(Exception):
    """This launch ended with that of another machine.

    Attributes:
        status: exit status, that of the other machine.
    """

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class RankAgent(LocalElasticAgent):
    """torch's agent, which also tells the console and the watchdog about the processes that it starts."""

    def __init__(
        self,
        spec: WorkerSpec,
        logs: RankLogs,
        console: Console,
        guard: Watchdog,
        signals: Signals,
        grace: float,
    ) -> None:
        super().__init__(spec, logs_specs=logs)
        self._logs = logs
        self._console = console
        self._guard = guard
        self._signals = signals
        self._grace = grace
        self._meeting = spec.rdzv_handler if isinstance(spec.rdzv_handler, Meeting) else None
        self._last_result: RunResult | None = None

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        if self._meeting is not None:
            # Rounds are counted by all machines together, and so are the restarts that are left.
            self._remaining_restarts = (
                worker_group.spec.max_restarts - self._meeting.link.record.ready_for + 1
            )
        if self._last_result is not None:
            self._end_attempt(self._last_result, worker_group.spec.max_restarts)
        with self._signals.deferred():
            processes: dict[int, Any] = super()._start_workers(worker_group)
            self._signals.install()
            self._guard.guard(processes.values())
            for local_rank, pid in processes.items():
                self._console.watch(local_rank, pid)
        self._close_streams()
        self._shorten_grace()
        return processes

    def _close_streams(self) -> None:
        """Close our own copies of the ranks' streams, which torch leaves to the garbage collector."""
        handlers: dict[int, Any] = getattr(self._pcontext, "subprocess_handlers", {})
        for handler in handlers.values():
            for stream in (handler._stdout, handler._stderr):
                if stream is not None:
                    stream.close()

    def _shorten_grace(self) -> None:
        """Give ranks that are told to end our grace, wherever torch tells them, and wake those that sleep."""
        context: Any = self._pcontext
        close = context.close

        def close_in_time(death_sig: signal.Signals | None = None, timeout: float = 30) -> None:
            self._guard.resume()  # a rank that was stopped (SIGSTOP) would not hear of it
            close(death_sig, min(timeout, self._grace))

        context.close = close_in_time

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        self._last_result = super()._monitor_workers(worker_group)
        if self._meeting is None or self._last_result.state not in (
            WorkerState.HEALTHY,
            WorkerState.SUCCEEDED,
        ):
            return self._last_result
        return self._among_machines(self._meeting, self._last_result)

    def _among_machines(self, meeting: Meeting, result: RunResult) -> RunResult:
        """Return the result here as that of the run: ranks that ended well may have to start again."""
        if result.state == WorkerState.SUCCEEDED:
            if not meeting.link.record.finished:
                meeting.link.tell(finished=True)
            if meeting.link.summary.all_finished:
                return result
        meeting.check()
        return RunResult(state=WorkerState.HEALTHY)

    def _exit_barrier(self) -> None:
        """Do nothing: `_among_machines` has waited for the others."""

    def _end_attempt(self, result: RunResult, max_restarts: int) -> None:
        """Tell of the attempt that failed, before the next one begins."""
        self._console.drain()
        failures = examine(_endings(result), self._console, {}, self._grace)
        self._console.finish(untold=frozenset())
        attempt = max_restarts - self._remaining_restarts
        self._console.say(restart_notice(failures, attempt, max_restarts))


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
