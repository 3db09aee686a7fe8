"""The door to what the interface keeps under `other`."""

from accelerate.compat.doors import door

HOMES = {
    "accelerate.checkpoint.files": [
        "load",
        "save",
        "TORCH_SAFE_GLOBALS",
    ],
    "accelerate.checkpoint.shared": ["clean_state_dict_for_safetensors"],
    "accelerate.compat.orphans": [
        "convert_bytes",
        "get_pretty_name",
        "merge_dicts",
        "recursive_getattr",
    ],
    "accelerate.compat.probes": [
        "is_deepspeed_available",
        "is_numpy_available",
        "is_torch_distributed_available",
        "is_weights_only_available",
    ],
    "accelerate.compat.system": [
        "check_os_kernel",
        "get_free_port",
        "is_port_in_use",
    ],
    "accelerate.compat.versions": ["is_torch_version"],
    "accelerate.devices.support": ["is_torch_xla_available"],
    "accelerate.logging": ["get_logger"],
    "accelerate.modules.compile": [
        "compile_regions",
        "compile_regions_deepspeed",
        "compile_regions_fsdp2",
        "has_compiled_regions",
        "has_repeated_blocks",
        "is_compiled_module",
        "is_repeated_blocks",
    ],
    "accelerate.modules.traverse": [
        "get_model_tp_size",
        "get_module_children_bottom_up",
        "model_has_dtensor",
    ],
    "accelerate.modules.unwrap": ["extract_model_from_parallel"],
    "accelerate.options.enums": ["DistributedType"],
    "accelerate.runtime.collectives": ["wait_for_everyone"],
    "accelerate.state": ["PartialState"],
}

__getattr__, __dir__, __all__ = door(__name__, HOMES)
