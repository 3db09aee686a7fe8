"""What a test in the main process may leave to the next one: nothing. Used by the fixture `no_leaks`."""

import os
import sys

from tests.support.rank_worker import reset_accelerate

WATCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
PREFIXES = ("ACCELERATE_", "FSDP_", "TORCHELASTIC_")


def watched_variables() -> dict[str, str]:
    """Return the variables that steer accelerate or come from a launcher, as they are now."""
    return {name: value for name, value in os.environ.items() if name in WATCHED or name.startswith(PREFIXES)}


def undo_leaks(before: dict[str, str]) -> list[str]:
    """Put back the variables of `before`, end the process group, and say what had to be undone.

    The current run of accelerate is reset as well, without a word: making one is what most tests do.
    """
    leaks = []
    after = watched_variables()
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            leaks.append(f"{name} was {before.get(name)!r} and is {after.get(name)!r}")
            os.environ.pop(name, None)
            os.environ.update({name: before[name]} if name in before else {})
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        leaks.append("a process group is still there")
        distributed.destroy_process_group()
    reset_accelerate()
    return leaks
