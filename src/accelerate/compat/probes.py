"""Which optional packages are installed: every `is_*_available` that asks for a package. Called everywhere.

A package counts when Python can find the module and a distribution of it is installed: a stray folder
called `wandb` beside the script is no wandb. Nothing is imported by asking (unless said so), and the
answers are kept, so that a question costs nothing the second time. What asks for a device is in
`devices/support.py`.
"""

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from accelerate.compat import env
from accelerate.compat.versions import compare_versions, is_installed, is_torch_version
from accelerate.errors import MissingPackageError

__all__ = [
    "PACKAGES",
    "Package",
    "is_4bit_bnb_available",
    "is_8bit_bnb_available",
    "is_aim_available",
    "is_amdsmi_available",
    "is_bitsandbytes_multi_backend_available",
    "is_bnb_available",
    "is_boto3_available",
    "is_clearml_available",
    "is_comet_ml_available",
    "is_datasets_available",
    "is_deepspeed_available",
    "is_dvclive_available",
    "is_import_timer_available",
    "is_lomo_available",
    "is_matplotlib_available",
    "is_megatron_lm_available",
    "is_mlflow_available",
    "is_msamp_available",
    "is_numpy_available",
    "is_pandas_available",
    "is_peft_available",
    "is_pippy_available",
    "is_pynvml_available",
    "is_pytest_available",
    "is_rich_available",
    "is_sagemaker_available",
    "is_schedulefree_available",
    "is_swanlab_available",
    "is_tensorboard_available",
    "is_timm_available",
    "is_torch_distributed_available",
    "is_torchao_available",
    "is_torchdata_available",
    "is_torchdata_stateful_dataloader_available",
    "is_torchvision_available",
    "is_tqdm_available",
    "is_trackio_available",
    "is_transformer_engine_available",
    "is_transformer_engine_mxfp8_available",
    "is_transformers_available",
    "is_triton_available",
    "is_wandb_available",
    "is_weights_only_available",
    "torchao_required",
]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Package:
    """What counts as one optional package.

    Attributes:
        module: name that is imported.
        distribution: name under which it is installed; the module's when None.
        minimum: lowest version that counts, or None.
        below: lowest version that is too new to count, or None.
    """

    module: str
    distribution: str | None = None
    minimum: str | None = None
    below: str | None = None


# Question -> packages, any of which answers it with yes.
PACKAGES: dict[str, tuple[Package, ...]] = {}


@functools.cache
def _found(package: Package) -> bool:
    distribution = package.distribution or package.module
    if not _importable(package.module) or not is_installed(distribution):
        return False
    if package.minimum is not None and not compare_versions(distribution, ">=", package.minimum):
        return False
    return package.below is None or compare_versions(distribution, "<", package.below)


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:
        # A module that was put into sys.modules by hand has no spec to find.
        return module in sys.modules


def _probe(name: str, *packages: Package) -> Callable[[], bool]:
    """Enter a question into the table and return the function that answers it."""
    PACKAGES[name] = candidates = packages or (Package(name),)

    def is_available() -> bool:
        return any(_found(package) for package in candidates)

    is_available.__name__ = is_available.__qualname__ = f"is_{name}_available"
    is_available.__doc__ = f"Return whether {name} is installed, in a version that this package works with."
    return is_available


