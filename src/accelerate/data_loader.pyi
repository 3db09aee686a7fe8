# Written by tools/door_stubs.py from the table in data_loader.py: change that and run it again.

from accelerate.compat.probes import (
    is_datasets_available as is_datasets_available,
    is_torchdata_stateful_dataloader_available as is_torchdata_stateful_dataloader_available,
)
from accelerate.compat.versions import (
    compare_versions as compare_versions,
    is_torch_version as is_torch_version,
)
from accelerate.data.adapter import (
    DataLoaderAdapter as DataLoaderAdapter,
    DataLoaderStateMixin as DataLoaderStateMixin,
)
from accelerate.data.dispatch import (
    DataLoaderDispatcher as DataLoaderDispatcher,
)
from accelerate.data.prepare import (
    prepare_data_loader as prepare_data_loader,
)
from accelerate.data.rounds import (
    BatchSamplerShard as BatchSamplerShard,
)
from accelerate.data.samplers import (
    get_sampler as get_sampler,
    SeedableRandomSampler as SeedableRandomSampler,
    SkipBatchSampler as SkipBatchSampler,
)
from accelerate.data.shard import (
    DataLoaderShard as DataLoaderShard,
)
from accelerate.data.skip import (
    skip_first_batches as skip_first_batches,
    SkipDataLoader as SkipDataLoader,
)
from accelerate.data.streams import (
    IterableDatasetShard as IterableDatasetShard,
)
from accelerate.devices.support import (
    is_torch_xla_available as is_torch_xla_available,
)
from accelerate.logging import (
    get_logger as get_logger,
)
from accelerate.modules.batch import (
    concatenate as concatenate,
    find_batch_size as find_batch_size,
    get_data_structure as get_data_structure,
    initialize_tensors as initialize_tensors,
    slice_tensors as slice_tensors,
)
from accelerate.modules.nested import (
    send_to_device as send_to_device,
)
from accelerate.options.enums import (
    DistributedType as DistributedType,
    RNGType as RNGType,
)
from accelerate.runtime.collectives import (
    broadcast as broadcast,
    broadcast_object_list as broadcast_object_list,
)
from accelerate.runtime.rng import (
    synchronize_rng_states as synchronize_rng_states,
)
from accelerate.state import (
    GradientState as GradientState,
    PartialState as PartialState,
)

__all__ = [
    "BatchSamplerShard",
    "DataLoaderAdapter",
    "DataLoaderDispatcher",
    "DataLoaderShard",
    "DataLoaderStateMixin",
    "DistributedType",
    "GradientState",
    "IterableDatasetShard",
    "PartialState",
    "RNGType",
    "SeedableRandomSampler",
    "SkipBatchSampler",
    "SkipDataLoader",
    "broadcast",
    "broadcast_object_list",
    "compare_versions",
    "concatenate",
    "find_batch_size",
    "get_data_structure",
    "get_logger",
    "get_sampler",
    "initialize_tensors",
    "is_datasets_available",
    "is_torch_version",
    "is_torch_xla_available",
    "is_torchdata_stateful_dataloader_available",
    "prepare_data_loader",
    "send_to_device",
    "skip_first_batches",
    "slice_tensors",
    "synchronize_rng_states",
]
