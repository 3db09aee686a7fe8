"""Where the launches of all machines meet, round by round: torch elastic's rendezvous. Used by agent.py."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from torch.distributed import HashStore, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous.api import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo

from accelerate.errors import LaunchError
from accelerate.launching.link import Link, clear_store
from accelerate.launching.machines import MeetingSettings, Record, numbers
from accelerate.options.launch import LaunchPlan

__all__ = ["LocalMeeting", "MachineEnded", "MachineLost", "Meeting"]

_SAID_AFTER = 5.0  # seconds of waiting before it is said what is waited for
_POLL = 0.05  # seconds
_FAREWELL = 3.0  # seconds in which machine 0 keeps the store for others that are still at work
_HANDSHAKE = 20.0  # seconds for a store behind an address that answers


class MachineEnded(Exception):
    """Another machine takes no further part, and said why.

    Attributes:
        records: those of the machines that ended.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        super().__init__("; ".join(f"{record.name} {record.ended}" for record in records))
        self.records = records


class MachineLost(Exception):
    """Another machine is no longer heard of."""


class _Handler(RendezvousHandler):
    """What torch elastic asks of a rendezvous and has the same answer here for one machine and several."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.began_at = time.monotonic()

    def get_backend(self) -> str:
        """Return the name under which torch elastic logs this."""
        return "accelerate"

    @property
    def use_agent_store(self) -> bool:
        """The ranks use the same store."""
        return True

    def is_closed(self) -> bool:
        """Return False: a launch ends by itself."""
        return False

    def set_closed(self) -> None:
        """Do nothing, see `is_closed`."""

    def num_nodes_waiting(self) -> int:
        """Return whether some machine is ready for a later round than this one's."""
        return 0

    def get_run_id(self) -> str:
        """Return the name of this launch."""
        return self.run_id

    def shutdown(self) -> bool:
        """Do nothing: the launch closes its meeting itself."""
        return True


class LocalMeeting(_Handler):
    """The ranks of one machine meet in a store of their own."""

    def __init__(self, run_id: str, address: str, port: int) -> None:
        super().__init__(run_id)
        self._address, self._port = address, port
        self._store: Any = None

    def next_rendezvous(self) -> RendezvousInfo:
        """Open the store, or clear it of what an earlier round left.

        Raises:
            DistNetworkError: the port is taken.
        """
        if self._store is None:
            self._store = TCPStore(self._address, self._port, is_master=True, wait_for_workers=False)
        clear_store(self._store)
        self.began_at = time.monotonic()
        where = RendezvousStoreInfo(self._address, self._port)
        return RendezvousInfo(self._store, 0, 1, where)