is_aim_available = _probe("aim", Package("aim", below="4.0.0"))
is_amdsmi_available = _probe("amdsmi")
is_boto3_available = _probe("boto3")
is_clearml_available = _probe("clearml")
is_comet_ml_available = _probe("comet_ml")
is_datasets_available = _probe("datasets")
is_deepspeed_available = _probe("deepspeed")
is_dvclive_available = _probe("dvclive")
is_import_timer_available = _probe("import_timer")
is_lomo_available = _probe("lomo", Package("lomo_optim"))
is_matplotlib_available = _probe("matplotlib")
is_mlflow_available = _probe("mlflow", Package("mlflow"), Package("mlflow", "mlflow-skinny"))
is_msamp_available = _probe("msamp", Package("msamp", "ms-amp"))
is_pandas_available = _probe("pandas")
is_peft_available = _probe("peft")
is_pynvml_available = _probe("pynvml", Package("pynvml"), Package("pynvml", "nvidia-ml-py"))
is_pytest_available = _probe("pytest")
is_sagemaker_available = _probe("sagemaker")
is_schedulefree_available = _probe("schedulefree")
is_swanlab_available = _probe("swanlab")
is_tensorboard_available = _probe("tensorboard", Package("tensorboard"), Package("tensorboardX"))
is_timm_available = _probe("timm")
is_torchao_available = _probe("torchao", Package("torchao", minimum="0.6.1"))
is_torchdata_available = _probe("torchdata")
is_torchdata_stateful_dataloader_available = _probe(
    "torchdata_stateful_dataloader", Package("torchdata", minimum="0.8.0")
)
is_torchvision_available = _probe("torchvision")
is_tqdm_available = _probe("tqdm")
is_trackio_available = _probe("trackio")
is_transformer_engine_available = _probe(
    "transformer_engine", Package("transformer_engine", "transformer-engine")
)
is_transformers_available = _probe("transformers")
is_triton_available = _probe("triton")
is_wandb_available = _probe("wandb")
is_4bit_bnb_available = _probe("4bit_bnb", Package("bitsandbytes", minimum="0.39.0"))
is_8bit_bnb_available = _probe("8bit_bnb", Package("bitsandbytes", minimum="0.37.2"))
_is_rich_installed = _probe("rich")
_is_megatron_core_installed = _probe("megatron_core", Package("megatron", "megatron-core", minimum="0.8.0"))


def is_bnb_available(min_version: str | None = None) -> bool:
    """Return whether bitsandbytes is installed.

    Args:
        min_version: lowest version that counts; None for any.
    """
    return _found(Package("bitsandbytes", minimum=min_version))


def is_bitsandbytes_multi_backend_available() -> bool:
    """Return whether bitsandbytes is installed and runs on more than CUDA; imports it to ask."""
    if not is_bnb_available():
        return False
    return "multi_backend" in getattr(importlib.import_module("bitsandbytes"), "features", set())


def is_megatron_lm_available() -> bool:
    """Return whether ACCELERATE_USE_MEGATRON_LM is set and Megatron-LM, from core 0.8.0, can train.

    Raises:
        EnvironmentVariableError: the variable holds no truth value.
    """
    return (
        env.parse_flag_from_env("ACCELERATE_USE_MEGATRON_LM")
        and _is_megatron_core_installed()
        and _importable("megatron.training")
    )


def is_numpy_available(min_version: str = "1.25.0") -> bool:
    """Return whether numpy is installed.

    Args:
        min_version: lowest version that counts.
    """
    return _found(Package("numpy", minimum=min_version))


def is_pippy_available() -> bool:
    """Return whether this torch has pipeline parallelism (`torch.distributed.pipelining`)."""
    return is_torch_version(">=", "2.4.0")


def is_rich_available() -> bool:
    """Return whether rich is installed and ACCELERATE_ENABLE_RICH asks for it.

    Raises:
        EnvironmentVariableError: the variable holds no truth value.
    """
    return _is_rich_installed() and env.parse_flag_from_env("ACCELERATE_ENABLE_RICH")


def is_torch_distributed_available() -> bool:
    """Return whether this torch was built with `torch.distributed`; imports torch to ask."""
    import torch.distributed

    return torch.distributed.is_available()


def is_weights_only_available() -> bool:
    """Return whether this torch can load files of numpy random states with `weights_only=True`."""
    return is_torch_version(">=", "2.4.0")


def is_transformer_engine_mxfp8_available() -> bool:
    """Return whether Transformer Engine is installed and this GPU trains in MXFP8; imports it to ask."""
    if not is_transformer_engine_available():
        return False
    engine = importlib.import_module("transformer_engine.pytorch")
    if hasattr(engine, "is_mxfp8_available"):
        return bool(engine.is_mxfp8_available())
    answer = importlib.import_module("transformer_engine.pytorch.fp8").check_mxfp8_support()
    return bool(answer[0])  # beside it stands the reason of a no


def torchao_required(func: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a function to raise MissingPackageError (an ImportError) where torchao is not installed."""

    @functools.wraps(func)
    def wrapper(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if not is_torchao_available():
            raise MissingPackageError(
                f"`{func.__qualname__}` needs torchao 0.6.1 or later: run `pip install torchao`"
            )
        return func(*args, **kwargs)

    return wrapper
