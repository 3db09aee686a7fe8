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
    "accelerate.modules.batch": [
        "concatenate",
        "find_batch_size",
        "get_data_structure",
        "get_shape",
        "ignorant_find_batch_size",
        "initialize_tensors",
        "is_torch_xpu_tensor",
        "listify",
        "slice_tensors",
    ],
    "accelerate.modules.fp32": [
        "convert_outputs_to_fp32",
        "convert_to_fp32",
        "ConvertOutputsToFp32",
    ],
    "accelerate.modules.nested": [
        "find_device",
        "honor_type",
        "is_namedtuple",
        "is_tensor_information",
        "is_torch_tensor",
        "recursively_apply",
        "send_to_device",
        "TensorInformation",
    ],
    "accelerate.options.enums": ["DistributedType"],
    "accelerate.runtime.collectives": [
        "broadcast",
        "broadcast_object_list",
        "chained_operation",
        "gather",
        "gather_object",
        "pad_across_processes",
        "reduce",
        "verify_operation",
    ],
    "accelerate.runtime.one_holder": [
        "copy_tensor_to_devices",
        "gather_tensor_shape",
        "TENSOR_INT_TO_DTYPE",
        "TENSOR_TYPE_TO_INT",
    ],
    "accelerate.runtime.padding": ["pad_input_tensors"],
    "accelerate.runtime.rank_group": ["CannotPadNestedTensorWarning"],
    "accelerate.state": [
        "AcceleratorState",
        "PartialState",
    ],
}

__getattr__, __dir__, __all__ = door(__name__, HOMES)
