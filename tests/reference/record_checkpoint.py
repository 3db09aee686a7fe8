"""Record checkpoints of the library that tests/reference/test_checkpoint.py loads with ours.

Run with the Python of an environment that has the library to record:
`python tests/reference/record_checkpoint.py tests/reference/data/checkpoint_1_15_0`. It uses public names
only. Writes a folder with safetensors, one with pickles, the weights in shards, and what must come back.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

from checkpoint_objects import describe, make

from accelerate import Accelerator

STEP = 7


def main(target: Path) -> None:
    accelerator = Accelerator(cpu=True)
    objects = make(seed=1)
    objects.models = list(accelerator.prepare(*objects.models))
    objects.optimizers = list(accelerator.prepare(*objects.optimizers))
    objects.scheduler = accelerator.prepare(objects.scheduler)
    accelerator.register_for_checkpointing(*objects.counters)
    accelerator.step = STEP
    accelerator.save_state(str(target / "safetensors"))
    accelerator.save_state(str(target / "pickles"), safe_serialization=False)
    accelerator.save_model(objects.models[1], str(target / "shards"), max_shard_size=24)
    expected = {
        "recorded from": f"accelerate {version('accelerate')}",
        "step": STEP,
        **describe(objects),
    }
    (target / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
