# Written by tools/door_stubs.py from the table in data_loader.py: change that and run it again.

from accelerate.compat.probes import (
    is_datasets_available as is_datasets_available,
    is_torchdata_stateful_dataloader_available as is_torchdata_stateful_dataloader_available,
)
from accelerate.compat.versions import (
    compare_versions as compare_versions,
    is_torch_version as is_torch_version,
)
from accelerate.options.enums import (
    DistributedType as DistributedType,
    RNGType as RNGType,
)

__all__ = [
    "DistributedType",
    "RNGType",
    "compare_versions",
    "is_datasets_available",
    "is_torch_version",
    "is_torchdata_stateful_dataloader_available",
]
