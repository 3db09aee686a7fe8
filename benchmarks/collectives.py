"""Time nested collectives of 100 small tensors against one flat collective of the same bytes.

    python benchmarks/collectives.py [--num-ranks 2] [--repeats 50] [--reference PYTHON]

Every operation alternates with its floor in the same processes. `--reference` names the interpreter of
another environment with its own package `accelerate`, whose rounds alternate with ours. Shown are counts (our
headers apart), CPU time, and wall time as median and best tenth: ranks that share cores with others
mostly wait for each other, and the best tenth is nearer to what the operation itself takes. The goal is for
the wall time over that of the floor.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import common

NUM_TENSORS = 100
ROUNDS = 3  # of fresh processes, an odd number for the median
TIMEOUT = 300  # seconds, for one round
GOAL = 1.0  # ms over the floor, at most
SENDING = ("all_gather", "all_gather_into_tensor", "all_gather_single", "all_reduce", "broadcast")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-ranks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=50, help="calls of each operation a round")
    parser.add_argument("--reference", metavar="PYTHON", help="interpreter with another `accelerate`")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.repeats)
        return
    pythons = {"ours": sys.executable}
    if arguments.reference:
        pythons["reference"] = arguments.reference
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in pythons}
    for _ in range(ROUNDS):
        for name, python in pythons.items():
            rounds[name].append(run(python, arguments.num_ranks, arguments.repeats, ours=name == "ours"))
    report({name: median_of(found) for name, found in rounds.items()})


def run(python: str, num_ranks: int, repeats: int, *, ours: bool) -> dict[str, Any]:
    """Start one process a rank, wait for all, and return what rank 0 measured."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    environment.update(ACCELERATE_USE_CPU="true", WORLD_SIZE=str(num_ranks), LOCAL_WORLD_SIZE=str(num_ranks))
    if not ours:
        environment.pop("PYTHONPATH", None)
    command = [python, os.path.abspath(__file__), "--worker", "--repeats", str(repeats)]
    ranks = [
        subprocess.Popen(
            command,
            env=dict(environment, RANK=str(rank), LOCAL_RANK=str(rank)),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(num_ranks)
    ]
    try:
        outputs = [rank.communicate(timeout=TIMEOUT)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    if any(rank.returncode for rank in ranks):
        raise SystemExit(f"{python}: ranks ended with {[rank.returncode for rank in ranks]}")
    result: dict[str, Any] = json.loads(outputs[0].splitlines()[-1])
    return result


def work(repeats: int) -> None:
    """Measure on this rank; rank 0 prints the result as JSON."""
    import torch.distributed as dist

    from accelerate.state import PartialState

    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    state = PartialState(cpu=True)
    found = {}
    for name, (operation, floor) in operations(state.process_index, state.num_processes).items():
        for _ in range(3):
            operation(), floor()
        with counted() as calls:
            operation()
        times: dict[str, list[tuple[float, float]]] = {"operation": [], "floor": []}
        for _ in range(repeats):
            times["floor"].append(timed(floor))
            times["operation"].append(timed(operation))
        found[name] = {"collectives": len(calls) - calls.count("header"), "headers": calls.count("header")}
        for what, measured in times.items():
            found[name] |= {f"{what} {unit}": value for unit, value in summary(measured).items()}
    if state.process_index == 0:
        print(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def summary(measured: list[tuple[float, float]]) -> dict[str, float]:
    """Return median CPU time, and median and best tenth of wall time, in ms."""
    wall, cpu = ([each[index] * 1e3 for each in measured] for index in (0, 1))
    return {
        "cpu": statistics.median(cpu),
        "wall": statistics.median(wall),
        "best": statistics.quantiles(wall, n=10)[0],
    }


def operations(rank: int, size: int) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Return each operation on nested tensors with its floor: one collective of the same bytes."""
    import torch
    import torch.distributed as dist

    library = collectives()
    data = nested([torch.full((8,), float(rank)) for _ in range(NUM_TENSORS)])
    ragged = nested([torch.ones(1 + (rank + index) % 3, 4) for index in range(NUM_TENSORS)])
    flat = torch.full((8 * NUM_TENSORS,), float(rank))
    everything = torch.empty(size * flat.numel())
    sizes = torch.ones(NUM_TENSORS, dtype=torch.int64)
    all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    return {
        "gather": (lambda: library.gather(data), lambda: all_gather(everything, flat)),
        "reduce": (lambda: library.reduce(data, "sum"), lambda: dist.all_reduce(flat.clone())),
        "broadcast": (lambda: library.broadcast(data), lambda: dist.broadcast(flat, 0)),
        "pad": (
            lambda: library.pad_across_processes(ragged),
            lambda: dist.all_reduce(sizes, dist.ReduceOp.MAX),
        ),
    }


def collectives() -> Any:
    """Return the module with the collectives: our home of them, or the public path of another package."""
    try:
        from accelerate.runtime import collectives as home
    except ImportError:
        from accelerate import utils as home
    return home


def nested(tensors: list[Any]) -> dict[str, Any]:
    """Return the tensors in dictionaries of tuples, four at a place."""
    return {
        f"group {start}": {"pair": tuple(tensors[start : start + 2]), "list": tensors[start + 2 : start + 4]}
        for start in range(0, len(tensors), 4)
    }


@contextmanager
def counted() -> Iterator[list[str]]:
    """List the outermost functions of torch.distributed that send something, and our headers."""
    import torch.distributed as dist

    places: list[tuple[Any, str, str]] = [(dist, name, name) for name in SENDING if hasattr(dist, name)]
    try:
        from accelerate.runtime.header import GlooChannel
    except ImportError:
        pass  # another package
    else:
        places.append((GlooChannel, "_exchange", "header"))
    calls: list[str] = []
    depth = 0

    def counting(name: str, function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            if not depth:
                calls.append(name)
            depth += 1
            try:
                return function(*args, **kwargs)
            finally:
                depth -= 1

        return call

    originals = [getattr(owner, name) for owner, name, _ in places]
    for (owner, name, label), function in zip(places, originals, strict=True):
        setattr(owner, name, counting(label, function))
    yield calls
    for (owner, name, _), function in zip(places, originals, strict=True):
        setattr(owner, name, function)


def timed(function: Callable[[], Any]) -> tuple[float, float]:
    """Return wall and CPU seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - cpu


def median_of(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the median of every number over the rounds."""
    return {
        name: {key: statistics.median(each[name][key] for each in rounds) for key in values}
        for name, values in rounds[0].items()
    }


def report(found: dict[str, dict[str, Any]]) -> None:
    """Print a line for each operation and package."""
    header = ["", "collectives", "headers"]
    header += [f"{unit}{what}" for unit in ("CPU", "wall", "best") for what in ("", " floor", " over")]
    rows, missed = [], []
    for name in found["ours"]:
        for package, operations_found in found.items():
            numbers = operations_found[name]
            row = [f"{name}, {package}", f"{numbers['collectives']:.0f}", f"{numbers['headers']:.0f}"]
            for unit in ("cpu", "wall", "best"):
                value, floor = numbers[f"operation {unit}"], numbers[f"floor {unit}"]
                row += [f"{value:.3f}", f"{floor:.3f}", f"{value - floor:+.3f}"]
            rows.append(row)
        ours = found["ours"][name]
        if ours["operation best"] - ours["floor best"] > GOAL or ours["collectives"] > 1:
            missed.append(name)
    print(f"{NUM_TENSORS} small tensors in nested containers; ms a call:")
    print(common.table(header, rows))
    print(f"goal: one collective, and at most {GOAL:g} ms over the floor in the best tenth; ", end="")
    print(f"MISSED by {', '.join(missed)}" if missed else "met")


if __name__ == "__main__":
    main()
