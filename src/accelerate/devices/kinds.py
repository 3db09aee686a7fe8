"""The table of all kinds of hardware, one row each, in the order in which they are looked for.

Read by `select` and by everything that must know a kind by its name. A new kind is a row here and, only
where it differs from `torch.cuda`, a class.
"""

import torch

from accelerate.devices.accelerators import AcceleratorDevice, CudaDevice, HpuDevice, MpsDevice
from accelerate.devices.base import Device
from accelerate.devices.xla import XlaDevice
from accelerate.options.enums import DistributedType

__all__ = ["HPU", "KINDS", "OOM_MESSAGES", "XLA"]

XLA = XlaDevice()
HPU = HpuDevice(
    "hpu",
    distributed_type=DistributedType.MULTI_HPU,
    backend="hccl",
    visible_variable="HABANA_VISIBLE_MODULES",
    package="habana_frameworks.torch",
    places_itself=True,
    oom_messages=(" out of memory.", "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed"),
)

# Vendors' runtimes also answer to `torch.cuda` or to XLA, hence the more special kind is asked first.
_ROWS: tuple[Device, ...] = (
    XLA,
    MpsDevice(
        "mps",
        distributed_type=DistributedType.NO,
        backend="gloo",
        visible_variable=None,
        unsupported=frozenset({torch.float64}),
        oom_messages=("MPS backend out of memory",),
    ),
    AcceleratorDevice(
        "mlu",
        distributed_type=DistributedType.MULTI_MLU,
        backend="cncl",
        visible_variable="MLU_VISIBLE_DEVICES",
        package="torch_mlu",
        check_environment={"PYTORCH_CNDEV_BASED_MLU_CHECK": "1"},
    ),
    AcceleratorDevice(
        "sdaa",
        distributed_type=DistributedType.MULTI_SDAA,
        backend="tccl",
        visible_variable="SDAA_VISIBLE_DEVICES",
        package="torch_sdaa",
    ),
    AcceleratorDevice(
        "musa",
        distributed_type=DistributedType.MULTI_MUSA,
        backend="mccl",
        visible_variable="MUSA_VISIBLE_DEVICES",
        package="torch_musa",
    ),
    AcceleratorDevice(
        "npu",
        distributed_type=DistributedType.MULTI_NPU,
        backend="hccl",
        visible_variable="ASCEND_RT_VISIBLE_DEVICES",
        package="torch_npu",
    ),
    HPU,
    CudaDevice(
        "cuda",
        distributed_type=DistributedType.MULTI_GPU,
        backend="nccl",
        visible_variable="CUDA_VISIBLE_DEVICES",
        check_environment={"PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
        # cuDNN names no better reason when its workspace does not fit.
        oom_messages=(" out of memory.", "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED."),
    ),
    AcceleratorDevice(
        "xpu",
        distributed_type=DistributedType.MULTI_XPU,
        backend="xccl",
        visible_variable="ZE_AFFINITY_MASK",
    ),
    AcceleratorDevice(
        "neuron",
        distributed_type=DistributedType.MULTI_NEURON,
        backend="neuron",
        visible_variable="NEURON_RT_VISIBLE_CORES",
        package="torch_neuronx",
        places_itself=True,
    ),
    Device(),
)

KINDS: dict[str, Device] = {kind.type: kind for kind in _ROWS}

# Whichever kind is in use, the allocator of another (the CPU's, most of all) can be the one that is out.
OOM_MESSAGES: tuple[str, ...] = tuple(dict.fromkeys(text for kind in _ROWS for text in kind.oom_messages))
