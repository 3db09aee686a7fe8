"""The contract of Device, over every kind: the CPU for real, all others over a stand-in for their module."""

import copy
from types import SimpleNamespace

import psutil
import pytest
import torch

from accelerate.devices.accelerators import MpsDevice
from accelerate.devices.base import Device
from accelerate.devices.fake import FakeDevice
from accelerate.devices.kinds import KINDS
from accelerate.options.enums import DistributedType
from tests.support.fake_torch_module import install, install_xla

# torch knows these names without the vendor's package.
NAMES_IN_TORCH = ["cpu", "cuda", "hpu", "mps", "xla", "xpu"]

ALONE = SimpleNamespace(local_rank=0, size=1, launched=False)
SECOND = SimpleNamespace(local_rank=1, size=2, launched=True)


def make(kind, monkeypatch):
    if kind == "fake":
        return FakeDevice(2, memory=(600, 1000))
    if kind == "xla":
        install_xla(monkeypatch)
    elif kind != "cpu":
        install(monkeypatch, kind, getattr(KINDS[kind], "package", None))
        monkeypatch.setattr(torch.backends.mps, "is_built", lambda: True)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    return KINDS[kind]


@pytest.fixture(params=[*KINDS, "fake"])
def device(request, monkeypatch):
    return make(request.param, monkeypatch)


@pytest.fixture(params=[*NAMES_IN_TORCH, "fake"])
def named(request, monkeypatch):
    """A device of which torch can make a `torch.device`."""
    return make(request.param, monkeypatch)


def test_it_says_who_it_is(device):
    assert isinstance(device.type, str)
    assert isinstance(device.distributed_type, DistributedType)
    assert isinstance(device.backend, str)
    assert all(isinstance(text, str) and text for text in device.oom_messages)
    assert device.oom_messages
    assert device.type in repr(device)


def test_it_is_available_and_counted(device):
    assert device.is_available() is True
    assert device.count() >= 1


def test_a_process_alone_gets_its_own_kind(named):
    assert named.torch_device(ALONE).type == named.type


def test_a_rank_gets_a_device_that_exists(named):
    chosen = named.torch_device(SECOND)
    assert chosen.type == named.type
    assert chosen.index is None or 0 <= chosen.index < named.count()


def test_a_pinned_copy_gives_its_device_to_everybody_and_leaves_the_original(named):
    pinned = named.pinned(torch.device("meta"))
    assert pinned.torch_device(ALONE) == pinned.torch_device(SECOND) == torch.device("meta")
    assert named.torch_device(ALONE).type == named.type
    assert "meta" in repr(pinned)
    assert "meta" not in repr(named)


def test_selecting_and_waiting_return_nothing(named):
    assert named.select(named.torch_device(SECOND)) is None
    assert named.synchronize() is None
    assert named.empty_cache() is None


def test_memory_is_free_and_total_in_bytes(device):
    free, total = device.memory(0)
    assert isinstance(free, int)
    assert isinstance(total, int)
    assert 0 <= free <= total


def test_random_state_round_trips(device):
    before = copy.deepcopy(device.rng_state())
    try:
        device.seed_all(11)
        seeded = copy.deepcopy(device.rng_state())
        assert not same(seeded, before)
        device.set_rng_state(before)
        assert same(device.rng_state(), before)
        device.seed_all(11)
        assert same(device.rng_state(), seeded)
    finally:
        device.set_rng_state(before)


def same(left, right):
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return torch.equal(left, right) if isinstance(left, torch.Tensor) else left == right


def test_every_kind_computes_in_fp32(device):
    assert device.supports(torch.float32) is True


def test_the_variables_it_wants_are_text(device):
    assert all(isinstance(name, str) and isinstance(value, str) for name, value in device.environment.items())


def test_autocast_is_a_yes_or_no(named):
    assert named.supports_autocast() in (True, False)


def test_scaling_of_gradients_is_a_yes_or_no(device):
    assert device.supports_grad_scaler() in (True, False)


def test_the_cpu_computes_in_every_precision_of_training():
    cpu = KINDS["cpu"]
    assert cpu.supports_autocast()
    assert cpu.supports_grad_scaler()
    assert all(cpu.supports(dtype) for dtype in (torch.float16, torch.bfloat16))
    # What these answers promise, for this torch:
    operator = "aten::_amp_foreach_non_finite_check_and_unscale_"
    assert torch._C._dispatch_has_kernel_for_dispatch_key(operator, "CPU")


def test_the_cpu_is_the_base_class_and_knows_the_machine():
    cpu = KINDS["cpu"]
    assert type(cpu) is Device
    assert cpu.memory()[1] == psutil.virtual_memory().total
    assert cpu.torch_device(ALONE) == torch.device("cpu")
    assert cpu.torch_device(SECOND) == torch.device("cpu", 0)
    assert not isinstance(cpu, MpsDevice)
