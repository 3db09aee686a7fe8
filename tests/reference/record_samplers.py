"""Record which samples each rank gets, and in which order, for tests/unit/data.

Run with the Python of an environment that has the library to record:
`python tests/reference/record_samplers.py tests/reference/data/samplers.json`. It uses public names only.
"""

import itertools
import json
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from accelerate import Accelerator
from accelerate.data_loader import BatchSamplerShard, prepare_data_loader

LENGTHS = (0, 1, 3, 5, 8, 9, 13)
BATCH_SIZES = (1, 2, 3, 4)
RANKS = (2, 3, 4)


def record(length: int, batch_size: int, ranks: int, drop_last: bool, split: bool, even: bool) -> list:
    inner = BatchSampler(SequentialSampler(range(length)), batch_size, drop_last)
    shards = [BatchSamplerShard(inner, ranks, rank, split, even) for rank in range(ranks)]
    return [
        [length, batch_size, ranks, int(drop_last), int(split), int(even)],
        [list(shard) for shard in shards],
        [len(shard) for shard in shards],
    ]


def record_order(kind: str, ranks: int, settings: dict) -> list:
    """Record two passes of a loader that shuffles, and how far they moved torch's random state."""
    torch.manual_seed(3)
    sampler = {
        "shuffle": lambda: None,
        "subset": lambda: SubsetRandomSampler(range(7)),
        "weighted": lambda: WeightedRandomSampler([1.0] * 13, 8),
    }[kind]()
    loader = DataLoader(range(13), batch_size=3, shuffle=sampler is None, sampler=sampler)
    loader = prepare_data_loader(loader, num_processes=ranks, process_index=ranks - 1, **settings)
    passes = [[batch.tolist() for batch in loader] for _ in range(2)]
    return [[kind, ranks, settings], passes, torch.randint(1000, (1,)).item()]


def lines(cases: list) -> str:
    return ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)


def main(path: Path) -> None:
    flags = (False, True)
    cases = [
        record(*case)
        for case in itertools.product(LENGTHS, BATCH_SIZES, RANKS, flags, flags, flags)
        if not case[4] or case[1] % case[2] == 0
    ]
    Accelerator(cpu=True)
    # Samplers other than a plain shuffle are left out with use_seedable_sampler: there each rank draws from
    # its own global random state, so that ranks with different seeds disagree.
    seedable = [{"use_seedable_sampler": True}, {"use_seedable_sampler": True, "data_seed": 5}]
    settings_of = {"shuffle": [{}, *seedable], "subset": [{}], "weighted": [{}]}
    orders = [
        record_order(kind, ranks, settings)
        for kind, every in settings_of.items()
        for ranks, settings in itertools.product((1, 2, 3), every)
    ]
    settings = "[length, batch size, ranks, drop_last, split_batches, even_batches]"
    head = {
        "recorded from": f"accelerate {version('accelerate')}, torch {torch.__version__}",
        "cases": [settings, "batches of each rank", "len() on each rank"],
        "orders": ["[sampler, ranks, settings]", "two passes of the last rank", "next torch.randint(1000)"],
    }
    path.write_text(
        f'{{"about": {json.dumps(head)},\n"cases": [\n{lines(cases)}\n],\n"orders": [\n{lines(orders)}\n]}}\n'
    )
    print(f"{len(cases)} cases and {len(orders)} orders written to {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
