"""The door to the helpers about memory, under the path that client libraries import."""

from accelerate.compat.doors import door

HOMES = {
    "accelerate.devices.support": [
        "is_cuda_available",
        "is_hpu_available",
        "is_mlu_available",
        "is_mps_available",
        "is_musa_available",
        "is_neuron_available",
        "is_npu_available",
        "is_sdaa_available",
        "is_xpu_available",
    ],
    "accelerate.runtime.batch_size": [
        "find_executable_batch_size",
    ],
    "accelerate.runtime.memory": [
        "clear_device_cache",
        "release_memory",
    ],
    "accelerate.runtime.out_of_memory": [
        "should_reduce_batch_size",
    ],
}

__getattr__, __dir__, __all__ = door(__name__, HOMES)
