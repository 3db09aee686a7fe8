# Written by tools/door_stubs.py from the table in other.py: change that and run it again.

from accelerate.compat.orphans import (
    convert_bytes as convert_bytes,
    get_pretty_name as get_pretty_name,
    merge_dicts as merge_dicts,
    recursive_getattr as recursive_getattr,
)
from accelerate.compat.probes import (
    is_deepspeed_available as is_deepspeed_available,
    is_numpy_available as is_numpy_available,
    is_torch_distributed_available as is_torch_distributed_available,
    is_weights_only_available as is_weights_only_available,
)
from accelerate.compat.system import (
    check_os_kernel as check_os_kernel,
    get_free_port as get_free_port,
    is_port_in_use as is_port_in_use,
)
from accelerate.compat.versions import (
    is_torch_version as is_torch_version,
)
from accelerate.options.enums import (
    DistributedType as DistributedType,
)

__all__ = [
    "DistributedType",
    "check_os_kernel",
    "convert_bytes",
    "get_free_port",
    "get_pretty_name",
    "is_deepspeed_available",
    "is_numpy_available",
    "is_port_in_use",
    "is_torch_distributed_available",
    "is_torch_version",
    "is_weights_only_available",
    "merge_dicts",
    "recursive_getattr",
]
