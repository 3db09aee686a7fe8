# Written by tools/door_stubs.py from the table in memory_utils.py: change that and run it again.

from accelerate.runtime.batch_size import (
    find_executable_batch_size as find_executable_batch_size,
)
from accelerate.runtime.memory import (
    clear_device_cache as clear_device_cache,
    release_memory as release_memory,
)
from accelerate.runtime.out_of_memory import (
    should_reduce_batch_size as should_reduce_batch_size,
)

__all__ = [
    "clear_device_cache",
    "find_executable_batch_size",
    "release_memory",
    "should_reduce_batch_size",
]
