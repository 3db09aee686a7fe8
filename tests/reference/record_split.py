"""Record what `split_between_processes` gives each rank, for tests/unit/runtime/test_split.py.

Run with the Python of an environment that has the library to record:
`python tests/reference/record_split.py tests/reference/data/split.json`. It uses public names only, and
starts as many processes as there are ranks.
"""

import json
import multiprocessing
import os
import socket
import sys
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from split_cases import COLLECTIONS, LENGTHS, RANKS, described

from accelerate import Accelerator, InitProcessGroupKwargs


def part(accelerator: Accelerator, name: str, length: int, padding: bool) -> list[Any]:
    """Return [the part, whether the input was changed] or [the name of the error]."""
    inputs = COLLECTIONS[name](length)
    try:
        with accelerator.split_between_processes(inputs, apply_padding=padding) as mine:
            result = described(mine)
    except (ValueError, TypeError, IndexError) as error:
        return [type(error).__name__]
    return [result, described(inputs) != described(COLLECTIONS[name](length))]


def rank_main(rank: int, size: int, port: int, results: Any) -> None:
    names = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "MASTER_PORT": port,
    }
    os.environ.update({name: str(value) for name, value in names.items()}, MASTER_ADDR="127.0.0.1")
    timeout = InitProcessGroupKwargs(timeout=timedelta(seconds=60))
    accelerator = Accelerator(cpu=True, kwargs_handlers=[timeout])
    cases = [
        (name, length, padding) for name in COLLECTIONS for length in LENGTHS for padding in (False, True)
    ]
    results.put((rank, [part(accelerator, *case) for case in cases]))
    accelerator.wait_for_everyone()
    accelerator.end_training()


def record(size: int) -> list[Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    ranks = [context.Process(target=rank_main, args=(rank, size, port, results)) for rank in range(size)]
    for process in ranks:
        process.start()
    parts = dict(results.get(timeout=120) for _ in ranks)
    for process in ranks:
        process.join(60)
    cases = [[name, length, int(padding)] for name in COLLECTIONS for length in LENGTHS for padding in (0, 1)]
    return [
        [size, *case, list(each)] for case, *each in zip(cases, *(parts[r] for r in range(size)), strict=True)
    ]


def main(path: Path) -> None:
    cases = [case for size in RANKS for case in record(size)]
    about = {
        "recorded from": f"accelerate {version('accelerate')}, torch {torch.__version__}",
        "cases": "[ranks, collection, length, apply_padding, for each rank [part, input changed] or [error]]",
    }
    rows = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    path.write_text(f'{{"about": {json.dumps(about)},\n"cases": [\n{rows}\n]}}\n')
    print(f"{len(cases)} cases written to {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
