"""Lists of machines, as host files of MPI and SLURM write them, to names. Called by plan.py and slurm.py."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Host", "expand_nodes", "parse_hosts"]

_BRACKETS = re.compile(r"\[([^\]]*)\]")


@dataclass(frozen=True, kw_only=True)
class Host:
    """One machine of a host file.

    Attributes:
        name: as the file has it.
        slots: the processes that it is meant for; None where the file does not say.
    """

    name: str
    slots: int | None = None


def parse_hosts(text: str) -> list[Host]:
    """Return the machines of a host file in its order: Open MPI's `name slots=4` or MPICH's `name:4`.

    Example:
        >>> parse_hosts("a slots=2  # fast\\nb:4\\n")
        [Host(name='a', slots=2), Host(name='b', slots=4)]
    """
    hosts = []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if not words:
            continue
        name, colon, count = words[0].rpartition(":")
        # An address of version 6 has colons, too.
        if not colon or not count.isdigit() or ":" in name:
            name, count = words[0], ""
        slots = re.search(r"\bslots\s*=\s*(\d+)", line)
        number = slots[1] if slots is not None else count
        hosts.append(Host(name=name, slots=int(number) if number else None))
    return hosts


def expand_nodes(text: str) -> list[str]:
    """Return the names in a list of nodes as SLURM shortens them, in its order.

    Example:
        >>> expand_nodes("gpu[01-03,7],login")
        ['gpu01', 'gpu02', 'gpu03', 'gpu7', 'login']
    """
    return [name for part in _split(text) for name in _expand(part)]


def _split(text: str) -> Iterator[str]:
    """Yield what stands between the commas that are outside of brackets."""
    yield from (part.strip() for part in re.findall(r"(?:\[[^\]]*\]|[^,\[])+", text) if part.strip())


def _expand(part: str) -> list[str]:
    brackets = _BRACKETS.search(part)
    if brackets is None:
        return [part]
    before, after = part[: brackets.start()], part[brackets.end() :]
    return [before + number + rest for number in _numbers(brackets[1]) for rest in _expand(after)]


def _numbers(text: str) -> Iterator[str]:
    """Yield the numbers of `01-03,7`, as wide as they are written."""
    for item in text.split(","):
        first, dash, last = item.strip().partition("-")
        if not dash:
            yield first
            continue
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))
