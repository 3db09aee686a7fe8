# Written by tools/door_stubs.py from the table in operations.py: change that and run it again.

from accelerate.compat.probes import (
    is_torch_distributed_available as is_torch_distributed_available,
)
from accelerate.compat.versions import (
    is_torch_version as is_torch_version,
)
from accelerate.errors import (
    DistributedOperationException as DistributedOperationException,
)
from accelerate.options.enums import (
    DistributedType as DistributedType,
)

__all__ = [
    "DistributedOperationException",
    "DistributedType",
    "is_torch_distributed_available",
    "is_torch_version",
]
