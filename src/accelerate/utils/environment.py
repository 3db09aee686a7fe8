"""The door to what is known of environment and machine, under the path that client libraries import."""

from accelerate.compat.doors import door

HOMES = {
    "accelerate.compat.env": [
        "clear_environment",
        "get_int_from_env",
        "parse_choice_from_env",
        "parse_flag_from_env",
        "patch_environment",
        "purge_accelerate_environment",
        "str_to_bool",
    ],
    "accelerate.compat.system": [
        "are_libraries_initialized",
        "check_cuda_p2p_ib_support",
        "convert_dict_to_env_variables",
        "CPUInformation",
        "get_cpu_distributed_information",
        "get_driver_version",
        "get_gpu_info",
        "override_numa_affinity",
        "set_numa_affinity",
    ],
    "accelerate.devices.support": [
        "check_cuda_fp8_capability",
        "get_current_device_type",
    ],
}

__getattr__, __dir__, __all__ = door(__name__, HOMES)
