# Written by tools/door_stubs.py from the table in launchers.py: change that and run it again.

from accelerate.compat.env import (
    patch_environment as patch_environment,
)
from accelerate.compat.system import (
    are_libraries_initialized as are_libraries_initialized,
    check_cuda_p2p_ib_support as check_cuda_p2p_ib_support,
    get_gpu_info as get_gpu_info,
)
from accelerate.compat.versions import (
    is_torch_version as is_torch_version,
)
from accelerate.devices.support import (
    get_current_device_type as get_current_device_type,
    is_mps_available as is_mps_available,
    is_rocm_available as is_rocm_available,
)
from accelerate.launching.debug import (
    debug_launcher as debug_launcher,
    test_launch as test_launch,
)
from accelerate.launching.forked import (
    PrepareForLaunch as PrepareForLaunch,
)
from accelerate.launching.notebook import (
    notebook_launcher as notebook_launcher,
)
from accelerate.options.enums import (
    PrecisionType as PrecisionType,
)
from accelerate.state import (
    AcceleratorState as AcceleratorState,
    PartialState as PartialState,
)

__all__ = [
    "AcceleratorState",
    "PartialState",
    "PrecisionType",
    "PrepareForLaunch",
    "are_libraries_initialized",
    "check_cuda_p2p_ib_support",
    "debug_launcher",
    "get_current_device_type",
    "get_gpu_info",
    "is_mps_available",
    "is_rocm_available",
    "is_torch_version",
    "notebook_launcher",
    "patch_environment",
    "test_launch",
]
