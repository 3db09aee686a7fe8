"""What ranks say when they do not agree about a collective. Called by the headers.

Each rank makes a `Report` of what it is about to do; alike reports travel and are shown once. Pure.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

from accelerate.modules.nested import walk
from accelerate.runtime.whereabouts import format_ranks

__all__ = ["Report", "disagreement", "leaves_in_words"]

MOST_LEAVES = 1000  # that a report describes
MOST_SHOWN = 8  # leaves that a message shows


@dataclass(frozen=True, kw_only=True)
class Report:
    """What one rank is about to do, in words for the others."""

    label: str
    number: int
    site: str
    problem: str = ""
    leaves: dict[str, str] = field(default_factory=dict)  # path -> dtype and shape
    history: dict[int, str] = field(default_factory=dict)  # number of a call -> operation and site

    def encode(self) -> bytes:
        """Return this report as bytes."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decode(content: bytes) -> "Report":
        """Return the report that `encode` made bytes of."""
        values = json.loads(content)
        values["history"] = {int(number): place for number, place in values["history"].items()}
        return Report(**values)


def leaves_in_words(data: Any) -> dict[str, str]:
    """Return path and description of every leaf of nested containers, up to `MOST_LEAVES`."""
    return {path: _words(leaf) for (path, leaf), _ in zip(walk(data), range(MOST_LEAVES), strict=False)}


def _words(leaf: Any) -> str:
    if not isinstance(leaf, Tensor):
        return type(leaf).__name__
    dtype = str(leaf.dtype).removeprefix("torch.")
    if leaf.is_nested:
        return f"{dtype}, nested"
    device = "" if leaf.is_cpu else f" on {leaf.device}"
    return f"{dtype} {tuple(leaf.shape)}{device}"


def disagreement(reports: Sequence[tuple[Sequence[int], Report]]) -> str:
    """Return the message for ranks that are about to do different things.

    Args:
        reports: ranks and what all of these are about to do.
    """
    paths = _telling_paths([report for _, report in reports])
    lines = ["The ranks do not agree about a collective, and nothing was sent."]
    for ranks, report in reports:
        lines.append(f"  {format_ranks(ranks)}: {report.label} number {report.number} at {report.site}")
        if report.problem:
            lines.append(f"      cannot take part: {report.problem}")
            continue
        lines += _differences(report, paths)
    if len(paths) > MOST_SHOWN:
        lines.append(f"  There are {len(paths) - MOST_SHOWN} more such tensors.")
    return "\n".join([*lines, *_parting(reports), _advice([report for _, report in reports])])


def _differences(report: Report, paths: Sequence[str]) -> list[str]:
    shown = paths[:MOST_SHOWN]
    found = [f"      {path or 'of'} {words}" for path, words in report.leaves.items() if path in shown]
    return found + [f"      {path} is missing" for path in shown if path and path not in report.leaves]


def _telling_paths(reports: Sequence[Report]) -> list[str]:
    """Return where leaves differ; all places where it is something else that differs."""
    paths = list(dict.fromkeys(path for report in reports for path in report.leaves))
    differing = [path for path in paths if len({report.leaves.get(path) for report in reports}) > 1]
    return differing if differing and len({report.label for report in reports}) == 1 else paths


def _parting(reports: Sequence[tuple[Sequence[int], Report]]) -> list[str]:
    """Return a line that says where the ranks were at different places for the first time, if before."""
    latest = min(report.number for _, report in reports)
    known = set.intersection(*(set(report.history) for _, report in reports))
    for number in sorted(number for number in known if number < latest):
        ranks_at: dict[str, list[int]] = {}
        for ranks, report in reports:
            ranks_at.setdefault(report.history[number], []).extend(ranks)
        if len(ranks_at) > 1:
            where = ", ".join(f"{format_ranks(ranks)} in {place}" for place, ranks in ranks_at.items())
            return [f"  They were at different places before, for the first time in call {number}: {where}."]
    return []


def _advice(reports: Sequence[Report]) -> str:
    end = "This run cannot continue: mend the script and start it again."
    if any(report.problem for report in reports):
        return end
    if len({(report.label, report.number) for report in reports}) > 1:
        return (
            "Every rank has to make the same calls in the same order, with the same arguments: look for a "
            f"condition that holds on some ranks only. {end}"
        )
    return (
        "Every rank has to pass the same structure (keys also in order), shapes and dtypes: "
        f"`pad_across_processes` makes tensors equally long, `gather_object` takes anything. {end}"
    )
