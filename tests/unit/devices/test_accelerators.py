import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from accelerate.devices.kinds import HPU, KINDS
from accelerate.errors import ConfigurationError, MissingPackageError
from tests.support.fake_torch_module import install

ALONE = SimpleNamespace(local_rank=0, size=1, launched=False)
VENDORS = ["mlu", "sdaa", "musa", "npu", "hpu", "neuron"]


def rank(local_rank):
    return SimpleNamespace(local_rank=local_rank, size=8, launched=True)


@pytest.fixture
def cuda(monkeypatch):
    return install(monkeypatch, "cuda", count=4)


@pytest.mark.parametrize(("local_rank", "index"), [(0, 0), (3, 3), (4, 0), (6, 2)])
def test_ranks_go_round_the_devices(cuda, local_rank, index):
    assert KINDS["cuda"].torch_device(rank(local_rank)) == torch.device("cuda", index)


def test_a_process_alone_leaves_the_choice_to_torch(cuda):
    device = KINDS["cuda"].torch_device(ALONE)
    assert device == torch.device("cuda")
    KINDS["cuda"].select(device)
    assert cuda.calls == []


def test_a_launched_world_of_one_has_an_index(cuda):
    assert KINDS["cuda"].torch_device(SimpleNamespace(local_rank=0, size=1, launched=True)).index == 0


def test_selecting_makes_the_device_current(cuda):
    KINDS["cuda"].select(torch.device("cuda", 2))
    KINDS["cuda"].synchronize()
    KINDS["cuda"].empty_cache()
    assert cuda.calls == [("set_device", torch.device("cuda", 2)), ("synchronize",), ("empty_cache",)]


def test_a_device_of_another_kind_is_not_selected(cuda):
    KINDS["cuda"].pinned(torch.device("cpu", 0)).select(torch.device("cpu", 0))
    assert cuda.calls == []


def test_memory_is_asked_of_the_driver(cuda):
    assert KINDS["cuda"].memory(3) == (1003, 2000)


def test_memory_that_is_not_reported_says_what_to_do(monkeypatch):
    module = install(monkeypatch, "xpu")
    monkeypatch.setattr(type(module), "mem_get_info", None)
    with pytest.raises(ConfigurationError, match=r"max_memory=\{1: \"16GiB\"\}"):
        KINDS["xpu"].memory(1)


@pytest.mark.parametrize(
    ("kind", "variable"),
    [("cuda", "PYTORCH_NVML_BASED_CUDA_CHECK"), ("mlu", "PYTORCH_CNDEV_BASED_MLU_CHECK")],
)
def test_asking_for_availability_creates_no_context(monkeypatch, kind, variable):
    monkeypatch.delenv(variable, raising=False)
    module = install(monkeypatch, kind, getattr(KINDS[kind], "package", None))
    assert KINDS[kind].is_available()
    assert module.environment_when_asked[variable] == "1"
    KINDS[kind].is_available()
    assert variable not in __import__("os").environ


@pytest.mark.parametrize("kind", VENDORS)
def test_a_kind_without_its_package_is_not_available(kind):
    device = KINDS[kind]
    assert not device.is_available()
    assert device.count() == 0
    with pytest.raises(MissingPackageError, match=rf"{device.package}.*not installed"):
        device.load()


@pytest.mark.parametrize("kind", VENDORS)
def test_a_kind_without_a_device_is_not_available(monkeypatch, kind):
    install(monkeypatch, kind, KINDS[kind].package, count=0)
    assert not KINDS[kind].is_available()
    assert KINDS[kind].count() == 0


def test_a_package_that_does_not_register_its_kind_is_reported(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "torch_npu", ModuleType("torch_npu"))
    assert not KINDS["npu"].is_available()
    assert "`torch_npu` is installed but cannot be loaded, so npu devices are not used" in caplog.text


