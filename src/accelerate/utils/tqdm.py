"""The door to the progress bar, under the path that client libraries import."""

from accelerate.compat.doors import door

HOMES = {
    "accelerate.compat.probes": ["is_tqdm_available"],
    "accelerate.runtime.progress": ["tqdm"],
    "accelerate.state": ["PartialState"],
}

__getattr__, __dir__, __all__ = door(__name__, HOMES)
