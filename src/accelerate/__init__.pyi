# Written by tools/door_stubs.py from the table in __init__.py: change that and run it again.

from accelerate import compat as compat
from accelerate import data_loader as data_loader
from accelerate import errors as errors
from accelerate import options as options
from accelerate import utils as utils
from accelerate.compat.probes import (
    is_rich_available as is_rich_available,
)
from accelerate.options.data import (
    DataLoaderConfiguration as DataLoaderConfiguration,
)
from accelerate.options.enums import (
    DDPCommunicationHookType as DDPCommunicationHookType,
    DistributedType as DistributedType,
)
from accelerate.options.handlers import (
    AutocastKwargs as AutocastKwargs,
    DistributedDataParallelKwargs as DistributedDataParallelKwargs,
    GradScalerKwargs as GradScalerKwargs,
    InitProcessGroupKwargs as InitProcessGroupKwargs,
)

__version__: str

__all__ = [
    "AutocastKwargs",
    "DDPCommunicationHookType",
    "DataLoaderConfiguration",
    "DistributedDataParallelKwargs",
    "DistributedType",
    "GradScalerKwargs",
    "InitProcessGroupKwargs",
    "is_rich_available",
]