class Meeting(_Handler):
    """All machines start a round together, and learn when one of them has ended or is lost.

    Attributes:
        link: what is heard of the others.
        began_at: when the present round began, nearly the same moment on all machines.
    """

    def __init__(
        self, plan: LaunchPlan, settings: MeetingSettings, run_id: str, say: Callable[[str], None]
    ) -> None:
        super().__init__(run_id)
        self.link = Link(plan, settings)
        self._plan = plan
        self._settings = settings
        self._say = say

    def next_rendezvous(self) -> RendezvousInfo:
        """Wait until every machine is ready for the next round.

        Raises:
            LaunchError: they do not come, do not fit together, or the store cannot be had.
            MachineEnded: one ended instead.
            MachineLost: one is no longer heard of.
        """
        asked = max(self.link.record.ready_for + 1, self.link.summary.wanted)
        self.link.tell(ready_for=asked, finished=False)
        self.wait(lambda: self.link.summary.round >= asked)
        self.began_at = time.monotonic()
        where = RendezvousStoreInfo(self._plan.main_process_ip or "", self._plan.main_process_port or 0)
        # Nothing is asked of the agent's store where all machines start equally many ranks.
        return RendezvousInfo(HashStore(), self.link.record.machine, self._plan.num_machines, where)

    def num_nodes_waiting(self) -> int:
        """Return whether some machine is ready for a later round than this one's."""
        return int(self.link.summary.wanted > self.link.record.ready_for)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait for something that all machines have to come for; see `next_rendezvous` for what is raised."""
        begin = time.monotonic()
        said = False
        while not condition():
            self.check()
            waited = time.monotonic() - begin
            if waited > self._settings.timeout or self._is_no_store(waited):
                raise LaunchError(f"{self._missing()}; gave up after {waited:.0f} s")
            if waited > _SAID_AFTER and not said and not self._plan.quiet:
                self._say(
                    f"accelerate launch: {self._missing()}; waiting up to {self._settings.timeout:.0f} s "
                    "(--rdzv_conf timeout=...)\n"
                )
                said = True
            time.sleep(_POLL)

    def check(self) -> None:
        """Raise if the run cannot go on; see `next_rendezvous` for what is raised."""
        link, summary = self.link, self.link.summary
        if summary.problem:
            raise LaunchError(summary.problem)
        if isinstance(link.error, LaunchError):
            raise link.error
        others = [record for record in summary.ended if record.machine != link.record.machine]
        if others:
            raise MachineEnded(others)
        if summary.lost:
            raise MachineLost(self._lost(summary.lost, self._settings.patience))
        if link.error is not None:
            raise MachineLost(
                f"the launch on {self._zero()} has gone ({str(link.error).partition(chr(10))[0]})"
            )
        if link.connected and link.silence > self._settings.patience:
            raise MachineLost(self._lost([0], link.silence))

    def others_are_ending(self) -> None:
        """Wait, after the end of this machine, for what the others have to say; bounded, and never raises."""
        deadline = time.monotonic() + self._plan.grace_period + _FAREWELL
        while time.monotonic() < deadline and not self.link.summary.all_ended:
            if self.link.error is not None or self.link.silence > _FAREWELL or not self.link.connected:
                return
            time.sleep(_POLL)

    def silent(self) -> str:
        """Return, after the end of this machine, who said nothing about its own; empty when all did."""
        link, silence = self.link, self.link.silence
        if link.hosts:
            silence = link.longest_silence
        if link.summary.all_ended or silence < _FAREWELL:
            return ""
        others = [machine for machine in range(self._plan.num_machines) if machine != link.record.machine]
        ended = {record.machine for record in link.summary.ended}
        return self._lost(
            [machine for machine in others if machine not in ended] if link.hosts else [0], silence
        )

    def close(self) -> None:
        """Leave. Machine 0 waits a moment, since the store goes with it."""
        if self.link.hosts and self.link.connected:
            deadline = time.monotonic() + _FAREWELL
            while time.monotonic() < deadline and not self.link.summary.all_ended:
                time.sleep(_POLL)
            time.sleep(3 * self.link.interval)  # so that the others read the last summary
        self.link.close()

    def _is_no_store(self, waited: float) -> bool:
        return not self.link.connected and " answers, but" in self.link.obstacle and waited > _HANDSHAKE

    def _zero(self) -> str:
        return self.link.summary.names.get(0, "machine 0")

    def _missing(self) -> str:
        link = self.link
        if not link.connected:
            return link.obstacle or "machine 0 is being looked for"
        names = link.summary.names
        missing = [machine for machine in range(self._plan.num_machines) if machine not in names]
        here = ", ".join(names[machine] for machine in sorted(names))
        if not missing:
            return f"not all machines are ready ({here} are here)"
        where = f"{self._plan.main_process_ip}:{self._plan.main_process_port}"
        verb = "has" if len(missing) == 1 else "have"
        return f"{numbers(missing)} of {self._plan.num_machines} {verb} not come to {where} ({here} is here)"

    def _lost(self, machines: Sequence[int], silence: float) -> str:
        names = self.link.summary.names
        who = " and ".join(names.get(machine, f"machine {machine}") for machine in machines)
        per_machine = self._plan.processes_per_machine
        ranks = [machine * per_machine + index for machine in machines for index in range(per_machine)]
        return (
            f"{who} has not been heard of for {silence:.0f} s (rank {', '.join(map(str, ranks))}): the "
            "network between the machines is cut, or that machine or its launch is gone"
        )
