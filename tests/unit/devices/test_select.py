from types import SimpleNamespace

import pytest
import torch

from accelerate.compat import env
from accelerate.devices.base import Device
from accelerate.devices.fake import FakeDevice
from accelerate.devices.kinds import KINDS
from accelerate.devices.select import choose, select
from accelerate.errors import EnvironmentVariableError, MissingPackageError

PLACE = SimpleNamespace(local_rank=1, size=2, launched=True)


@pytest.fixture
def kinds():
    return {
        "mps": FakeDevice(0, type="mps"),
        "cuda": FakeDevice(4, type="cuda"),
        "xpu": FakeDevice(2, type="xpu"),
        "cpu": Device(),
    }


def test_the_first_kind_that_is_there_is_chosen(kinds):
    assert choose({}, kinds=kinds) is kinds["cuda"]


def test_the_cpu_is_chosen_when_nothing_else_is_there(kinds):
    kinds["cuda"] = kinds["xpu"] = FakeDevice(0)
    assert choose({}, kinds=kinds) is kinds["cpu"]


@pytest.mark.parametrize(
    ("environ", "cpu"),
    [({}, True), ({"ACCELERATE_USE_CPU": "yes"}, False), ({"ACCELERATE_USE_CPU": "True"}, False)],
)
def test_the_cpu_is_chosen_when_asked_for(kinds, environ, cpu):
    assert choose(environ, cpu=cpu, kinds=kinds) is kinds["cpu"]


def test_a_false_flag_does_not_choose_the_cpu(kinds):
    assert choose({"ACCELERATE_USE_CPU": "False"}, kinds=kinds) is kinds["cuda"]


def test_an_unreadable_flag_is_an_error_that_names_it(kinds):
    with pytest.raises(EnvironmentVariableError, match=r"ACCELERATE_USE_CPU='maybe'.*true/false"):
        choose({"ACCELERATE_USE_CPU": "maybe"}, kinds=kinds)


def test_an_override_with_an_index_is_every_ranks_device(kinds):
    device = choose({"ACCELERATE_TORCH_DEVICE": "xpu:1"}, kinds=kinds)
    assert device.type == "xpu"
    assert device.torch_device(PLACE) == torch.device("xpu", 1)
    assert kinds["xpu"].torch_device(PLACE).index == 1
    assert kinds["xpu"].torch_device(SimpleNamespace(local_rank=0, size=1, launched=False)).index is None


def test_an_override_without_an_index_names_the_kind(kinds):
    assert choose({"ACCELERATE_TORCH_DEVICE": "xpu"}, kinds=kinds) is kinds["xpu"]


def test_an_override_beats_the_cpu_flag(kinds):
    environ = {"ACCELERATE_TORCH_DEVICE": "cuda:3", "ACCELERATE_USE_CPU": "1"}
    assert choose(environ, cpu=True, kinds=kinds).torch_device(PLACE) == torch.device("cuda", 3)


def test_an_override_that_is_no_kind_keeps_the_kind_that_would_be_chosen(kinds):
    device = choose({"ACCELERATE_TORCH_DEVICE": "meta"}, kinds=kinds)
    assert device.type == "cuda"
    assert device.torch_device(PLACE) == torch.device("meta")
    assert choose({"ACCELERATE_TORCH_DEVICE": "meta"}, cpu=True, kinds=kinds).type == "cpu"


def test_an_empty_override_is_none(kinds):
    assert choose({"ACCELERATE_TORCH_DEVICE": " "}, kinds=kinds) is kinds["cuda"]


@pytest.mark.parametrize("text", ["nonsense", "cuda:x", "cuda:-2"])
def test_an_override_that_torch_cannot_read_is_an_error_that_lists_the_kinds(kinds, text):
    with pytest.raises(
        EnvironmentVariableError, match=rf"ACCELERATE_TORCH_DEVICE='{text}'.*mps, cuda, xpu, cpu"
    ):
        choose({"ACCELERATE_TORCH_DEVICE": text}, kinds=kinds)


def test_an_override_without_its_package_says_so():
    with pytest.raises(MissingPackageError, match="torch_npu"):
        choose({"ACCELERATE_TORCH_DEVICE": "npu:0"})


def test_this_machine_has_a_device():
    assert choose({}).is_available()


def test_selecting_a_kind_writes_the_variables_that_it_wants(monkeypatch):
    monkeypatch.setenv("PYTORCH_ENABLE_MPS_FALLBACK", "0")
    select(env.snapshot(), cpu=True)
    select({"ACCELERATE_TORCH_DEVICE": "mps", "PYTORCH_ENABLE_MPS_FALLBACK": "0"})
    assert env.get("PYTORCH_ENABLE_MPS_FALLBACK") == "0"
    device = select({"ACCELERATE_TORCH_DEVICE": "mps"})
    assert device is KINDS["mps"]
    assert env.get("PYTORCH_ENABLE_MPS_FALLBACK") == "1"
