"""Every enumeration of the interface. Used by options, state, launcher and users (`DistributedType`).

Members that a client compares with plain text are strings themselves (`DistributedType.NO == "NO"`).
The `BaseEnum` family prints its value and answers `text in Enumeration`; the others print
`DistributedType.NO`, as Python does for them.
"""

import builtins
import enum

__all__ = [
    "BaseEnum",
    "ComputeEnvironment",
    "CustomDtype",
    "DDPCommunicationHookType",
    "DistributedType",
    "DynamoBackend",
    "EnumWithContains",
    "FP8BackendType",
    "LoggerType",
    "PrecisionType",
    "RNGType",
    "SageMakerDistributedType",
]


class EnumWithContains(enum.EnumMeta):
    """Let `value in Enumeration` ask whether the value names a member, on every Python version."""

    def __contains__(cls, item: object) -> bool:
        """Return whether `item` is a member or the value of one; never raise."""
        try:
            cls(item)
        except ValueError:
            return False
        return True


class BaseEnum(enum.Enum, metaclass=EnumWithContains):
    """Base of the enumerations that print their value.

    Example:
        >>> "bf16" in PrecisionType, "bf17" in PrecisionType, str(PrecisionType.BF16)
        (True, False, 'bf16')
    """

    def __str__(self) -> str:
        return str(self.value)

    @classmethod
    def list(cls) -> builtins.list[str]:
        """Return the value of every member, as text, in order.

        Example:
            >>> PrecisionType.list()
            ['no', 'fp8', 'fp16', 'bf16']
        """
        return builtins.list(map(str, cls))


class DDPCommunicationHookType(BaseEnum):
    """How DistributedDataParallel compresses gradients on the wire."""

    NO = "no"
    FP16 = "fp16"
    BF16 = "bf16"
    POWER_SGD = "power_sgd"
    BATCHED_POWER_SGD = "batched_power_sgd"


class DistributedType(str, enum.Enum):
    """How the current run is distributed: over which kind of device, or by which engine.

    Example:
        >>> DistributedType.MULTI_GPU == "MULTI_GPU"
        True
    """

    NO = "NO"
    MULTI_CPU = "MULTI_CPU"
    MULTI_GPU = "MULTI_GPU"
    MULTI_NPU = "MULTI_NPU"
    MULTI_MLU = "MULTI_MLU"
    MULTI_SDAA = "MULTI_SDAA"
    MULTI_MUSA = "MULTI_MUSA"
    MULTI_XPU = "MULTI_XPU"
    DEEPSPEED = "DEEPSPEED"
    FSDP = "FSDP"
    XLA = "XLA"
    MEGATRON_LM = "MEGATRON_LM"
    MULTI_HPU = "MULTI_HPU"
    MULTI_NEURON = "MULTI_NEURON"


class SageMakerDistributedType(str, enum.Enum):
    """How a run on Amazon SageMaker is distributed."""

    NO = "NO"
    DATA_PARALLEL = "DATA_PARALLEL"
    MODEL_PARALLEL = "MODEL_PARALLEL"


class FP8BackendType(str, enum.Enum):
    """Which library does fp8: TransformerEngine, MS-AMP or torchao."""

    NO = "NO"
    TE = "TE"
    MSAMP = "MSAMP"
    AO = "AO"


class ComputeEnvironment(str, enum.Enum):
    """Where a run is launched."""

    LOCAL_MACHINE = "LOCAL_MACHINE"
    AMAZON_SAGEMAKER = "AMAZON_SAGEMAKER"


class DynamoBackend(str, BaseEnum):
    """Which backend `torch.compile` uses; NO compiles nothing."""

    NO = "NO"
    EAGER = "EAGER"
    AOT_EAGER = "AOT_EAGER"
    INDUCTOR = "INDUCTOR"
    AOT_TS_NVFUSER = "AOT_TS_NVFUSER"
    NVPRIMS_NVFUSER = "NVPRIMS_NVFUSER"
    CUDAGRAPHS = "CUDAGRAPHS"
    OFI = "OFI"
    FX2TRT = "FX2TRT"
    ONNXRT = "ONNXRT"
    TENSORRT = "TENSORRT"
    AOT_TORCHXLA_TRACE_ONCE = "AOT_TORCHXLA_TRACE_ONCE"
    TORCHXLA_TRACE_ONCE = "TORCHXLA_TRACE_ONCE"
    TVM = "TVM"
    HPU_BACKEND = "HPU_BACKEND"
    NEURON = "NEURON"


class LoggerType(BaseEnum):
    """The experiment trackers that are known by name."""

    ALL = "all"
    AIM = "aim"
    TENSORBOARD = "tensorboard"
    WANDB = "wandb"
    TRACKIO = "trackio"
    COMETML = "comet_ml"
    MLFLOW = "mlflow"
    CLEARML = "clearml"
    DVCLIVE = "dvclive"
    SWANLAB = "swanlab"


class PrecisionType(str, BaseEnum):
    """The values of `mixed_precision`."""

    NO = "no"
    FP8 = "fp8"
    FP16 = "fp16"
    BF16 = "bf16"


class RNGType(BaseEnum):
    """The random number generators that ranks can synchronize."""

    TORCH = "torch"
    CUDA = "cuda"
    MLU = "mlu"
    SDAA = "sdaa"
    MUSA = "musa"
    NPU = "npu"
    XLA = "xla"
    XPU = "xpu"
    HPU = "hpu"
    NEURON = "neuron"
    GENERATOR = "generator"


class CustomDtype(enum.Enum):
    """Data types that torch has no dtype for, named in `infer_auto_device_map(dtype=...)`."""

    FP8 = "fp8"
    INT4 = "int4"
    INT2 = "int2"
