# Written by tools/door_stubs.py from the table in other.py: change that and run it again.

from accelerate.checkpoint.files import (
    load as load,
    save as save,
    TORCH_SAFE_GLOBALS as TORCH_SAFE_GLOBALS,
)
from accelerate.checkpoint.shared import (
    clean_state_dict_for_safetensors as clean_state_dict_for_safetensors,
)
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
from accelerate.devices.support import (
    is_torch_xla_available as is_torch_xla_available,
)
from accelerate.logging import (
    get_logger as get_logger,
)
from accelerate.modules.compile import (
    compile_regions as compile_regions,
    compile_regions_deepspeed as compile_regions_deepspeed,
    compile_regions_fsdp2 as compile_regions_fsdp2,
    has_compiled_regions as has_compiled_regions,
    has_repeated_blocks as has_repeated_blocks,
    is_compiled_module as is_compiled_module,
    is_repeated_blocks as is_repeated_blocks,
)
from accelerate.modules.traverse import (
    get_model_tp_size as get_model_tp_size,
    get_module_children_bottom_up as get_module_children_bottom_up,
    model_has_dtensor as model_has_dtensor,
)
from accelerate.modules.unwrap import (
    extract_model_from_parallel as extract_model_from_parallel,
)
from accelerate.options.enums import (
    DistributedType as DistributedType,
)
from accelerate.runtime.collectives import (
    wait_for_everyone as wait_for_everyone,
)
from accelerate.state import (
    PartialState as PartialState,
)

__all__ = [
    "DistributedType",
    "PartialState",
    "TORCH_SAFE_GLOBALS",
    "check_os_kernel",
    "clean_state_dict_for_safetensors",
    "compile_regions",
    "compile_regions_deepspeed",
    "compile_regions_fsdp2",
    "convert_bytes",
    "extract_model_from_parallel",
    "get_free_port",
    "get_logger",
    "get_model_tp_size",
    "get_module_children_bottom_up",
    "get_pretty_name",
    "has_compiled_regions",
    "has_repeated_blocks",
    "is_compiled_module",
    "is_deepspeed_available",
    "is_numpy_available",
    "is_port_in_use",
    "is_repeated_blocks",
    "is_torch_distributed_available",
    "is_torch_version",
    "is_torch_xla_available",
    "is_weights_only_available",
    "load",
    "merge_dicts",
    "model_has_dtensor",
    "recursive_getattr",
    "save",
    "wait_for_everyone",
]
