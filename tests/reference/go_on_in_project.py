"""Load the newest checkpoint of a project with another library, save the next one, and print what came back.

Run by tests/reference/test_checkpoint.py with the Python of an environment that has that library. It uses
public names only.
"""

import json
import sys

from checkpoint_objects import describe, make

from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration


def main(project_dir: str, iteration: int) -> None:
    project = ProjectConfiguration(
        project_dir=project_dir, automatic_checkpoint_naming=True, total_limit=2, iteration=iteration
    )
    accelerator = Accelerator(cpu=True, project_config=project)
    objects = make(seed=2)
    objects.models = list(accelerator.prepare(*objects.models))
    objects.optimizers = list(accelerator.prepare(*objects.optimizers))
    objects.scheduler = accelerator.prepare(objects.scheduler)
    accelerator.register_for_checkpointing(*objects.counters)
    accelerator.load_state()
    accelerator.save_state()
    print(json.dumps({"step": accelerator.step, **describe(objects)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
