"""Record which batches each rank gets from `BatchSamplerShard`, for tests/unit/data/test_samplers.py.

Run with the Python of an environment that has the library to record:
`python tests/reference/record_samplers.py tests/reference/data/samplers.json`. It uses public names only.
"""

import itertools
import json
import sys
from importlib.metadata import version
from pathlib import Path

from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler, SequentialSampler

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


def main(path: Path) -> None:
    flags = (False, True)
    cases = [
        record(*case)
        for case in itertools.product(LENGTHS, BATCH_SIZES, RANKS, flags, flags, flags)
        if not case[4] or case[1] % case[2] == 0
    ]
    settings = "[length, batch size, ranks, drop_last, split_batches, even_batches]"
    head = {
        "recorded from": f"accelerate {version('accelerate')}",
        "columns": [settings, "batches of each rank", "len() on each rank"],
    }
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    path.write_text(f'{{"about": {json.dumps(head)},\n"cases": [\n{lines}\n]}}\n')
    print(f"{len(cases)} cases written to {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
