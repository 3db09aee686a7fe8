"""Record what each rank gets out of loaders that are prepared in every way, for tests/distributed.

Run with the Python of an environment that has the library to record:
`python tests/reference/record_loaders.py tests/reference/data/loaders.json`. It uses public names only.
"""

import json
import os
import socket
import subprocess
import sys
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, InitProcessGroupKwargs

sys.path.insert(0, str(Path(__file__).parent))
from loader_cases import FLAGS, cases, outcomes

NUM_RANKS = (2, 3)


def on_rank() -> None:
    """Print what this rank sees of every case."""
    timeout = InitProcessGroupKwargs(timeout=timedelta(seconds=30))
    accelerator = Accelerator(cpu=True, kwargs_handlers=[timeout])
    print(json.dumps(outcomes(accelerator, DataLoaderConfiguration)))


def run(num_ranks: int) -> list[Any]:
    """Return the outcomes of all cases, those of all ranks together."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    ranks = []
    for rank in range(num_ranks):
        place = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(num_ranks),
            "LOCAL_WORLD_SIZE": str(num_ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
            "ACCELERATE_USE_CPU": "true",
        }
        command = [sys.executable, "-W", "ignore", __file__]
        ranks.append(
            subprocess.Popen(command, env={**os.environ, **place}, stdout=subprocess.PIPE, text=True)
        )
    printed = [rank.communicate(timeout=600)[0] for rank in ranks]
    return list(zip(*(json.loads(text.splitlines()[-1]) for text in printed), strict=True))


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def main(path: Path) -> None:
    head = {
        "recorded from": f"accelerate {version('accelerate')}, torch {torch.__version__}",
        "cases": [
            f"[ranks, length, batch size, kind, {', '.join(FLAGS)}]",
            "of each rank: [batches, len(), remainder at the end, gather_for_metrics], or an error's name",
        ],
    }
    lines = [
        compact([[num_ranks, *(int(v) if v in (0, 1) else v for v in case.values())], list(found)])
        for num_ranks in NUM_RANKS
        for case, found in zip(cases(num_ranks), run(num_ranks), strict=True)
    ]
    text = ",\n".join(lines)
    path.write_text(f'{{"about": {json.dumps(head)},\n"cases": [\n{text}\n]}}\n')
    print(f"{len(lines)} cases written to {path}")


if __name__ == "__main__":
    if "RANK" in os.environ:
        on_rank()
    else:
        main(Path(sys.argv[1]))
