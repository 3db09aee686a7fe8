# Written by tools/door_stubs.py from the table in operations.py: change that and run it again.

from accelerate.compat.probes import (
    is_torch_distributed_available as is_torch_distributed_available,
)
from accelerate.compat.versions import (
    is_torch_version as is_torch_version,
)
from accelerate.devices.support import (
    is_npu_available as is_npu_available,
    is_torch_xla_available as is_torch_xla_available,
)
from accelerate.errors import (
    DistributedOperationException as DistributedOperationException,
)
from accelerate.modules.batch import (
    concatenate as concatenate,
    find_batch_size as find_batch_size,
    get_data_structure as get_data_structure,
    get_shape as get_shape,
    ignorant_find_batch_size as ignorant_find_batch_size,
    initialize_tensors as initialize_tensors,
    is_torch_xpu_tensor as is_torch_xpu_tensor,
    listify as listify,
    slice_tensors as slice_tensors,
)
from accelerate.modules.fp32 import (
    convert_outputs_to_fp32 as convert_outputs_to_fp32,
    convert_to_fp32 as convert_to_fp32,
    ConvertOutputsToFp32 as ConvertOutputsToFp32,
)
from accelerate.modules.nested import (
    find_device as find_device,
    honor_type as honor_type,
    is_namedtuple as is_namedtuple,
    is_tensor_information as is_tensor_information,
    is_torch_tensor as is_torch_tensor,
    recursively_apply as recursively_apply,
    send_to_device as send_to_device,
    TensorInformation as TensorInformation,
)
from accelerate.options.enums import (
    DistributedType as DistributedType,
)
from accelerate.runtime.collectives import (
    broadcast as broadcast,
    broadcast_object_list as broadcast_object_list,
    chained_operation as chained_operation,
    gather as gather,
    gather_object as gather_object,
    pad_across_processes as pad_across_processes,
    reduce as reduce,
    verify_operation as verify_operation,
)
from accelerate.runtime.one_holder import (
    copy_tensor_to_devices as copy_tensor_to_devices,
    gather_tensor_shape as gather_tensor_shape,
    TENSOR_INT_TO_DTYPE as TENSOR_INT_TO_DTYPE,
    TENSOR_TYPE_TO_INT as TENSOR_TYPE_TO_INT,
)
from accelerate.runtime.padding import (
    pad_input_tensors as pad_input_tensors,
)
from accelerate.runtime.rank_group import (
    CannotPadNestedTensorWarning as CannotPadNestedTensorWarning,
)
from accelerate.state import (
    AcceleratorState as AcceleratorState,
    PartialState as PartialState,
)

__all__ = [
    "AcceleratorState",
    "CannotPadNestedTensorWarning",
    "ConvertOutputsToFp32",
    "DistributedOperationException",
    "DistributedType",
    "PartialState",
    "TENSOR_INT_TO_DTYPE",
    "TENSOR_TYPE_TO_INT",
    "TensorInformation",
    "broadcast",
    "broadcast_object_list",
    "chained_operation",
    "concatenate",
    "convert_outputs_to_fp32",
    "convert_to_fp32",
    "copy_tensor_to_devices",
    "find_batch_size",
    "find_device",
    "gather",
    "gather_object",
    "gather_tensor_shape",
    "get_data_structure",
    "get_shape",
    "honor_type",
    "ignorant_find_batch_size",
    "initialize_tensors",
    "is_namedtuple",
    "is_npu_available",
    "is_tensor_information",
    "is_torch_distributed_available",
    "is_torch_tensor",
    "is_torch_version",
    "is_torch_xla_available",
    "is_torch_xpu_tensor",
    "listify",
    "pad_across_processes",
    "pad_input_tensors",
    "recursively_apply",
    "reduce",
    "send_to_device",
    "slice_tensors",
    "verify_operation",
]
