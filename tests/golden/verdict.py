"""Which differences from the record are expected: by the list of later work, or on purpose.

Called by the surface test. Both lists are held to what is really there: an entry without a difference is as
wrong as a difference without an entry.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.golden.comparison import ABSENT, Finding
from tests.golden.record import Recorded, home_of

__all__ = ["Intended", "unexpected"]


@dataclass(frozen=True)
class Intended:
    """One difference that is meant.

    Attributes:
        path: dotted path, as in a finding.
        here: what the package has there, word for word; None for an addition, where the path says all.
    """

    path: str
    here: str | None = None


def unexpected(
    findings: Sequence[Finding],
    later: Mapping[str, Sequence[str]],
    intended: Sequence[Intended],
    modules: Mapping[str, Recorded],
) -> list[str]:
    """Return a message for each finding that no list expects, and for each entry that nothing needs.

    Args:
        findings: all differences.
        later: piece of work -> paths that it will bring.
        intended: what is meant to differ.
        modules: the record, which says what belongs to a module of the list.
    """
    to_come = {path for paths in later.values() for path in paths}
    meant = {entry.path: entry for entry in intended}
    news = [
        f"{finding}\n    make it as it is there, or give the reason in docs/differences.yaml"
        for finding in findings
        if not _covered(finding.path, to_come) and not _meant(finding, meant)
    ]
    return [*news, *_stale(findings, to_come, meant, modules), *_twice(later, meant)]


def _covered(path: str, to_come: set[str]) -> bool:
    """Return whether a path, its home or a module around either is in the list of later work."""
    for name in (path, home_of(path)):
        parts = name.split(".")
        if any(".".join(parts[:length]) in to_come for length in range(1, len(parts) + 1)):
            return True
    return False


def _meant(finding: Finding, meant: Mapping[str, Intended]) -> bool:
    entry = meant.get(finding.path)
    if entry is None:
        return False
    return finding.there == ABSENT if entry.here is None else finding.here == entry.here


def _stale(
    findings: Sequence[Finding],
    to_come: set[str],
    meant: Mapping[str, Intended],
    modules: Mapping[str, Recorded],
) -> Iterator[str]:
    found = {finding.path for finding in findings}
    for path in sorted(to_come):
        names = [f"{path}.{name}" for name in modules[path]["defined"]] if path in modules else []
        there = [name for name in names or [path] if name not in found]
        if there and len(there) == len(names or [path]):
            yield f"{path} is as it should be: take it off tests/golden/later.py"
        elif there:
            yield f"{path}: {', '.join(there)} exist: list in tests/golden/later.py what is still absent"
    for path in sorted(meant.keys() - found):
        yield f"{path} does not differ: take it off docs/differences.yaml"


def _twice(later: Mapping[str, Sequence[str]], meant: Mapping[str, Intended]) -> Iterator[str]:
    paths = [path for listed in later.values() for path in listed] + list(meant)
    for path in sorted({path for path in paths if paths.count(path) > 1}):
        yield f"{path} is listed twice"
