"""The door to launching functions from notebooks and tests, under the path that users import."""

from accelerate.compat.doors import door

HOMES = {
    "accelerate.compat.env": ["patch_environment"],
    "accelerate.compat.system": [
        "are_libraries_initialized",
        "check_cuda_p2p_ib_support",
        "get_gpu_info",
    ],
    "accelerate.compat.versions": ["is_torch_version"],
    "accelerate.devices.support": ["get_current_device_type", "is_mps_available", "is_rocm_available"],
    "accelerate.launching.debug": ["debug_launcher", "test_launch"],
    "accelerate.launching.forked": ["PrepareForLaunch"],
    "accelerate.launching.notebook": ["notebook_launcher"],
    "accelerate.options.enums": ["PrecisionType"],
    "accelerate.state": ["AcceleratorState", "PartialState"],
}

__getattr__, __dir__, __all__ = door(__name__, HOMES)
