"""Time calls that mostly find nothing to do: `send_to_device` of a batch that is there, `unwrap_model`.

    python benchmarks/small_calls.py [--reference /path/to/another/environment/bin/python]

`--reference` names an interpreter whose environment holds another implementation of the interface, such as
the original one; it is measured in turn with ours. Each number is the best of many repeats, since everything
that disturbs such a call makes it longer.
"""

import argparse
import json
import os
import sys
import timeit
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import common

NUM_TENSORS = 8  # of a batch
NUMBER, REPEATS, ROUNDS = 5000, 15, 3
GOALS = {"send_to_device": 3.0, "unwrap_model": 5.0}  # us, at most


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
    rows = [[call, *(f"{numbers[call]:.2f}" for numbers in found.values())] for call in found["ours"]]
    print(common.table(["us a call", *found], rows))
    missed = [call for call, value in found["ours"].items() if value > GOALS[call.split(",")[0]]]
    goals = ", ".join(f"{call} {goal:g} us" for call, goal in GOALS.items())
    print(f"goal: at most {goals}; " + (f"MISSED by {missed}" if missed else "met"))


def measure() -> dict[str, float]:
    """Measure every call in this interpreter."""
    return {
        name: min(timeit.repeat(call, number=NUMBER, repeat=REPEATS)) / NUMBER * 1e6 for name, call in calls()
    }


def calls() -> list[tuple[str, Callable[[], Any]]]:
    """Return the calls by name."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from accelerate import Accelerator
    from accelerate.utils import send_to_device

    os.environ.update(ACCELERATE_USE_CPU="true")
    accelerator = Accelerator(cpu=True)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    tensors = [torch.ones(3) for _ in range(NUM_TENSORS)]
    named = {f"input {index}": tensor for index, tensor in enumerate(tensors)}
    nested = {"pair": tuple(tensors[:2]), "list": tensors[2:4], "deep": {"of": dict(list(named.items())[4:])}}
    device = torch.device("cpu")
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    prepared = accelerator.prepare(model)
    parallel = DistributedDataParallel(model)
    return [
        ("send_to_device, dictionary", lambda: send_to_device(named, device)),
        ("send_to_device, list", lambda: send_to_device(tensors, device)),
        ("send_to_device, nested", lambda: send_to_device(nested, device)),
        ("send_to_device, device as text", lambda: send_to_device(named, "cpu")),
        ("unwrap_model, bare", lambda: accelerator.unwrap_model(prepared)),
        ("unwrap_model, parallel", lambda: accelerator.unwrap_model(parallel)),
    ]


if __name__ == "__main__":
    main()
