"""What `accelerate launch` can be told about torch.compile, TPUs, MPI and AWS. Parts of LaunchPlan."""

from dataclasses import dataclass

from accelerate.options.enums import DynamoBackend
from accelerate.options.field import option

__all__ = ["DynamoLaunch", "PlatformLaunch"]

_RESOURCES = "Resource Selection Arguments"
_TPU = "TPU"
_AWS = "AWS Arguments"

# The interface offers one backend in a misspelling, and nothing under the right name.
_BACKENDS = (
    "no",
    "eager",
    "aot_eager",
    "inductor",
    "aot_ts_nvfuser",
    "nvprims_nvfuser",
    "cudagraphs",
    "ofi",
    "fx2trt",
    "onnxrt",
    "tensorrt",
    "aot_torchxla_trace_once",
    "torhchxla_trace_once",
    "tvm",
)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class DynamoLaunch:
    """Whether and how `torch.compile` compiles prepared models."""

    dynamo_backend: str = option(
        None,
        flag="--dynamo_backend",
        env="ACCELERATE_DYNAMO_BACKEND",
        key="dynamo_config.dynamo_backend",
        group=_RESOURCES,
        choices=_BACKENDS,
        values=tuple(dict.fromkeys([*_BACKENDS, *(member.value.lower() for member in DynamoBackend)])),
        question="Which backend of torch.compile?",
        help="Backend of torch.compile for the prepared model. Default: no, nothing is compiled.",
    )
    dynamo_mode: str = option(
        "default",
        flag="--dynamo_mode",
        env="ACCELERATE_DYNAMO_MODE",
        key="dynamo_config.dynamo_mode",
        group=_RESOURCES,
        choices=("default", "reduce-overhead", "max-autotune"),
        question="What shall torch.compile optimize for?",
        help="What torch.compile optimizes for.",
    )
    dynamo_use_fullgraph: bool = option(
        False,
        flag="--dynamo_use_fullgraph",
        env="ACCELERATE_DYNAMO_USE_FULLGRAPH",
        key="dynamo_config.dynamo_use_fullgraph",
        group=_RESOURCES,
        question="Shall a model that cannot be compiled as one graph be an error?",
        help="A model that cannot be compiled as one graph is an error.",
    )
    dynamo_use_dynamic: bool = option(
        False,
        flag="--dynamo_use_dynamic",
        env="ACCELERATE_DYNAMO_USE_DYNAMIC",
        key="dynamo_config.dynamo_use_dynamic",
        group=_RESOURCES,
        question="Compile for shapes that change?",
        help="Compile for shapes that change.",
    )
    dynamo_use_regional_compilation: bool = option(
        False,
        flag="--dynamo_use_regional_compilation",
        env="ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION",
        key="dynamo_config.dynamo_use_regional_compilation",
        group=_RESOURCES,
        question="Compile repeated blocks once each (starts faster)?",
        help="Compile repeated blocks once each, which starts faster.",
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class PlatformLaunch:
    """Options of TPUs, of MPI and of Amazon SageMaker."""

    tpu_use_cluster: bool = option(
        False,
        flag="--tpu_cluster",
        off_flag="--no_tpu_cluster",
        key="tpu_use_cluster",
        group=_TPU,
        question="Is this a TPU pod, several machines?",
        help="Run on all machines of a TPU pod.",
    )
    tpu_use_sudo: bool = option(
        False,
        flag="--tpu_use_sudo",
        key="tpu_use_sudo",
        group=_TPU,
        question="Run as root on the machines of the pod?",
        help="Run as root on the machines of the pod.",
    )
    vm: tuple[str, ...] | None = option(
        None,
        flag="--vm",
        key="tpu_vm",
        group=_TPU,
        type=str,
        repeats=True,
        help="Machine of the pod to run on; repeat the option for more. Default: all.",
    )
    env: tuple[str, ...] | None = option(
        None,
        flag="--env",
        key="tpu_env",
        group=_TPU,
        type=str,
        repeats=True,
        help="NAME=value to set on the machines of the pod; repeat the option for more.",
    )
    main_training_function: str | None = option(
        None,
        flag="--main_training_function",
        key="main_training_function",
        group=_TPU,
        type=str,
        question="Which function of the script shall each TPU process call?",
        help="Function of the script that each TPU process calls.",
    )
    downcast_bf16: bool = option(
        False,
        flag="--downcast_bf16",
        key="downcast_bf16",
        group=_TPU,
        question="Shall float be bf16 and double float (otherwise both are bf16)?",
        help="With bf16 on a TPU: float is bf16 and double is float; otherwise both are bf16.",
    )
    tpu_name: str | None = option(
        None,
        key="tpu_name",
        type=str,
        question="Name of the TPU pod?",
        help="Name of the TPU pod. In the configuration file only.",
    )
    tpu_zone: str | None = option(
        None,
        key="tpu_zone",
        type=str,
        question="Zone of the TPU pod?",
        help="Zone of the TPU pod. In the configuration file only.",
    )
    aws_access_key_id: str | None = option(
        None, flag="--aws_access_key_id", group=_AWS, type=str, help="Key for Amazon SageMaker."
    )
    aws_secret_access_key: str | None = option(
        None, flag="--aws_secret_access_key", group=_AWS, type=str, help="Secret of that key."
    )
    mpirun_hostfile: str | None = option(
        None,
        flag="--mpirun_hostfile",
        key="mpirun_config.mpirun_hostfile",
        group="MPI Arguments",
        type=str,
        question="Path of the list of machines for mpirun?",
        help="List of machines: start the processes there through mpirun.",
    )
    mpirun_kind: str | None = option(
        None,
        flag="--mpirun_kind",
        key="mpirun_config.mpirun_kind",
        group="MPI Arguments",
        type=str,
        choices=("openmpi", "intel", "mpich", "mvapich"),
        help="Whose mpirun that is, since their options differ. Default: what it says of itself.",
    )
