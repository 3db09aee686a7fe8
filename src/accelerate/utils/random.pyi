# Written by tools/door_stubs.py from the table in random.py: change that and run it again.

from accelerate.options.enums import (
    DistributedType as DistributedType,
    RNGType as RNGType,
)

__all__ = [
    "DistributedType",
    "RNGType",
]
