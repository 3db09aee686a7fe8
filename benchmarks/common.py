"""What the benchmarks share: runs of a file under several interpreters, in turn, and a table of medians."""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

ROOT = Path(__file__).parent.parent
TIMEOUT = 300  # seconds for one run


def interleaved(candidates: Mapping[str, Callable[[], T]], num_rounds: int) -> dict[str, list[T]]:
    """Call every candidate once a round, so that a slow spell of the machine meets them all alike."""
    results: dict[str, list[T]] = {name: [] for name in candidates}
    for _ in range(num_rounds):
        for name, candidate in candidates.items():
            results[name].append(candidate())
    return results


def run_python(python: str, *arguments: str, **environment: str) -> str:
    """Run `python` with `arguments` on one thread and return its standard output.

    This interpreter sees the package of this checkout; another one sees what its own environment holds.

    Raises:
        RuntimeError: the run failed; the message holds its standard error.
    """
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    variables |= {"OMP_NUM_THREADS": "1", **environment}
    if python == sys.executable:
        variables["PYTHONPATH"] = str(ROOT / "src")
    command = [python, *arguments]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=TIMEOUT)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {done.returncode}:\n{done.stderr}")
    return done.stdout


def run_json(python: str, *arguments: str, **environment: str) -> Any:
    """Run `python` as `run_python` does and return what the last line of its output holds as JSON."""
    return json.loads(run_python(python, *arguments, **environment).strip().splitlines()[-1])


def medians(samples: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return, key by key, the median of the samples."""
    return {key: statistics.median(sample[key] for sample in samples) for key in samples[0]}


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out text in columns; the first is set flush left, the others flush right."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]

    def laid_out(line: Sequence[str]) -> str:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        return "  ".join(cells).rstrip()

    return "\n".join([laid_out(header), laid_out(["-" * width for width in widths]), *map(laid_out, rows)])
