"""The interface's questions about hardware, `is_<kind>_available` and the number formats. Asked by everybody.

Those that ask for a package are in `compat/probes.py`. Answers that need a vendor's package are looked up
once per process (`is_npu_available.cache_clear()` asks anew); all of these create no context on a device.
"""

import functools
import importlib

import torch

from accelerate.compat import env
from accelerate.compat.probes import (
    is_msamp_available,
    is_torch_distributed_available,
    is_torchao_available,
    is_transformer_engine_available,
)
from accelerate.compat.versions import is_torch_version
from accelerate.devices.kinds import HPU, KINDS, XLA
from accelerate.devices.select import choose
from accelerate.errors import ConfigurationError

__all__ = [
    "USE_TORCH_XLA",
    "check_cuda_fp8_capability",
    "get_current_device_type",
    "is_bf16_available",
    "is_cuda_available",
    "is_fp8_available",
    "is_fp16_available",
    "is_habana_gaudi1",
    "is_hpu_available",
    "is_mlu_available",
    "is_mps_available",
    "is_musa_available",
    "is_neuron_available",
    "is_npu_available",
    "is_rocm_available",
    "is_sdaa_available",
    "is_torch_xla_available",
    "is_xccl_available",
    "is_xpu_available",
]

# Whether torch_xla counts where it is installed. Each question reads the variable anew; this is for readers.
USE_TORCH_XLA: bool


def __getattr__(name: str) -> bool:
    if name == "USE_TORCH_XLA":
        return env.get_flag("USE_TORCH_XLA", default=True)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def get_current_device_type() -> tuple[str, str]:
    """Return the kind of device that would be chosen here and its distributed type, such as cuda, MULTI_GPU.

    No device is touched and no run is started: it can be asked before processes are forked.
    """
    kind = choose(env.snapshot())
    return kind.type, kind.distributed_type.value


def check_cuda_fp8_capability() -> bool:
    """Return whether the current GPU computes in eight-bit floats (Ada, Hopper and later); no without a GPU.

    Call it where the GPU was chosen: it asks the device.
    """
    return KINDS["cuda"].supports(torch.float8_e4m3fn)


def is_xccl_available() -> bool:
    """Return whether this build of torch has the collectives for Intel GPUs."""
    return is_torch_distributed_available() and bool(torch.distributed.is_xccl_available())


def is_cuda_available() -> bool:
    """Return whether there is an NVIDIA or ROCm GPU; asks the driver's library, not the CUDA runtime."""
    return KINDS["cuda"].is_available()


def is_rocm_available() -> bool:
    """Return whether there is a GPU and torch was built for ROCm."""
    return torch.version.hip is not None and is_cuda_available()


def is_mps_available(min_version: str = "1.12") -> bool:
    """Return whether Metal can be used and torch is at least `min_version`."""
    return is_torch_version(">=", min_version) and KINDS["mps"].is_available()


def _has(kind: str, check_device: bool) -> bool:
    device = KINDS[kind]
    return device.is_available() and (not check_device or device.count() > 0)


@functools.cache
def is_xpu_available(check_device: bool = False) -> bool:
    """Return whether Intel GPUs can be used; with `check_device`, whether one can be counted too."""
    return _has("xpu", check_device)


@functools.cache
def is_npu_available(check_device: bool = False) -> bool:
    """Return whether Ascend NPUs can be used; with `check_device`, whether one can be counted too."""
    return _has("npu", check_device)


@functools.cache
def is_mlu_available(check_device: bool = False) -> bool:
    """Return whether Cambricon MLUs can be used; with `check_device`, whether one can be counted too."""
    return _has("mlu", check_device)


@functools.cache
def is_sdaa_available(check_device: bool = False) -> bool:
    """Return whether SDAA devices can be used; with `check_device`, whether one can be counted too."""
    return _has("sdaa", check_device)


@functools.cache
def is_musa_available(check_device: bool = False) -> bool:
    """Return whether Moore Threads GPUs can be used; with `check_device`, whether one can be counted too."""
    return _has("musa", check_device)


@functools.cache
def is_neuron_available(check_device: bool = False) -> bool:
    """Return whether AWS Neuron cores can be used; with `check_device`, whether one can be counted too."""
    return _has("neuron", check_device)


@functools.cache
def is_hpu_available(init_hccl: bool = False) -> bool:
    """Return whether Gaudi devices can be used.

    Args:
        init_hccl: also load the vendor's collectives, which registers the backend "hccl" with torch.
    """
    if not HPU.is_available():
        return False
    if init_hccl:
        importlib.import_module("habana_frameworks.torch.distributed.hccl")
    return True


def is_habana_gaudi1() -> bool:
    """Return whether the Gaudi devices here are of the first generation, which has no fp16."""
    return HPU.is_first_generation()


@functools.cache
def is_torch_xla_available(check_is_tpu: bool = False, check_is_gpu: bool = False) -> bool:
    """Return whether torch_xla is installed and not switched off by USE_TORCH_XLA.

    Args:
        check_is_tpu: ask also whether it drives a TPU; starts the XLA runtime.
        check_is_gpu: ask also whether it drives a GPU; starts the XLA runtime.

    Raises:
        ConfigurationError: both were asked for.
    """
    if check_is_tpu and check_is_gpu:
        raise ConfigurationError(
            "is_torch_xla_available(check_is_tpu=True, check_is_gpu=True): the two cannot both be true, a "
            "runtime drives one kind of hardware. Ask twice."
        )
    if not XLA.is_available():
        return False
    if check_is_tpu:
        return XLA.hardware() == "TPU"
    if check_is_gpu:
        return XLA.hardware() in ("CUDA", "ROCM", "GPU")
    return True


def is_bf16_available(ignore_tpu: bool = False) -> bool:
    """Return whether the kind of hardware that would be chosen here computes in bfloat16.

    Args:
        ignore_tpu: say no where a TPU would do it.
    """
    if ignore_tpu and is_torch_xla_available(check_is_tpu=True):
        return False
    return choose({}).supports(torch.bfloat16)


def is_fp16_available() -> bool:
    """Return whether the kind of hardware that would be chosen here computes in float16."""
    return choose({}).supports(torch.float16)


def is_fp8_available() -> bool:
    """Return whether a package that brings eight-bit training is installed."""
    return is_transformer_engine_available() or is_torchao_available() or is_msamp_available()
