"""The door to seeds and random states, under the path that client libraries import."""

from accelerate.compat.doors import door

HOMES = {
    "accelerate.devices.support": [
        "is_hpu_available",
        "is_mlu_available",
        "is_musa_available",
        "is_neuron_available",
        "is_npu_available",
        "is_sdaa_available",
        "is_torch_xla_available",
        "is_xpu_available",
    ],
    "accelerate.options.enums": [
        "DistributedType",
        "RNGType",
    ],
    "accelerate.runtime.rng": [
        "set_seed",
        "synchronize_rng_state",
        "synchronize_rng_states",
    ],
    "accelerate.state": ["AcceleratorState"],
}

__getattr__, __dir__, __all__ = door(__name__, HOMES)
