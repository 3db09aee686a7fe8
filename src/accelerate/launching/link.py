"""The thread that carries records and summaries between machines, see machines.py. Used by meeting.py.

No call to the store happens on any other thread: on a link that is cut such a call never comes back, and
no signal interrupts it. The main thread reads what this one last heard, and how long ago that was.
"""

import dataclasses
import platform
import socket
import threading
import time
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from accelerate import __version__
from accelerate.errors import LaunchError
from accelerate.launching.machines import MeetingSettings, Record, Summary, summarize
from accelerate.launching.network import is_here, why_unreachable
from accelerate.options.launch import LaunchPlan

__all__ = ["OUR_KEYS", "Link", "clear_store"]

OUR_KEYS = "accelerate/"  # prefix in the store; all else there belongs to the ranks
_SUMMARY = OUR_KEYS + "summary"
_RECORD = OUR_KEYS + "machine/"
_CLAIM = OUR_KEYS + "claim/"
_ATTEMPT = 3.0  # seconds for one attempt to connect
_PAUSE = 0.5  # seconds between two of them
_HANDSHAKE = 15.0  # seconds in which a store answers to whoever has connected
_MACHINES_PER_SECOND = 500.0  # records that machine 0 reads; with more machines they come less often


class Link:
    """This machine's part in the meeting. All attributes may be read at any time, from any thread.

    Attributes:
        record: what the others are told of this machine; the main thread sets it by `tell`.
        summary: what was last heard.
        heard_at: when that was; the moment of the start before anything was heard.
        connected: whether the store was reached.
        hosts: whether this machine hosts the store.
        interval: seconds between two exchanges.
        obstacle: why the store is not reached yet; empty when it is.
        error: why this thread has given up; None while it lives.
    """

    def __init__(self, plan: LaunchPlan, settings: MeetingSettings) -> None:
        self.summary = Summary()
        self.heard_at = time.monotonic()
        self.connected = False
        self.obstacle = ""
        self.error: Exception | None = None
        self.hosts = _wants_to_host(plan, settings)
        self.record = Record(
            machine=plan.machine_rank if plan.machine_rank is not None else 0,
            host=socket.gethostname(),
            num_machines=plan.num_machines,
            num_processes=plan.num_processes,
            versions={
                "python": platform.python_version(),
                "torch": str(torch.__version__),
                "accelerate": __version__,
            },
        )
        self._plan = plan
        self._settings = settings
        self._address, self._port = plan.main_process_ip or "", plan.main_process_port or 0
        self.interval = min(settings.interval, max(0.1, plan.num_machines / _MACHINES_PER_SECOND))
        self._wake = threading.Event()
        self._stopping = False
        self._store: Any = None
        self._records: dict[int, Record] = {}
        self._changed_at: dict[int, float] = {}
        self._beat = 0
        self._thread = threading.Thread(target=self._run, name="other machines", daemon=True)
        self._thread.start()

    @property
    def longest_silence(self) -> float:
        """For machine 0: seconds since the last sign of life of the machine that is silent for longest."""
        return time.monotonic() - min(self._changed_at.values(), default=time.monotonic())

    @property
    def silence(self) -> float:
        """Seconds since machine 0 was last heard of."""
        return time.monotonic() - self.heard_at

    def tell(self, **changes: Any) -> None:
        """Change the record. For the main thread, signal handlers included: it waits for nothing."""
        self.record = dataclasses.replace(self.record, **changes)
        self._wake.set()

    def close(self) -> None:
        """Tell the last news and end the thread, if it is not stuck on a link that is cut."""
        self._stopping = True
        self._wake.set()
        self._thread.join(timeout=2.0)

    def _run(self) -> None:
        try:
            self._connect()
            while True:
                last = self._stopping
                self._wake.clear()
                self._exchange()
                if last:
                    return
                self._wake.wait(self.interval)
        except (RuntimeError, OSError, ValueError, LaunchError) as error:
            # DistNetworkError and DistStoreError are RuntimeErrors: the store, or the way to it, is gone.
            self.error = error

    def _connect(self) -> None:
        if self.hosts:
            try:
                self._store = self._open("127.0.0.1", hosts=True)
            except RuntimeError as error:
                if self._plan.machine_rank is not None or "in use" not in str(error):
                    raise LaunchError(
                        f"port {self._port} cannot be had for the meeting of the machines: {_first(error)}"
                    ) from error
                self.hosts = False  # somebody else on this machine was first
        if self.hosts:
            self._check_own_address()
        else:
            self._reach()
        self._take_number()
        self.obstacle = ""
        self.connected = True

    def _open(self, address: str, *, hosts: bool) -> TCPStore:
        timeout = timedelta(seconds=max(_HANDSHAKE, self._settings.patience))
        return TCPStore(address, self._port, is_master=hosts, wait_for_workers=False, timeout=timeout)

    def _check_own_address(self) -> None:
        reason = why_unreachable(self._address, self._port, _ATTEMPT)
        if reason is not None:
            raise LaunchError(
                f"--main_process_ip {self._address}: this is machine 0, and the address does not lead here "
                f"({reason} at port {self._port}); pass the address at which the others reach this machine"
            )

    def _reach(self) -> None:
        where = f"{self._address}:{self._port}"
        while True:
            reason = why_unreachable(self._address, self._port, _ATTEMPT)
            if reason is None:
                self.obstacle = f"{where} answers, but not as the launch of machine 0 would"
                try:
                    self._store = self._open(self._address, hosts=False)
                    return
                except RuntimeError as error:
                    reason = _first(error)
            self.obstacle = f"machine 0 cannot be reached at {where}: {reason}"
            if self._stopping:
                raise LaunchError(self.obstacle)
            time.sleep(_PAUSE)

    def _take_number(self) -> None:
        """Claim the number of this machine; one that was given none takes the next in order of arrival."""
        machine = 0 if self.hosts else self._plan.machine_rank
        if machine is None:
            machine = int(self._store.add(_CLAIM + "arrivals", 1))
        count = self._plan.num_machines
        if machine >= count:
            raise LaunchError(f"all {count} machines are here already: this one is too many")
        if self._store.add(f"{_CLAIM}{machine}", 1) > 1:
            other = self._name_of(machine)
            raise LaunchError(
                f"there is {other} already: give every machine another --machine_rank; if it is what an "
                f"earlier launch left behind, end that one or pass another --main_process_port"
            )
        self.record = dataclasses.replace(self.record, machine=machine)

    def _name_of(self, machine: int) -> str:
        key = f"{_RECORD}{machine}"
        if not self._store.check([key]):
            return f"a machine {machine}"
        return Record.from_text(self._store.get(key).decode()).name

    def _exchange(self) -> None:
        self._beat += 1
        record = dataclasses.replace(self.record, beat=self._beat)
        if self.hosts:
            self._collect(record)
            return
        self._store.set(f"{_RECORD}{record.machine}", record.text())
        if not self._store.check([_SUMMARY]):
            self.heard_at = time.monotonic()
            return
        summary = Summary.from_text(self._store.get(_SUMMARY).decode())
        if summary.beat != self.summary.beat:
            self.heard_at = time.monotonic()
        self.summary = summary

    def _collect(self, own: Record) -> None:
        """Read the records of all and write the summary."""
        self._store.set(f"{_RECORD}{own.machine}", own.text())
        count = self._plan.num_machines
        missing = [machine for machine in range(1, count) if machine not in self._records]
        came = [machine for machine in missing if self._store.check([f"{_RECORD}{machine}"])]
        known = sorted({*self._records, *came} - {0})
        now = time.monotonic()
        texts = self._store.multi_get([f"{_RECORD}{machine}" for machine in known]) if known else []
        for machine, text in zip(known, texts, strict=True):
            record = Record.from_text(text.decode())
            former = self._records.get(machine)
            if former is None or former.beat != record.beat:
                self._changed_at[machine] = now
            self._records[machine] = record
        self._records[0] = own
        lost = [machine for machine in known if self._is_lost(machine, now)]
        summary = summarize(self._records, lost, count, self.summary)
        if summary.round > self.summary.round:
            clear_store(self._store)
        self._store.set(_SUMMARY, summary.text())
        self.heard_at = now
        self.summary = summary

    def _is_lost(self, machine: int, now: float) -> bool:
        record = self._records[machine]
        at_work = not record.ended and not record.finished
        return at_work and now - self._changed_at[machine] > self._settings.patience


def clear_store(store: Any) -> None:
    """Remove what ranks of an earlier round left in the store: addresses at which nobody listens any more."""
    for key in store.list_keys():
        if not key.startswith(OUR_KEYS):
            store.delete_key(key)


def _wants_to_host(plan: LaunchPlan, settings: MeetingSettings) -> bool:
    if plan.machine_rank is not None and plan.rdzv_backend == "static":
        return plan.machine_rank == 0
    if settings.is_host is not None:
        return settings.is_host
    if plan.machine_rank is not None:
        return plan.machine_rank == 0
    return is_here(plan.main_process_ip or "")


def _first(error: Exception) -> str:
    """Return the first line of what torch says, which goes on with a stack of native code."""
    return str(error).strip().partition("\n")[0]
