"""Measure what the Accelerator adds to a training step, over the same loop in plain PyTorch.

    python benchmarks/step_overhead.py
    python benchmarks/step_overhead.py --reference /path/to/another/environment/bin/python

A step is one batch of a small network: load, forward, backward, optimizer, scheduler, zero_grad. Counted are
the calls of Python functions that `sys.setprofile` reports, wall time and CPU time. `--reference` names an
interpreter whose environment holds another implementation of the interface, for instance the original one; it
is measured in turn with ours. Counts are exact; times are medians and depend on the machine.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import common

NUM_FEATURES, BATCH_SIZE = 32, 16
GOAL = 40  # extra calls per step, at most
ACCUMULATIONS = (1, 4)

Epoch = Callable[[], Iterator[None]]  # trains one epoch, yields after each step


def main() -> None:
    args = parse_arguments()
    if args.measure:
        print(json.dumps(measure(args.measure, args.steps, args.repeats)))
        return
    pythons = {"ours": sys.executable} | ({"reference": args.reference} if args.reference else {})
    for num_accumulation in ACCUMULATIONS:
        command = [__file__, "--measure", str(num_accumulation)]
        command += ["--steps", str(args.steps), "--repeats", str(args.repeats)]
        candidates = {name: partial(common.run_json, python, *command) for name, python in pythons.items()}
        report(num_accumulation, common.interleaved(candidates, args.rounds))


def report(num_accumulation: int, results: dict[str, list[dict[str, Any]]]) -> None:
    """Print one table: each implementation's cost beside the plain loop's."""
    plain = common.medians([round["plain"] for rounds in results.values() for round in rounds])
    header = ["", "calls", "extra calls", "wall us", "ratio", "CPU us", "ratio"]
    rows = [["plain PyTorch", *cells(plain, plain)]]
    extra = {}
    for name, rounds in results.items():
        cost = common.medians([round["accelerate"] for round in rounds])
        extra[name] = cost["calls"] - plain["calls"]
        rows.append([f"{name} ({rounds[0]['version']})", *cells(cost, plain)])
    print(f"\nPer step, gradient_accumulation_steps={num_accumulation}:")
    print(common.table(header, rows))
    print(f"goal: at most {GOAL} extra calls; {'met' if extra['ours'] <= GOAL else 'MISSED'}", end="")
    if "reference" in extra:
        print(f"; ours makes {extra['ours'] / extra['reference']:.0%} of the reference's", end="")
    print()


def cells(cost: dict[str, float], plain: dict[str, float]) -> list[str]:
    return [
        f"{cost['calls']:.1f}",
        f"{cost['calls'] - plain['calls']:+.1f}",
        f"{cost['wall']:.0f}",
        f"{cost['wall'] / plain['wall']:.2f}",
        f"{cost['cpu']:.0f}",
        f"{cost['cpu'] / plain['cpu']:.2f}",
    ]


def measure(num_accumulation: int, num_steps: int, num_repeats: int) -> dict[str, Any]:
    """Measure both loops in this interpreter, in turn; runs in a process of its own."""
    import accelerate

    epochs = {
        "plain": plain_loop(num_accumulation, num_steps),
        "accelerate": accelerated_loop(num_accumulation, num_steps),
    }
    for epoch in epochs.values():  # the first epoch allocates optimizer state and fills caches
        exhaust(epoch)
    timed = {name: partial(time_epoch, epoch, num_steps) for name, epoch in epochs.items()}
    times = common.interleaved(timed, num_repeats)
    costs: dict[str, Any] = {name: common.medians(samples) for name, samples in times.items()}
    for name, epoch in epochs.items():
        costs[name]["calls"] = count_calls(epoch)
    return costs | {"version": accelerate.__version__}


def exhaust(epoch: Epoch) -> None:
    for _ in epoch():
        continue


def time_epoch(epoch: Epoch, num_steps: int) -> dict[str, float]:
    """Return microseconds per step."""
    wall, cpu = time.perf_counter(), time.process_time()
    exhaust(epoch)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"wall": 1e6 * wall / num_steps, "cpu": 1e6 * cpu / num_steps}


def count_calls(epoch: Epoch) -> float:
    """Return the calls of Python functions per step, without those at the ends of an epoch."""
    num_calls = 0
    after_step: list[int] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal num_calls
        num_calls += event == "call"

    steps = epoch()
    sys.setprofile(note)
    try:
        for _ in steps:
            after_step.append(num_calls)
    finally:
        sys.setprofile(None)
    first, last = ACCUMULATIONS[-1], len(after_step) - ACCUMULATIONS[-1]  # whole windows lie between them
    return (after_step[last] - after_step[first]) / (last - first)


def make_parts(num_steps: int) -> tuple[Any, ...]:
    """Return model, optimizer, scheduler and loader of the plain loop."""
    import torch
    from torch.optim.lr_scheduler import LambdaLR
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(NUM_FEATURES, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 1),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scheduler = LambdaLR(optimizer, lambda step: 1 / (1 + step))
    inputs = torch.randn(num_steps * BATCH_SIZE, NUM_FEATURES)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), BATCH_SIZE, shuffle=True)
    return model, optimizer, scheduler, loader


def plain_loop(num_accumulation: int, num_steps: int) -> Epoch:
    from torch.nn.functional import mse_loss

    model, optimizer, scheduler, loader = make_parts(num_steps)

    def epoch() -> Iterator[None]:
        for index, (inputs, targets) in enumerate(loader, start=1):
            loss = mse_loss(model(inputs), targets) / num_accumulation
            loss.backward()
            if index % num_accumulation == 0:
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            yield

    return epoch


def accelerated_loop(num_accumulation: int, num_steps: int) -> Epoch:
    from torch.nn.functional import mse_loss

    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=num_accumulation)
    model, optimizer, scheduler, loader = accelerator.prepare(*make_parts(num_steps))

    def epoch() -> Iterator[None]:
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                loss = mse_loss(model(inputs), targets)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            yield

    return epoch


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reference", help="interpreter of the environment to compare with")
    parser.add_argument("--steps", type=int, default=400, help="steps of one epoch")
    parser.add_argument("--repeats", type=int, default=5, help="timed epochs of each loop in one process")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each implementation")
    parser.add_argument("--measure", type=int, metavar="ACCUMULATION", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
