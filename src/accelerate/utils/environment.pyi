# Written by tools/door_stubs.py from the table in environment.py: change that and run it again.

from accelerate.compat.env import (
    clear_environment as clear_environment,
    get_int_from_env as get_int_from_env,
    parse_choice_from_env as parse_choice_from_env,
    parse_flag_from_env as parse_flag_from_env,
    patch_environment as patch_environment,
    purge_accelerate_environment as purge_accelerate_environment,
    str_to_bool as str_to_bool,
)
from accelerate.compat.system import (
    are_libraries_initialized as are_libraries_initialized,
    check_cuda_p2p_ib_support as check_cuda_p2p_ib_support,
    convert_dict_to_env_variables as convert_dict_to_env_variables,
    CPUInformation as CPUInformation,
    get_cpu_distributed_information as get_cpu_distributed_information,
    get_driver_version as get_driver_version,
    get_gpu_info as get_gpu_info,
    override_numa_affinity as override_numa_affinity,
    set_numa_affinity as set_numa_affinity,
)
from accelerate.devices.support import (
    check_cuda_fp8_capability as check_cuda_fp8_capability,
    get_current_device_type as get_current_device_type,
)

__all__ = [
    "CPUInformation",
    "are_libraries_initialized",
    "check_cuda_fp8_capability",
    "check_cuda_p2p_ib_support",
    "clear_environment",
    "convert_dict_to_env_variables",
    "get_cpu_distributed_information",
    "get_current_device_type",
    "get_driver_version",
    "get_gpu_info",
    "get_int_from_env",
    "override_numa_affinity",
    "parse_choice_from_env",
    "parse_flag_from_env",
    "patch_environment",
    "purge_accelerate_environment",
    "set_numa_affinity",
    "str_to_bool",
]
