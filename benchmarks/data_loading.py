"""Time what a prepared loader adds to the raw DataLoader per batch of 8 small tensors, skipping, dispatching.

    python benchmarks/data_loading.py [--rounds 5] [--reference PYTHON]

Rounds of fresh processes alternate between raw torch, this package and, with `--reference`, the package
`accelerate` of another environment. A loader of 1 to 64 ranks is read by rank 0 alone, without a process
group; dispatching runs on 2 processes, beside a broadcast of the same bytes. Shown are the medians of CPU
time, of the Python calls and of the collectives; the goals are in the last column. The floor of a shuffled
loader is torch's permutation of all samples, which every rank has to draw.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import common

RANKS = (1, 2, 8, 64)
BATCH_SIZE = 8
NUM_BATCHES = 3000  # of one rank
NUM_SKIPPED = 100_000
NUM_DISPATCHED = 1000
TIMEOUT = 300  # seconds for one process
GOALS = {
    "over raw": "4 us",
    "skip in order": "1 ms",
    "skip shuffled": "20 ms",
    "dispatch": "1.5 x broadcast",
    "collectives": "2",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--reference", metavar="PYTHON", help="interpreter with another `accelerate`")
    parser.add_argument("--worker", choices=sorted(WORKERS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        print(json.dumps(WORKERS[arguments.worker]()))
        return
    candidates: dict[str, Callable[[], dict[str, float]]] = {
        "raw": lambda: common.run_json(sys.executable, __file__, "--worker", "raw"),
        "ours": lambda: measured(sys.executable),
    }
    if arguments.reference:
        candidates["reference"] = lambda: measured(arguments.reference)
    results = common.interleaved(candidates, arguments.rounds)
    report({name: common.medians(samples) for name, samples in results.items()})


def measured(python: str) -> dict[str, float]:
    """Return what one package needs for everything."""
    return {**common.run_json(python, __file__, "--worker", "prepared"), **on_two_ranks(python)}


def report(found: dict[str, dict[str, float]]) -> None:
    """Print a table for loaders of one rank, one for skipping, one for dispatching."""
    raw, packages = found["raw"], [name for name in found if name != "raw"]
    rows = []
    for order in ("in order", "shuffled"):
        for ranks in RANKS:
            key = f"{order}, {ranks} ranks"
            cells = [f"{raw[order]:.1f}"]
            for name in packages:
                over = found[name][key] - raw[order]
                cells.append(f"+{over:.1f} ({found[name][key] / raw[order]:.1f}x)")
            rows.append(
                [key, *cells, *(f"{found[name][key + ' calls']:.0f}" for name in packages), GOALS["over raw"]]
            )
    calls = [f"{name} calls" for name in packages]
    print("CPU time per batch, us; Python calls per batch over those of raw torch")
    print(common.table(["loader", "raw", *packages, *calls, "goal, over raw"], rows))
    floors = (f"{ranks} ranks {found['ours'][f'permutation, {ranks} ranks']:.1f}" for ranks in RANKS)
    print(f"torch's permutation alone, us per batch: {', '.join(floors)}")
    print(f"\nskip_first_batches of {NUM_SKIPPED:,} batches up to the next one, ms")
    skips = [(f"skip {order}", order) for order in ("in order", "shuffled")]
    rows = [[key, *(f"{found[name][key]:.2f}" for name in packages), GOALS[key]] for key, _ in skips]
    print(common.table(["loader", *packages, "goal"], rows))
    print("\ndispatching a batch to 2 ranks, us of CPU a rank; a broadcast of its bytes beside it")
    rows = [
        ["broadcast", *(f"{found[name]['broadcast']:.0f}" for name in packages), ""],
        [
            "dispatch",
            *(
                f"{found[name]['dispatch']:.0f} ({found[name]['dispatch'] / found[name]['broadcast']:.1f}x)"
                for name in packages
            ),
            GOALS["dispatch"],
        ],
        ["collectives", *(f"{found[name]['collectives']:.1f}" for name in packages), GOALS["collectives"]],
    ]
    print(common.table(["step", *packages, "goal"], rows))


# ---- in the processes that are measured --------------------------------------------------------------------


def make_batch() -> dict[str, Any]:
    import torch

    return {f"x{i}": torch.zeros(64 if i % 2 else 8) for i in range(8)}


def make_loader(num_ranks: int, *, shuffle: bool) -> Any:
    from torch.utils.data import DataLoader

    batch = make_batch()
    samples = range(NUM_BATCHES * BATCH_SIZE * num_ranks)
    return DataLoader(samples, batch_size=BATCH_SIZE, shuffle=shuffle, collate_fn=lambda _: batch)


def cost(loader: Iterable[Any]) -> float:
    """Return the CPU time of one batch in us: the best of three passes."""
    best = float("inf")
    for _ in range(3):
        begun = time.process_time()
        number = sum(1 for _ in loader)
        best = min(best, (time.process_time() - begun) / number)
    return best * 1e6


def calls(loader: Iterable[Any]) -> float:
    """Return the number of Python calls of one batch, from the second on."""
    counted = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal counted
        counted += event == "call"

    batches = iter(loader)
    next(batches)
    sys.setprofile(count)
    try:
        for _ in range(100):
            next(batches)
    finally:
        sys.setprofile(None)
    return counted / 100


def permutation_cost(num_ranks: int) -> float:
    """Return the CPU time of torch's permutation of all samples, in us for a batch of this rank."""
    import torch

    begun = time.process_time()
    torch.randperm(NUM_BATCHES * BATCH_SIZE * num_ranks)
    return (time.process_time() - begun) / NUM_BATCHES * 1e6


