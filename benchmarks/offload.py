"""Time the forward pass of offloaded models against the resident one, on the CPU, and what a hook costs.

    python benchmarks/offload.py [--reference /path/to/another/environment/bin/python]

`--reference` names an interpreter whose environment holds another implementation of the interface, such as
the original one; it is measured in turn with ours. CPU time of a forward pass; files are warm. Each number is
the best of many repeats, since everything that disturbs a forward pass makes it longer.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import common

NUM_BLOCKS, WIDTH, BATCH = 24, 256, 64  # compute-bound: a page of weights is used for 64 rows
REPEATS, CALLS, ROUNDS = 5, 5, 3
GOAL = 1.3  # times the resident forward pass, at most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference", metavar="PYTHON", help="interpreter with another `accelerate`")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure()))
        return
    pythons = {"ours": sys.executable} | ({"reference": args.reference} if args.reference else {})
    runs = {name: partial(common.run_json, python, __file__, "--measure") for name, python in pythons.items()}
    found = {name: common.medians(rounds) for name, rounds in common.interleaved(runs, ROUNDS).items()}
    rows = [[kind, *_cells(found, kind)] for kind in found["ours"]]
    print(common.table(["ms a forward pass", *(f"{name}, x resident" for name in found)], rows))
    resident, slowest = found["ours"]["resident"], max(found["ours"].values())
    print(f"ours at most {slowest / resident:.2f} times resident; the goal is {GOAL}")


def _cells(found: dict[str, dict[str, float]], kind: str) -> list[str]:
    return [f"{numbers[kind]:.2f}, {numbers[kind] / numbers['resident']:.2f}" for numbers in found.values()]


def measure() -> dict[str, float]:
    """Return milliseconds of a forward pass, by where the weights are."""
    import torch
    from torch import nn

    from accelerate import cpu_offload, disk_offload, dispatch_model

    torch.set_num_threads(1)

    def build() -> Any:
        blocks = [
            nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
            for _ in range(NUM_BLOCKS)
        ]
        return nn.Sequential(*blocks).eval()

    batch = torch.randn(BATCH, WIDTH)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        half: dict[str, Any] = {str(index): "disk" if index % 2 else "cpu" for index in range(NUM_BLOCKS)}
        kinds: dict[str, Callable[[], Any]] = {
            "resident": build,
            "with hooks": lambda: dispatch_model(build(), {"": "cpu"}, force_hooks=True),
            "on the CPU": lambda: cpu_offload(build()),
            "half on disk": lambda: dispatch_model(build(), half, offload_dir=f"{folder}/half"),
            "on disk": lambda: disk_offload(build(), f"{folder}/all"),
        }
        return {kind: _best(partial(make(), batch)) for kind, make in kinds.items()}


def _best(forward: Callable[[], Any]) -> float:
    forward()
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        for _ in range(CALLS):
            forward()
        times.append((time.process_time() - start) / CALLS)
    return 1000 * min(times)


if __name__ == "__main__":
    main()
