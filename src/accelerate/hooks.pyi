# Written by tools/door_stubs.py from the table in hooks.py: change that and run it again.

from accelerate.modules.nested import (
    find_device as find_device,
    send_to_device as send_to_device,
)
from accelerate.modules.tensors import (
    get_non_persistent_buffers as get_non_persistent_buffers,
    named_module_tensors as named_module_tensors,
    set_module_tensor_to_device as set_module_tensor_to_device,
)
from accelerate.offload.align import (
    AlignDevicesHook as AlignDevicesHook,
)
from accelerate.offload.attach import (
    attach_align_device_hook as attach_align_device_hook,
    attach_align_device_hook_on_blocks as attach_align_device_hook_on_blocks,
    attach_execution_device_hook as attach_execution_device_hook,
)
from accelerate.offload.hooks import (
    ModelHook as ModelHook,
    SequentialHook as SequentialHook,
    add_hook_to_module as add_hook_to_module,
    remove_hook_from_module as remove_hook_from_module,
    remove_hook_from_submodules as remove_hook_from_submodules,
)
from accelerate.offload.layerwise import (
    LayerwiseCastingHook as LayerwiseCastingHook,
)
from accelerate.offload.user import (
    CpuOffload as CpuOffload,
    UserCpuOffloadHook as UserCpuOffloadHook,
)
from accelerate.offload.weights import (
    PrefixedDataset as PrefixedDataset,
)
from accelerate.runtime.memory import (
    clear_device_cache as clear_device_cache,
)
from accelerate.state import (
    PartialState as PartialState,
)

__all__ = [
    "AlignDevicesHook",
    "CpuOffload",
    "LayerwiseCastingHook",
    "ModelHook",
    "PartialState",
    "PrefixedDataset",
    "SequentialHook",
    "UserCpuOffloadHook",
    "add_hook_to_module",
    "attach_align_device_hook",
    "attach_align_device_hook_on_blocks",
    "attach_execution_device_hook",
    "clear_device_cache",
    "find_device",
    "get_non_persistent_buffers",
    "named_module_tensors",
    "remove_hook_from_module",
    "remove_hook_from_submodules",
    "send_to_device",
    "set_module_tensor_to_device",
]