def raw() -> dict[str, float]:
    return {order: cost(make_loader(1, shuffle=order == "shuffled")) for order in ("in order", "shuffled")}


def prepared() -> dict[str, float]:
    import torch

    from accelerate import Accelerator, skip_first_batches
    from accelerate.data_loader import prepare_data_loader

    Accelerator(cpu=True)
    found = {}
    for order in ("in order", "shuffled"):
        shuffle = order == "shuffled"
        raw_calls = calls(make_loader(1, shuffle=shuffle))
        for ranks in RANKS:
            loader = prepare_data_loader(
                make_loader(ranks, shuffle=shuffle), torch.device("cpu"), ranks, 0, put_on_device=True
            )
            found[f"{order}, {ranks} ranks"] = cost(loader)
            found[f"{order}, {ranks} ranks calls"] = calls(loader) - raw_calls
            if shuffle:
                found[f"permutation, {ranks} ranks"] = permutation_cost(ranks)
        samples = range((NUM_SKIPPED + 10) * BATCH_SIZE)
        whole = torch.utils.data.DataLoader(
            samples, batch_size=BATCH_SIZE, shuffle=shuffle, collate_fn=lambda indices: indices
        )
        whole = prepare_data_loader(whole, torch.device("cpu"), 1, 0, put_on_device=False)
        begun = time.perf_counter()
        next(iter(skip_first_batches(whole, NUM_SKIPPED)))
        found[f"skip {order}"] = (time.perf_counter() - begun) * 1e3
    return found


def on_two_ranks(python: str) -> dict[str, float]:
    """Return the means of what two ranks need to dispatch."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    variables |= {
        "OMP_NUM_THREADS": "1",
        "ACCELERATE_USE_CPU": "true",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
    }
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    if python == sys.executable:
        variables["PYTHONPATH"] = str(common.ROOT / "src")
    command = [python, __file__, "--worker", "dispatch"]
    ranks = [
        subprocess.Popen(
            command, env={**variables, "RANK": rank, "LOCAL_RANK": rank}, stdout=subprocess.PIPE, text=True
        )
        for rank in ("0", "1")
    ]
    found = [json.loads(rank.communicate(timeout=TIMEOUT)[0].splitlines()[-1]) for rank in ranks]
    return {key: sum(each[key] for each in found) / len(found) for key in found[0]}


def dispatch() -> dict[str, float]:
    from datetime import timedelta

    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, IterableDataset

    from accelerate import Accelerator
    from accelerate.data_loader import prepare_data_loader
    from accelerate.utils import InitProcessGroupKwargs

    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter([make_batch()] * (2 * NUM_DISPATCHED + 40))

    timeout = InitProcessGroupKwargs(timeout=timedelta(seconds=60))
    accelerator = Accelerator(cpu=True, kwargs_handlers=[timeout])
    payload = torch.zeros(sum(tensor.nbytes for tensor in make_batch().values()), dtype=torch.uint8)

    def of_each(step: Callable[[], Any]) -> float:
        for _ in range(10):
            step()
        begun = time.process_time()
        for _ in range(NUM_DISPATCHED):
            step()
        return (time.process_time() - begun) / NUM_DISPATCHED * 1e6

    broadcast = of_each(lambda: dist.broadcast(payload, 0))
    loader = DataLoader(Stream(), batch_size=None, collate_fn=lambda batch: batch)
    loader = prepare_data_loader(loader, accelerator.device, put_on_device=True, dispatch_batches=True)
    batches = iter(loader)
    next(batches)
    before = collectives_begun()
    mine = of_each(lambda: next(batches))
    begun = collectives_begun() - before
    for _ in batches:
        continue
    accelerator.end_training()
    return {"broadcast": broadcast, "dispatch": mine, "collectives": begun / (NUM_DISPATCHED + 10)}


def collectives_begun() -> int:
    """Return how many collectives this rank has begun, in the default group and in that of our headers."""
    import torch.distributed as dist

    groups: list[Any] = [dist.group.WORLD]
    header = sys.modules.get("accelerate.runtime.header")
    if header is not None:
        groups += [channel.gloo for channel in header._channels.values() if channel.gloo is not None]
    return sum(group._get_sequence_number_for_group() for group in groups)


WORKERS = {"raw": raw, "prepared": prepared, "dispatch": dispatch}

if __name__ == "__main__":
    main()
