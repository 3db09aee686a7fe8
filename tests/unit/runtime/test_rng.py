"""Seeding and the random state of one process; between ranks see tests/distributed/test_rng.py."""

import os
import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from accelerate.devices.fake import FakeDevice
from accelerate.devices.kinds import KINDS
from accelerate.options.enums import RNGType
from accelerate.runtime import rng
from accelerate.runtime.current import current
from accelerate.runtime.rng import set_seed, synchronize_rng_state, synchronize_rng_states
from accelerate.runtime.world import World


@pytest.fixture(autouse=True)
def fresh():
    yield
    current.reset()
    torch.use_deterministic_algorithms(False)


def draws() -> list[float]:
    return [random.random(), float(np.random.rand()), torch.rand(1).item()]


def test_a_seed_fixes_all_generators_and_starts_no_run():
    set_seed(7)
    first = draws()
    assert draws() != first
    set_seed(7)
    assert draws() == first
    set_seed(8)
    assert draws() != first
    assert not current.started
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_devices_of_the_run_are_seeded():
    current.start(cpu=True)
    current.kind = FakeDevice()
    set_seed(3)
    assert current.kind.calls == [("seed_all", 3)]


def test_a_device_specific_seed_adds_the_process_index():
    current.start(cpu=True)
    current.world = World(rank=2, size=3)
    set_seed(5, device_specific=True)
    specific = draws()
    set_seed(7)
    assert draws() == specific


def test_numpy_integers_are_seeds():
    set_seed(np.int64(3))
    first = draws()
    set_seed(3)
    assert draws() == first


def test_deterministic():
    set_seed(1, deterministic=True)
    assert torch.are_deterministic_algorithms_enabled()
    set_seed(1)  # does not take it back
    assert torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(("before", "after"), [(None, ":4096:8"), (":16:8", ":16:8")])
def test_deterministic_matrix_products_on_cuda(monkeypatch, before, after):
    name = "CUBLAS_WORKSPACE_CONFIG"
    monkeypatch.setenv(name, "")  # so that it is put back
    os.environ.pop(name)
    if before is not None:
        os.environ[name] = before
    kind = FakeDevice()
    kind.deterministic_environment = KINDS["cuda"].deterministic_environment
    monkeypatch.setattr(rng, "choose", lambda environ: kind)
    set_seed(1)
    assert os.environ.get(name) == before
    set_seed(1, deterministic=True)
    assert os.environ[name] == after


class Noise(Dataset):
    """What a worker draws from each generator, as random augmentation does."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.tensor(draws())


def test_workers_of_loaders_follow_the_seed():
    def noise(seed):
        set_seed(seed)
        return torch.cat(list(DataLoader(Noise(), num_workers=2)))

    assert torch.equal(noise(1), noise(1))
    assert not torch.isin(noise(1), noise(2)).any()


@pytest.mark.parametrize(
    ("seed", "error"), [(-1, ValueError), (2**32, ValueError), ("1", TypeError), (1.5, TypeError)]
)
def test_a_bad_seed_changes_nothing(seed, error):
    set_seed(1)
    before = random.getstate()
    with pytest.raises(error):
        set_seed(seed)
    assert random.getstate() == before


@pytest.mark.parametrize("rng_type", ["nonsense", None, 3])
def test_an_unknown_generator(rng_type):
    with pytest.raises(ValueError, match=r"is no generator: allowed are torch, cuda, .*generator"):
        synchronize_rng_state(rng_type)


def test_a_generator_must_be_given():
    with pytest.raises(ValueError, match="generator="):
        synchronize_rng_states(["generator"])


@pytest.mark.parametrize("kind", ["cuda", RNGType.NPU, "xla"])
def test_a_device_that_is_not_there(kind, monkeypatch):
    monkeypatch.setitem(KINDS, str(kind), FakeDevice(count=0))
    with pytest.raises(ValueError, match=f'"{kind}".*there is none'):
        synchronize_rng_states([kind])


def test_one_process_keeps_its_states():
    current.start(cpu=True)
    generator = torch.Generator().manual_seed(1)
    before = torch.get_rng_state(), generator.get_state()
    synchronize_rng_states(["torch", RNGType.GENERATOR], generator)
    synchronize_rng_states([])
    after = torch.get_rng_state(), generator.get_state()
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_the_state_of_xla_is_an_integer(monkeypatch):
    class Xla(FakeDevice):
        state = 12

        def rng_state(self) -> int:
            return self.state

        def set_rng_state(self, state: int) -> None:
            self.state = state

    xla = Xla()
    monkeypatch.setitem(KINDS, "xla", xla)
    source = rng._source(RNGType.XLA, None)
    assert source.read().item() == 12
    source.write(torch.tensor(5))
    assert xla.state == 5
    assert isinstance(xla.state, int)
