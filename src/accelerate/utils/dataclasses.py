"""The door to enumerations, handlers and plugins, under the path that client libraries import."""

from accelerate.compat.doors import door

HOMES = {
    "accelerate.compat.env": [
        "parse_flag_from_env",
        "str_to_bool",
    ],
    "accelerate.compat.probes": [
        "is_msamp_available",
        "is_torchao_available",
        "is_transformer_engine_available",
    ],
    "accelerate.compat.versions": [
        "compare_versions",
        "is_torch_version",
    ],
    "accelerate.devices.support": [
        "is_cuda_available",
        "is_hpu_available",
        "is_mlu_available",
        "is_musa_available",
        "is_neuron_available",
        "is_npu_available",
        "is_rocm_available",
        "is_xpu_available",
    ],
    "accelerate.modules.nested": ["TensorInformation"],
    "accelerate.modules.traverse": ["get_module_class_from_name"],
    "accelerate.options.accumulation": ["GradientAccumulationPlugin"],
    "accelerate.options.data": ["DataLoaderConfiguration"],
    "accelerate.options.dynamo": ["TorchDynamoPlugin"],
    "accelerate.options.enums": [
        "BaseEnum",
        "ComputeEnvironment",
        "CustomDtype",
        "DDPCommunicationHookType",
        "DistributedType",
        "DynamoBackend",
        "EnumWithContains",
        "FP8BackendType",
        "LoggerType",
        "PrecisionType",
        "RNGType",
        "SageMakerDistributedType",
    ],
    "accelerate.options.fsdp": ["FullyShardedDataParallelPlugin"],
    "accelerate.options.handlers": [
        "AutocastKwargs",
        "DistributedDataParallelKwargs",
        "GradScalerKwargs",
        "InitProcessGroupKwargs",
        "KwargsHandler",
    ],
    "accelerate.options.profile": [
        "ProfileKwargs",
        "ProfilerActivity",
    ],
    "accelerate.options.project": ["ProjectConfiguration"],
}

__getattr__, __dir__, __all__ = door(__name__, HOMES)
