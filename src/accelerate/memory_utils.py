"""The door to the helpers about memory, under their former path."""

from accelerate.compat.doors import door

HOMES = {
    "accelerate.runtime.memory": [
        "clear_device_cache",
        "release_memory",
    ],
}

__getattr__, __dir__, __all__ = door(__name__, HOMES)
