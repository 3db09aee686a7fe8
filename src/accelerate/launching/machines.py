"""What the launches of several machines tell each other, as values. Pure; link.py carries them.

[Note: how machines meet]
Machine 0 hosts the *store*, in which the ranks meet as well. Each machine keeps a *record* of itself there;
machine 0 reads all of them and writes back one *summary*, so that its work grows with the number of machines
and that of the others does not. A *round* is one attempt of all ranks: it begins once every machine is ready
for it. A machine that *ended* says so in its record, with its failures. A record whose *beat* no longer
rises belongs to a machine that is *lost*: its link is cut, or its launch is gone.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from accelerate.errors import ConfigurationError
from accelerate.launching.report import RankFailure
from accelerate.options.launch import LaunchPlan

__all__ = ["MeetingSettings", "Record", "Summary", "meeting_settings", "numbers", "summarize"]


@dataclass(frozen=True, kw_only=True)
class Record:
    """One machine, as it describes itself.

    Attributes:
        machine: its number.
        host: its name.
        num_machines, num_processes: as it was told.
        versions: package -> version.
        ready_for: the latest round for which it is ready.
        finished: its ranks have ended well in this round.
        ended: why it takes no further part; empty as long as it does.
        status: exit status of its launch, once it has ended.
        failures: its ranks that failed, as `RankFailure` in plain values; `at` counts from the round's start.
        beat: rises as long as the launch lives.
    """

    machine: int
    host: str
    num_machines: int
    num_processes: int
    versions: Mapping[str, str] = field(default_factory=dict)
    ready_for: int = 0
    finished: bool = False
    ended: str = ""
    status: int = 0
    failures: Sequence[Mapping[str, Any]] = ()
    beat: int = 0

    @property
    def name(self) -> str:
        """How people are told of it."""
        return f"machine {self.machine} ({self.host})"

    def text(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Record":
        """Return the record that `text` gave."""
        return cls(**json.loads(text))

    def rank_failures(self, offset: float) -> list[RankFailure]:
        """Return the failed ranks, in a clock in which the round began at `offset`."""
        return [
            RankFailure(**{**failure, "at": failure["at"] + offset, "where": self.name, "log": None})
            for failure in self.failures
        ]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """All machines, as machine 0 sees them.

    Attributes:
        round: the latest round that all may start; 0 before they have met.
        wanted: the latest round for which some machine is ready.
        names: machine -> how people are told of it, for those that came.
        versions: machine -> its versions.
        problem: why they cannot run together; empty when nothing speaks against it.
        ended: the records of machines that take no further part.
        lost: machines that are no longer heard of.
        all_finished: all ranks of all machines have ended well.
        all_ended: no machine is at work any more.
        beat: rises as long as machine 0 lives.
    """

    round: int = 0
    wanted: int = 0
    names: Mapping[int, str] = field(default_factory=dict)
    versions: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    problem: str = ""
    ended: Sequence[Record] = ()
    lost: Sequence[int] = ()
    all_finished: bool = False
    all_ended: bool = False
    beat: int = 0

    def text(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Summary":
        """Return the summary that `text` gave."""
        values = json.loads(text)
        values["ended"] = [Record(**record) for record in values["ended"]]
        for name in ("names", "versions"):  # JSON has texts as keys
            values[name] = {int(machine): value for machine, value in values[name].items()}
        return cls(**values)


def summarize(
    records: Mapping[int, Record], lost: Sequence[int], num_machines: int, former: Summary
) -> Summary:
    """Return how the machines stand.

    Args:
        records: machine -> the latest that it wrote.
        lost: machines whose record no longer changes.
        num_machines: how many there are to be.
        former: the summary before this one.
    """
    everyone = [records[machine] for machine in sorted(records)]
    complete = len(everyone) == num_machines
    ready = min((record.ready_for for record in everyone), default=0) if complete else 0
    problem = former.problem or _mismatch(everyone)
    return Summary(
        round=former.round if problem else max(former.round, ready),
        wanted=max((record.ready_for for record in everyone), default=0),
        names={record.machine: record.name for record in everyone},
        versions={record.machine: record.versions for record in everyone},
        problem=problem,
        ended=[record for record in everyone if record.ended],
        lost=list(lost),
        all_finished=complete and all(record.finished for record in everyone),
        all_ended=all(record.ended or record.finished or record.machine in lost for record in everyone),
        beat=former.beat + 1,
    )


def _mismatch(records: Sequence[Record]) -> str:
    """Return what two machines were told differently; empty when they agree."""
    for record in records[1:]:
        for name in ("num_machines", "num_processes"):
            here, there = getattr(records[0], name), getattr(record, name)
            if here != there:
                return (
                    f"{records[0].name} got --{name} {here} and {record.name} with {there}: pass "
                    "the same on every machine (--num_processes counts the ranks of all machines)"
                )
    return ""


def numbers(machines: Sequence[int]) -> str:
    """Return the numbers of machines in words.

    Example:
        >>> numbers([1]), numbers([1, 3])
        ('machine 1', 'machines 1 and 3')
    """
    if len(machines) == 1:
        return f"machine {machines[0]}"
    return f"machines {', '.join(map(str, machines[:-1]))} and {machines[-1]}"


@dataclass(frozen=True, kw_only=True)
class MeetingSettings:
    """Times of a meeting, from --rdzv_conf.

    Attributes:
        timeout: seconds for all machines to come.
        interval: seconds between two signs of life that are missed.
        attempts: missed signs after which a machine is lost.
        is_host: whether this machine hosts the store; None: found out.
    """

    timeout: float = 900.0
    interval: float = 5.0
    attempts: int = 6
    is_host: bool | None = None

    @property
    def patience(self) -> float:
        """Seconds of silence after which a machine is lost."""
        return self.interval * self.attempts


# Key of --rdzv_conf -> field. Those of torch elastic that mean nothing here are read and have no effect.
_KEYS = {
    "timeout": "timeout",
    "join_timeout": "timeout",
    "keep_alive_interval": "interval",
    "keep_alive_max_attempt": "attempts",
    "is_host": "is_host",
    "read_timeout": None,
    "last_call_timeout": None,
    "close_timeout": None,
    "heartbeat_timeout": None,
    "store_type": None,
    "use_libuv": None,
}
_TRUE, _FALSE = ("1", "true", "t", "yes", "y"), ("0", "false", "f", "no", "n")


def meeting_settings(plan: LaunchPlan) -> MeetingSettings:
    """Return the times that --rdzv_conf sets.

    Raises:
        ConfigurationError: a key is not known or a value cannot be read.
    """
    values: dict[str, Any] = {}
    for item in filter(None, (item.strip() for item in plan.rdzv_conf.split(","))):
        key, _, text = (part.strip() for part in item.partition("="))
        if key not in _KEYS:
            known = ", ".join(sorted(key for key, name in _KEYS.items() if name))
            raise ConfigurationError(f"--rdzv_conf {plan.rdzv_conf}: {key} is not known; there are {known}")
        name = _KEYS[key]
        if name is not None:
            values[name] = _value(plan, key, text)
    return MeetingSettings(**values)


def _value(plan: LaunchPlan, key: str, text: str) -> bool | int | float:
    if key == "is_host":
        if text.lower() in (*_TRUE, *_FALSE):
            return text.lower() in _TRUE
        raise ConfigurationError(f"--rdzv_conf {plan.rdzv_conf}: give is_host=1 or is_host=0")
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e9:
        raise ConfigurationError(f"--rdzv_conf {plan.rdzv_conf}: give {key} a number greater than 0")
    return int(number) or 1 if key == "keep_alive_max_attempt" else number
