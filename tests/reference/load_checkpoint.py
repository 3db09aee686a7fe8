"""Load a checkpoint of ours with another library, and print what came back as JSON.

Run by tests/reference/test_checkpoint.py with the Python of an environment that has that library. It uses
public names only.
"""

import json
import sys

from checkpoint_objects import describe, make

from accelerate import Accelerator


def main(folder: str) -> None:
    accelerator = Accelerator(cpu=True)
    objects = make(seed=2)
    objects.models = list(accelerator.prepare(*objects.models))
    objects.optimizers = list(accelerator.prepare(*objects.optimizers))
    objects.scheduler = accelerator.prepare(objects.scheduler)
    accelerator.register_for_checkpointing(*objects.counters)
    accelerator.load_state(folder)
    print(json.dumps({"step": accelerator.step, **describe(objects)}))


if __name__ == "__main__":
    main(sys.argv[1])
