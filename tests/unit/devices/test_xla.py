from types import SimpleNamespace

import pytest
import torch

from accelerate.devices.kinds import XLA
from accelerate.errors import MissingPackageError
from tests.support.fake_torch_module import install_xla


def test_without_the_package_it_is_not_available_and_says_what_to_install():
    assert not XLA.is_available()
    assert XLA.count() == 0
    with pytest.raises(MissingPackageError, match="pip install torch_xla"):
        XLA.load()


def test_the_runtime_gives_the_device(monkeypatch):
    install_xla(monkeypatch)
    assert XLA.torch_device(SimpleNamespace(local_rank=3, size=4, launched=True)) == torch.device("xla", 0)
    assert XLA.count() == 1
    assert XLA.hardware() == "TPU"


def test_synchronising_runs_the_graph_and_waits(monkeypatch):
    calls = install_xla(monkeypatch)
    XLA.synchronize()
    assert calls == [("sync", True)]


def test_memory_is_limit_less_use(monkeypatch):
    install_xla(monkeypatch)
    assert XLA.memory(2) == (702, 1002)


def test_all_but_eight_bits_are_compiled(monkeypatch):
    install_xla(monkeypatch)
    assert XLA.supports(torch.bfloat16)
    assert not XLA.supports(torch.float8_e5m2)
