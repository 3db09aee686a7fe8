"""Marks that skip a test where what it needs is missing. Called by users' tests, as decorators.

Each decorates a test function, a method or a class, and works with unittest and pytest alike. What is
there is asked when the mark is applied, not when this module is imported.
"""

import unittest
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, overload

import torch

from accelerate.compat import env, probes
from accelerate.compat.constants import (
    BETA_TP_AVAILABLE_PYTORCH_VERSION,
    BETA_TP_AVAILABLE_TRANSFORMERS_VERSION,
    FSDP2_PYTORCH_VERSION,
)
from accelerate.compat.versions import compare_versions, is_installed, is_torch_version
from accelerate.devices import support
from accelerate.devices.kinds import KINDS
from accelerate.devices.select import choose
from accelerate.test_utils.hardware import device_count, torch_device

__all__ = [
    "require_aim",
    "require_bnb",
    "require_clearml",
    "require_comet_ml",
    "require_cpu",
    "require_cuda",
    "require_cuda_or_hpu",
    "require_cuda_or_xpu",
    "require_datasets",
    "require_deepspeed",
    "require_dvclive",
    "require_fp8",
    "require_fp16",
    "require_fsdp2",
    "require_huggingface_suite",
    "require_import_timer",
    "require_matplotlib",
    "require_mlflow",
    "require_mlu",
    "require_mps",
    "require_multi_device",
    "require_multi_gpu",
    "require_multi_gpu_or_xpu",
    "require_multi_xpu",
    "require_musa",
    "require_neuron",
    "require_non_cpu",
    "require_non_hpu",
    "require_non_torch_xla",
    "require_non_xpu",
    "require_npu",
    "require_pandas",
    "require_peft",
    "require_pippy",
    "require_schedulefree",
    "require_sdaa",
    "require_single_device",
    "require_single_gpu",
    "require_single_xpu",
    "require_swanlab",
    "require_tensorboard",
    "require_timm",
    "require_torch_min_version",
    "require_torchao",
    "require_torchdata_stateful_dataloader",
    "require_torchvision",
    "require_tp",
    "require_tpu",
    "require_trackers",
    "require_trackio",
    "require_transformer_engine",
    "require_transformer_engine_mxfp8",
    "require_transformers",
    "require_triton",
    "require_wandb",
    "require_xpu",
    "run_first",
    "skip",
    "slow",
]

Test = TypeVar("Test", bound=Callable[..., Any])


class Mark(Protocol):
    """A decorator of a test or a class of tests, which it gives back."""

    def __call__(self, test_case: Test) -> Test:
        """Return `test_case`, to be skipped or not."""


def skip(test_case: Test) -> Test:
    """Decorate a test, or a class of tests, to be skipped always."""
    return unittest.skip("Test was skipped")(test_case)


def slow(test_case: Test) -> Test:
    """Decorate a test, or a class of tests, to be skipped unless the environment says RUN_SLOW=1.

    Raises:
        EnvironmentVariableError: RUN_SLOW holds no truth value.

    Example:
        >>> @slow
        ... def test_something(): ...
    """
    wanted = env.parse_flag_from_env("RUN_SLOW")
    return unittest.skipUnless(wanted, "test is slow: set RUN_SLOW=1 to run it")(test_case)


def run_first(test_case: Test) -> Test:
    """Decorate a test, or a class of tests, to run before all others.

    The order is that of the plugin pytest-order; where it is not installed nothing changes.
    """
    if not (probes.is_pytest_available() and is_installed("pytest-order")):
        return test_case
    import pytest

    marked: Test = pytest.mark.order(1)(test_case)
    return marked


@overload
def require_torch_min_version(test_case: Test, version: str) -> Test: ...
@overload
def require_torch_min_version(test_case: None = None, *, version: str) -> Mark: ...
def require_torch_min_version(test_case: Any = None, version: str | None = None) -> Any:
    """Decorate a test, or a class of tests, to be skipped where torch is older than `version`.

    Args:
        test_case: the test; left out where this is called for the decorator.
        version: the oldest torch that will do.

    Raises:
        TypeError: there is no `version`.

    Example:
        >>> @require_torch_min_version(version="2.6")
        ... def test_something(): ...
    """
    if not isinstance(version, str):
        raise TypeError(
            f"`require_torch_min_version({version=})` needs a version: write "
            '`@require_torch_min_version(version="2.6")`.'
        )
    mark = _require("torch_min_version", lambda: is_torch_version(">=", version), f"torch {version} or later")
    return mark if test_case is None else mark(test_case)


