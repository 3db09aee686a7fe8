import functools
import inspect

import pytest
import torch

from accelerate.devices import support
from accelerate.devices.kinds import KINDS
from tests.support.fake_torch_module import install, install_xla

CACHED = [value for value in vars(support).values() if isinstance(value, functools._lru_cache_wrapper)]
VENDORS = ["npu", "mlu", "sdaa", "musa", "neuron", "xpu"]


@pytest.fixture(autouse=True)
def _forget_answers():
    for question in CACHED:
        question.cache_clear()
    yield
    for question in CACHED:
        question.cache_clear()


@pytest.mark.parametrize("name", [name for name in support.__all__ if name.endswith("available")])
def test_every_question_has_a_yes_or_no_here(name):
    assert getattr(support, name)() in (True, False)


@pytest.mark.parametrize("kind", VENDORS)
@pytest.mark.parametrize("check_device", [True, False])
def test_a_vendors_kind_is_found(monkeypatch, kind, check_device):
    question = getattr(support, f"is_{kind}_available")
    assert not question(check_device=check_device)
    install(monkeypatch, kind, getattr(KINDS[kind], "package", None))
    question.cache_clear()
    assert question(check_device=check_device)


def test_checking_the_device_counts_it(monkeypatch):
    module = install(monkeypatch, "xpu")
    monkeypatch.setattr(module, "device_count", lambda: 0, raising=False)
    assert support.is_xpu_available()
    assert not support.is_xpu_available(check_device=True)


def test_cuda_follows_torch(monkeypatch):
    install(monkeypatch, "cuda")
    assert support.is_cuda_available()
    assert support.is_rocm_available() is (torch.version.hip is not None)
    monkeypatch.setattr(torch.version, "hip", "6.2")
    assert support.is_rocm_available()
    install(monkeypatch, "cuda", count=0)
    assert not support.is_cuda_available()
    assert not support.is_rocm_available()


def test_metal_needs_a_version_of_torch(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_built", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert support.is_mps_available()
    assert support.is_mps_available(min_version="2.0")
    assert not support.is_mps_available("99.0")


def test_loading_the_collectives_of_gaudi_is_on_request(monkeypatch):
    install(monkeypatch, "hpu", "habana_frameworks")
    loaded = []
    monkeypatch.setattr(support.importlib, "import_module", loaded.append)
    assert support.is_hpu_available()
    assert loaded == []
    assert support.is_hpu_available(init_hccl=True)
    assert loaded == ["habana_frameworks.torch.distributed.hccl"]


def test_there_is_no_gaudi_here():
    assert not support.is_hpu_available(init_hccl=True)
    assert not support.is_habana_gaudi1()


@pytest.mark.parametrize(
    ("hardware", "tpu", "gpu"), [("TPU", True, False), ("CUDA", False, True), ("CPU", False, False)]
)
def test_xla_says_what_it_drives(monkeypatch, hardware, tpu, gpu):
    install_xla(monkeypatch, hardware)
    assert support.is_torch_xla_available()
    assert support.is_torch_xla_available(check_is_tpu=True) is tpu
    assert support.is_torch_xla_available(check_is_gpu=True) is gpu


def test_xla_can_be_switched_off(monkeypatch):
    install_xla(monkeypatch)
    monkeypatch.setenv("USE_TORCH_XLA", "false")
    assert not support.is_torch_xla_available()
    assert not support.is_torch_xla_available(check_is_tpu=True)


def test_xla_cannot_drive_two_kinds():
    with pytest.raises(ValueError, match="Ask twice"):
        support.is_torch_xla_available(check_is_tpu=True, check_is_gpu=True)


def test_bfloat16_on_a_tpu_can_be_ignored(monkeypatch):
    install_xla(monkeypatch)
    assert support.is_bf16_available()
    assert not support.is_bf16_available(ignore_tpu=True)


def test_number_formats_are_those_of_the_chosen_kind(monkeypatch):
    module = install(monkeypatch, "cuda")
    module.is_bf16_supported = lambda: False
    assert not support.is_bf16_available()
    assert support.is_fp16_available()
    module.is_bf16_supported = lambda: True
    assert support.is_bf16_available()


@pytest.mark.parametrize("package", ["transformer_engine", "torchao", "msamp"])
def test_eight_bits_need_any_of_three_packages(monkeypatch, package):
    for each in ("transformer_engine", "torchao", "msamp"):
        monkeypatch.setattr(support, f"is_{each}_available", lambda each=each: each == package)
    assert support.is_fp8_available()


def test_no_package_no_eight_bits(monkeypatch):
    for each in ("transformer_engine", "torchao", "msamp"):
        monkeypatch.setattr(support, f"is_{each}_available", lambda: False)
    assert not support.is_fp8_available()


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("is_cuda_available", "()"),
        ("is_mps_available", "(min_version='1.12')"),
        ("is_npu_available", "(check_device=False)"),
        ("is_hpu_available", "(init_hccl=False)"),
        ("is_torch_xla_available", "(check_is_tpu=False, check_is_gpu=False)"),
        ("is_bf16_available", "(ignore_tpu=False)"),
    ],
)
def test_signatures_are_those_of_the_interface(name, signature):
    found = inspect.signature(getattr(support, name))
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in found.parameters.values()]
    assert str(inspect.Signature(bare)) == signature


@pytest.mark.parametrize(("text", "value"), [(None, True), ("0", False), ("yes", True)])
def test_whether_xla_counts_is_what_the_variable_says(monkeypatch, text, value):
    monkeypatch.delenv("USE_TORCH_XLA", raising=False)
    if text is not None:
        monkeypatch.setenv("USE_TORCH_XLA", text)
    assert support.USE_TORCH_XLA is value


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="has no attribute 'USE_TORCH'"):
        _ = support.USE_TORCH


def test_the_kind_that_would_be_chosen(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_CPU", "1")
    assert support.get_current_device_type() == ("cpu", "MULTI_CPU")
    monkeypatch.delenv("ACCELERATE_USE_CPU")
    module = install(monkeypatch, "cuda")
    assert support.get_current_device_type() == ("cuda", "MULTI_GPU")
    assert module.calls == []
    install(monkeypatch, "npu", "torch_npu")
    assert support.get_current_device_type() == ("npu", "MULTI_NPU")


def test_eight_bit_floats_need_a_gpu_of_the_ada_generation(monkeypatch):
    install(monkeypatch, "cuda", count=0)
    assert not support.check_cuda_fp8_capability()
    module = install(monkeypatch, "cuda")
    assert support.check_cuda_fp8_capability()
    module.get_device_capability = lambda: (8, 6)
    assert not support.check_cuda_fp8_capability()
