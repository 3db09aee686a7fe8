# Written by tools/door_stubs.py from the table in dataclasses.py: change that and run it again.

from accelerate.compat.env import (
    parse_flag_from_env as parse_flag_from_env,
    str_to_bool as str_to_bool,
)
from accelerate.compat.probes import (
    is_msamp_available as is_msamp_available,
    is_torchao_available as is_torchao_available,
    is_transformer_engine_available as is_transformer_engine_available,
)
from accelerate.compat.versions import (
    compare_versions as compare_versions,
    is_torch_version as is_torch_version,
)
from accelerate.devices.support import (
    is_cuda_available as is_cuda_available,
    is_hpu_available as is_hpu_available,
    is_mlu_available as is_mlu_available,
    is_musa_available as is_musa_available,
    is_neuron_available as is_neuron_available,
    is_npu_available as is_npu_available,
    is_rocm_available as is_rocm_available,
    is_xpu_available as is_xpu_available,
)
from accelerate.modules.nested import (
    TensorInformation as TensorInformation,
)
from accelerate.modules.traverse import (
    get_module_class_from_name as get_module_class_from_name,
)
from accelerate.options.accumulation import (
    GradientAccumulationPlugin as GradientAccumulationPlugin,
)
from accelerate.options.data import (
    DataLoaderConfiguration as DataLoaderConfiguration,
)
from accelerate.options.dynamo import (
    TorchDynamoPlugin as TorchDynamoPlugin,
)
from accelerate.options.enums import (
    BaseEnum as BaseEnum,
    ComputeEnvironment as ComputeEnvironment,
    CustomDtype as CustomDtype,
    DDPCommunicationHookType as DDPCommunicationHookType,
    DistributedType as DistributedType,
    DynamoBackend as DynamoBackend,
    EnumWithContains as EnumWithContains,
    FP8BackendType as FP8BackendType,
    LoggerType as LoggerType,
    PrecisionType as PrecisionType,
    RNGType as RNGType,
    SageMakerDistributedType as SageMakerDistributedType,
)
from accelerate.options.fsdp import (
    FullyShardedDataParallelPlugin as FullyShardedDataParallelPlugin,
)
from accelerate.options.handlers import (
    AutocastKwargs as AutocastKwargs,
    DistributedDataParallelKwargs as DistributedDataParallelKwargs,
    GradScalerKwargs as GradScalerKwargs,
    InitProcessGroupKwargs as InitProcessGroupKwargs,
    KwargsHandler as KwargsHandler,
)
from accelerate.options.profile import (
    ProfileKwargs as ProfileKwargs,
    ProfilerActivity as ProfilerActivity,
)
from accelerate.options.project import (
    ProjectConfiguration as ProjectConfiguration,
)

__all__ = [
    "AutocastKwargs",
    "BaseEnum",
    "ComputeEnvironment",
    "CustomDtype",
    "DDPCommunicationHookType",
    "DataLoaderConfiguration",
    "DistributedDataParallelKwargs",
    "DistributedType",
    "DynamoBackend",
    "EnumWithContains",
    "FP8BackendType",
    "FullyShardedDataParallelPlugin",
    "GradScalerKwargs",
    "GradientAccumulationPlugin",
    "InitProcessGroupKwargs",
    "KwargsHandler",
    "LoggerType",
    "PrecisionType",
    "ProfileKwargs",
    "ProfilerActivity",
    "ProjectConfiguration",
    "RNGType",
    "SageMakerDistributedType",
    "TensorInformation",
    "TorchDynamoPlugin",
    "compare_versions",
    "get_module_class_from_name",
    "is_cuda_available",
    "is_hpu_available",
    "is_mlu_available",
    "is_msamp_available",
    "is_musa_available",
    "is_neuron_available",
    "is_npu_available",
    "is_rocm_available",
    "is_torch_version",
    "is_torchao_available",
    "is_transformer_engine_available",
    "is_xpu_available",
    "parse_flag_from_env",
    "str_to_bool",
]