def _require(name: str, condition: Callable[[], bool], needed: str) -> Mark:
    """Return the mark `require_<name>`, which skips a test, with what is needed as the reason."""

    def require(test_case: Test) -> Test:
        return unittest.skipUnless(condition(), f"test requires {needed}")(test_case)

    require.__name__ = require.__qualname__ = f"require_{name}"
    require.__doc__ = f"Decorate a test, or a class of tests, to be skipped where there is not: {needed}."
    return require


# --- Kinds of hardware ---------------------------------------------------------------------------------


def _is_cuda() -> bool:
    return support.is_cuda_available() and not support.is_torch_xla_available()


def _counts(kind: str, condition: Callable[[int], bool]) -> bool:
    return KINDS[kind].is_available() and condition(KINDS[kind].count())


def _has_several(kind: str) -> bool:
    return _counts(kind, lambda number: number > 1)


def _has_one(kind: str) -> bool:
    return _counts(kind, lambda number: number == 1)


def _trains_in_fp8() -> bool:
    return support.is_fp8_available() and choose({}).supports(torch.float8_e4m3fn)


def _has_mxfp8() -> bool:
    """Return whether the GPU has block-scaled formats: from compute capability 10 (Blackwell) on."""
    if not (probes.is_transformer_engine_available() and support.is_cuda_available()):
        return False
    return torch.cuda.get_device_capability() >= (10, 0)


require_cpu = _require("cpu", lambda: torch_device == "cpu", "a machine without accelerators")
require_non_cpu = _require("non_cpu", lambda: torch_device != "cpu", "an accelerator")
require_cuda = _require("cuda", _is_cuda, "a CUDA or ROCm GPU")
require_xpu = _require("xpu", support.is_xpu_available, "an Intel GPU (XPU)")
require_mps = _require("mps", support.is_mps_available, "Metal (MPS)")
require_mlu = _require("mlu", support.is_mlu_available, "a Cambricon MLU")
require_sdaa = _require("sdaa", support.is_sdaa_available, "an SDAA device")
require_musa = _require("musa", support.is_musa_available, "a Moore Threads GPU (MUSA)")
require_npu = _require("npu", support.is_npu_available, "an Ascend NPU")
require_neuron = _require("neuron", support.is_neuron_available, "AWS Neuron cores")
require_tpu = _require("tpu", lambda: support.is_torch_xla_available(check_is_tpu=True), "a TPU")
require_cuda_or_hpu = _require(
    "cuda_or_hpu", lambda: _is_cuda() or support.is_hpu_available(), "a CUDA GPU or a Gaudi (HPU)"
)
require_cuda_or_xpu = _require(
    "cuda_or_xpu", lambda: _is_cuda() or support.is_xpu_available(), "a CUDA GPU or an Intel GPU (XPU)"
)
require_non_hpu = _require("non_hpu", lambda: torch_device != "hpu", "a device other than a Gaudi (HPU)")
require_non_xpu = _require("non_xpu", lambda: torch_device != "xpu", "a device other than an Intel GPU")
require_non_torch_xla = _require(
    "non_torch_xla", lambda: not support.is_torch_xla_available(), "an environment without torch_xla"
)
require_single_device = _require(
    "single_device", lambda: torch_device != "cpu" and device_count == 1, "exactly one accelerator"
)
require_multi_device = _require(
    "multi_device", lambda: torch_device != "cpu" and device_count > 1, "several accelerators"
)
require_single_gpu = _require("single_gpu", lambda: _has_one("cuda"), "exactly one CUDA GPU")
require_single_xpu = _require("single_xpu", lambda: _has_one("xpu"), "exactly one Intel GPU (XPU)")
require_multi_gpu = _require("multi_gpu", lambda: _has_several("cuda"), "several CUDA GPUs")
require_multi_xpu = _require("multi_xpu", lambda: _has_several("xpu"), "several Intel GPUs (XPU)")
require_multi_gpu_or_xpu = _require(
    "multi_gpu_or_xpu", lambda: _has_several("cuda") or _has_several("xpu"), "several CUDA or Intel GPUs"
)
require_fp16 = _require("fp16", support.is_fp16_available, "a device that computes in float16")
require_fp8 = _require(
    "fp8", _trains_in_fp8, "a device and a package (Transformer Engine, torchao or MS-AMP) that train in fp8"
)
require_transformer_engine_mxfp8 = _require(
    "transformer_engine_mxfp8", _has_mxfp8, "Transformer Engine and a GPU with MXFP8 formats (Blackwell)"
)

