"""The door to hooks around modules, under the path that client libraries import."""

from accelerate.compat.doors import door

HOMES = {
    "accelerate.modules.nested": ["find_device", "send_to_device"],
    "accelerate.modules.tensors": [
        "get_non_persistent_buffers",
        "named_module_tensors",
        "set_module_tensor_to_device",
    ],
    "accelerate.offload.align": ["AlignDevicesHook"],
    "accelerate.offload.attach": [
        "attach_align_device_hook",
        "attach_align_device_hook_on_blocks",
        "attach_execution_device_hook",
    ],
    "accelerate.offload.hooks": [
        "ModelHook",
        "SequentialHook",
        "add_hook_to_module",
        "remove_hook_from_module",
        "remove_hook_from_submodules",
    ],
    "accelerate.offload.layerwise": ["LayerwiseCastingHook"],
    "accelerate.offload.user": ["CpuOffload", "UserCpuOffloadHook"],
    "accelerate.offload.weights": ["PrefixedDataset"],
    "accelerate.runtime.memory": ["clear_device_cache"],
    "accelerate.state": ["PartialState"],
}

__getattr__, __dir__, __all__ = door(__name__, HOMES)
