# Written by tools/door_stubs.py from the table in random.py: change that and run it again.

from accelerate.devices.support import (
    is_hpu_available as is_hpu_available,
    is_mlu_available as is_mlu_available,
    is_musa_available as is_musa_available,
    is_neuron_available as is_neuron_available,
    is_npu_available as is_npu_available,
    is_sdaa_available as is_sdaa_available,
    is_torch_xla_available as is_torch_xla_available,
    is_xpu_available as is_xpu_available,
)
from accelerate.options.enums import (
    DistributedType as DistributedType,
    RNGType as RNGType,
)
from accelerate.runtime.rng import (
    set_seed as set_seed,
    synchronize_rng_state as synchronize_rng_state,
    synchronize_rng_states as synchronize_rng_states,
)
from accelerate.state import (
    AcceleratorState as AcceleratorState,
)

__all__ = [
    "AcceleratorState",
    "DistributedType",
    "RNGType",
    "is_hpu_available",
    "is_mlu_available",
    "is_musa_available",
    "is_neuron_available",
    "is_npu_available",
    "is_sdaa_available",
    "is_torch_xla_available",
    "is_xpu_available",
    "set_seed",
    "synchronize_rng_state",
    "synchronize_rng_states",
]