# --- Packages ------------------------------------------------------------------------------------------

# Without a Comet account its tracker waits for one: tests of all trackers then leave everything out.
_TRACKERS = (probes.is_tensorboard_available, probes.is_wandb_available, probes.is_trackio_available)


def _has_trackers() -> bool:
    return any(found() for found in _TRACKERS) and not probes.is_comet_ml_available()


def _has_tensor_parallelism() -> bool:
    return (
        is_torch_version(">=", BETA_TP_AVAILABLE_PYTORCH_VERSION)
        and probes.is_transformers_available()
        and compare_versions("transformers", ">=", BETA_TP_AVAILABLE_TRANSFORMERS_VERSION)
    )


require_aim = _require("aim", probes.is_aim_available, "aim")
require_bnb = _require("bnb", probes.is_bnb_available, "bitsandbytes")
require_clearml = _require("clearml", probes.is_clearml_available, "clearml")
require_comet_ml = _require("comet_ml", probes.is_comet_ml_available, "comet_ml")
require_datasets = _require("datasets", probes.is_datasets_available, "datasets")
require_deepspeed = _require("deepspeed", probes.is_deepspeed_available, "deepspeed")
require_dvclive = _require("dvclive", probes.is_dvclive_available, "dvclive")
require_fsdp2 = _require(
    "fsdp2",
    lambda: is_torch_version(">=", FSDP2_PYTORCH_VERSION),
    f"torch {FSDP2_PYTORCH_VERSION} or later, for FSDP version 2",
)
require_huggingface_suite = _require(
    "huggingface_suite",
    lambda: probes.is_transformers_available() and probes.is_datasets_available(),
    "transformers and datasets",
)
require_import_timer = _require("import_timer", probes.is_import_timer_available, "import_timer")
require_matplotlib = _require("matplotlib", probes.is_matplotlib_available, "matplotlib")
require_mlflow = _require("mlflow", probes.is_mlflow_available, "mlflow")
require_pandas = _require("pandas", probes.is_pandas_available, "pandas")
require_peft = _require("peft", probes.is_peft_available, "peft")
require_pippy = _require("pippy", probes.is_pippy_available, "a torch with pipeline parallelism")
require_schedulefree = _require("schedulefree", probes.is_schedulefree_available, "schedulefree")
require_swanlab = _require("swanlab", probes.is_swanlab_available, "swanlab")
require_tensorboard = _require("tensorboard", probes.is_tensorboard_available, "tensorboard")
require_timm = _require("timm", probes.is_timm_available, "timm")
require_torchao = _require("torchao", probes.is_torchao_available, "torchao 0.6.1 or later")
require_torchdata_stateful_dataloader = _require(
    "torchdata_stateful_dataloader",
    probes.is_torchdata_stateful_dataloader_available,
    "torchdata 0.8.0 or later",
)
require_torchvision = _require("torchvision", probes.is_torchvision_available, "torchvision")
require_tp = _require(
    "tp",
    _has_tensor_parallelism,
    f"torch {BETA_TP_AVAILABLE_PYTORCH_VERSION} and transformers {BETA_TP_AVAILABLE_TRANSFORMERS_VERSION}, "
    "or later, for tensor parallelism",
)
require_trackers = _require(
    "trackers", _has_trackers, "tensorboard, wandb or trackio, and an environment without comet_ml"
)
require_trackio = _require("trackio", probes.is_trackio_available, "trackio")
require_transformer_engine = _require(
    "transformer_engine", probes.is_transformer_engine_available, "Transformer Engine"
)
require_transformers = _require("transformers", probes.is_transformers_available, "transformers")
require_triton = _require("triton", probes.is_triton_available, "triton")
require_wandb = _require("wandb", probes.is_wandb_available, "wandb")
