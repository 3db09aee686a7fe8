"""The door to the helpers about memory, under their former path."""

from accelerate.compat.doors import door

HOMES = {
    "accelerate.runtime.batch_size": [
        "find_executable_batch_size",
    ],
    "accelerate.runtime.memory": [
        "clear_device_cache",
        "release_memory",
    ],
    "accelerate.runtime.out_of_memory": [
        "should_reduce_batch_size",
    ],
}

__getattr__, __dir__, __all__ = door(__name__, HOMES)
