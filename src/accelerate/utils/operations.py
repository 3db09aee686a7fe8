"""The door to collectives and nested containers, under the path that client libraries import."""

from accelerate.compat.doors import door

HOMES = {
    "accelerate.compat.probes": ["is_torch_distributed_available"],
    "accelerate.compat.versions": ["is_torch_version"],
    "accelerate.devices.support": [
        "is_npu_available",
        "is_torch_xla_available",
    ],
    "accelerate.errors": ["DistributedOperationException"],
    "accelerate.modules.fp32": [
        "convert_outputs_to_fp32",
        "convert_to_fp32",
        "ConvertOutputsToFp32",
    ],
    "accelerate.modules.nested": [
        "concatenate",
        "find_batch_size",
        "find_device",
        "get_data_structure",
        "get_shape",
        "honor_type",
        "ignorant_find_batch_size",
        "initialize_tensors",
        "is_namedtuple",
        "is_tensor_information",
        "is_torch_tensor",
        "listify",
        "recursively_apply",
        "send_to_device",
        "slice_tensors",
        "TensorInformation",
    ],
    "accelerate.options.enums": ["DistributedType"],
    "accelerate.runtime.collectives": [
        "broadcast",
        "broadcast_object_list",
        "gather",
        "gather_object",
        "pad_across_processes",
        "reduce",
    ],
    "accelerate.runtime.rank_group": ["CannotPadNestedTensorWarning"],
    "accelerate.state": [
        "AcceleratorState",
        "PartialState",
    ],
}

__getattr__, __dir__, __all__ = door(__name__, HOMES)