def test_a_package_with_a_broken_library_is_reported(monkeypatch, caplog, tmp_path):
    (tmp_path / "torch_mlu.py").write_text("raise OSError('libcndev.so: cannot open shared object file')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert not KINDS["mlu"].is_available()
    assert "libcndev.so" in caplog.text


def test_a_vendor_package_registers_its_kind_when_loaded():
    # A process of its own: torch takes the name of a foreign kind once and for all.
    script = """
import sys, types, torch
package = types.ModuleType("torch_npu")
sys.modules["torch_npu"] = package
torch.utils.rename_privateuse1_backend("npu")
torch.npu = types.SimpleNamespace(is_available=lambda: True, device_count=lambda: 2, set_device=print)
from accelerate.devices.select import choose
device = choose({})
place = types.SimpleNamespace(local_rank=3, size=4, launched=True)
print(device, device.torch_device(place), choose({"ACCELERATE_TORCH_DEVICE": "npu:0"}).torch_device(place))
device.select(device.torch_device(place))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.splitlines() == ["AcceleratorDevice('npu') npu:1 npu:0", "npu:1"], done.stderr


@pytest.mark.parametrize(
    ("capability", "answer"), [((9, 0), True), ((8, 9), True), ((8, 6), False), ((12, 0), True)]
)
def test_eight_bit_products_need_a_new_enough_gpu(cuda, monkeypatch, capability, answer):
    monkeypatch.setattr(cuda, "get_device_capability", lambda: capability, raising=False)
    assert KINDS["cuda"].supports(torch.float8_e4m3fn) is answer


def test_no_gpu_no_eight_bit_products(monkeypatch):
    install(monkeypatch, "cuda", count=0)
    assert not KINDS["cuda"].supports(torch.float8_e4m3fn)


@pytest.mark.parametrize("answer", [True, False])
def test_bfloat16_is_asked_of_the_module(cuda, answer):
    cuda.is_bf16_supported = lambda: answer
    assert KINDS["cuda"].supports(torch.bfloat16) is answer


def test_a_module_that_does_not_say_has_bfloat16(cuda):
    assert KINDS["cuda"].supports(torch.bfloat16)


@pytest.fixture
def mps(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_built", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    return install(monkeypatch, "mps", count=1)


@pytest.mark.parametrize("answer", [True, False])
def test_bfloat16_on_metal_depends_on_the_system(mps, monkeypatch, answer):
    asked = []
    monkeypatch.setattr(
        torch.backends.mps, "is_macos_or_newer", lambda *version: asked.append(version) or answer
    )
    assert KINDS["mps"].supports(torch.bfloat16) is answer
    assert asked == [(14, 0)]


def test_metal_has_no_double_precision(mps):
    assert not KINDS["mps"].supports(torch.float64)
    assert KINDS["mps"].supports(torch.float16)


@pytest.mark.parametrize("answer", [True, False])
def test_scaled_gradients_on_metal_depend_on_torch(mps, monkeypatch, answer):
    asked = []
    monkeypatch.setattr(
        torch._C, "_dispatch_has_kernel_for_dispatch_key", lambda *names: asked.append(names) or answer
    )
    assert KINDS["mps"].supports_grad_scaler() is answer
    assert asked == [("aten::_amp_foreach_non_finite_check_and_unscale_", "MPS")]


def test_metal_has_one_device_for_every_rank(mps):
    assert KINDS["mps"].torch_device(rank(3)) == torch.device("mps")
    KINDS["mps"].select(torch.device("mps", 0))
    assert mps.calls == []


def test_metal_memory_is_what_is_left_of_the_recommended_share(mps):
    assert KINDS["mps"].memory() == (1500, 2000)


def gaudi(monkeypatch, generation):
    install(monkeypatch, "hpu", "habana_frameworks")
    experimental = ModuleType("experimental")
    experimental.synDeviceType = SimpleNamespace(synDeviceGaudi=1)
    experimental._get_device_type = lambda: generation
    for name in ("habana_frameworks.torch", "habana_frameworks.torch.utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "habana_frameworks.torch.utils.experimental", experimental)


@pytest.mark.parametrize(("generation", "fp16"), [(1, False), (2, True)])
def test_the_first_gaudi_has_no_fp16(monkeypatch, generation, fp16):
    gaudi(monkeypatch, generation)
    assert HPU.is_first_generation() is not fp16
    assert HPU.supports(torch.float16) is fp16
    assert HPU.supports(torch.bfloat16)


def test_gaudi_places_its_processes_itself(monkeypatch):
    module = install(monkeypatch, "hpu", "habana_frameworks")
    assert HPU.torch_device(rank(3)) == torch.device("hpu", 0)
    HPU.select(torch.device("hpu", 0))
    HPU.empty_cache()
    assert module.calls == []
