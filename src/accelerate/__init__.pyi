# Written by tools/door_stubs.py from the table in __init__.py: change that and run it again.

from accelerate import accelerator as accelerator
from accelerate import big_modeling as big_modeling
from accelerate import checkpoint as checkpoint
from accelerate import checkpointing as checkpointing
from accelerate import commands as commands
from accelerate import compat as compat
from accelerate import data as data
from accelerate import data_loader as data_loader
from accelerate import devices as devices
from accelerate import errors as errors
from accelerate import hooks as hooks
from accelerate import launchers as launchers
from accelerate import launching as launching
from accelerate import logging as logging
from accelerate import memory_utils as memory_utils
from accelerate import modules as modules
from accelerate import offload as offload
from accelerate import optimizer as optimizer
from accelerate import options as options
from accelerate import precision as precision
from accelerate import runtime as runtime
from accelerate import scheduler as scheduler
from accelerate import state as state
from accelerate import strategies as strategies
from accelerate import test_utils as test_utils
from accelerate import training as training
from accelerate import utils as utils
from accelerate.accelerator import (
    Accelerator as Accelerator,
)
from accelerate.big_modeling import (
    cpu_offload as cpu_offload,
    disk_offload as disk_offload,
    dispatch_model as dispatch_model,
)
from accelerate.compat.probes import (
    is_rich_available as is_rich_available,
)
from accelerate.data.skip import (
    skip_first_batches as skip_first_batches,
)
from accelerate.launching.debug import (
    debug_launcher as debug_launcher,
)
from accelerate.launching.notebook import (
    notebook_launcher as notebook_launcher,
)
from accelerate.offload.user import (
    cpu_offload_with_hook as cpu_offload_with_hook,
)
from accelerate.options.data import (
    DataLoaderConfiguration as DataLoaderConfiguration,
)
from accelerate.options.enums import (
    DDPCommunicationHookType as DDPCommunicationHookType,
    DistributedType as DistributedType,
)
from accelerate.options.fsdp import (
    FullyShardedDataParallelPlugin as FullyShardedDataParallelPlugin,
)
from accelerate.options.handlers import (
    AutocastKwargs as AutocastKwargs,
    DistributedDataParallelKwargs as DistributedDataParallelKwargs,
    GradScalerKwargs as GradScalerKwargs,
    InitProcessGroupKwargs as InitProcessGroupKwargs,
)
from accelerate.options.profile import (
    ProfileKwargs as ProfileKwargs,
)
from accelerate.runtime.batch_size import (
    find_executable_batch_size as find_executable_batch_size,
)
from accelerate.runtime.rng import (
    synchronize_rng_states as synchronize_rng_states,
)
from accelerate.state import (
    PartialState as PartialState,
)

__version__: str

__all__ = [
    "Accelerator",
    "AutocastKwargs",
    "DDPCommunicationHookType",
    "DataLoaderConfiguration",
    "DistributedDataParallelKwargs",
    "DistributedType",
    "FullyShardedDataParallelPlugin",
    "GradScalerKwargs",
    "InitProcessGroupKwargs",
    "PartialState",
    "ProfileKwargs",
    "cpu_offload",
    "cpu_offload_with_hook",
    "debug_launcher",
    "disk_offload",
    "dispatch_model",
    "find_executable_batch_size",
    "is_rich_available",
    "notebook_launcher",
    "skip_first_batches",
    "synchronize_rng_states",
]
