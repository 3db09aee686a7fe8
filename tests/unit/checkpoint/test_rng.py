import random
import warnings

import numpy as np
import pytest
import torch

from accelerate.checkpoint import files, rng
from accelerate.devices.base import Device

CPU = Device()


class Generator(Device):
    """A kind of hardware with one random generator, which is a number."""

    def __init__(self, kind="cuda", state=5):
        self.type = kind
        self.state = state

    def rng_state(self):
        return [torch.tensor(self.state)]

    def set_rng_state(self, state):
        self.state = int(state[0])


def draw():
    return random.random(), np.random.rand(), torch.rand(1).item()


def test_the_keys_are_the_interfaces():
    assert list(rng.collect(7, CPU)) == ["step", "random_state", "numpy_random_seed", "torch_manual_seed"]
    assert list(rng.collect(7, Generator()))[-1] == "torch_cuda_manual_seed"
    assert list(rng.collect(7, Generator("xpu")))[-1] == "torch_xpu_manual_seed"
    assert list(rng.collect(7, Generator("xla")))[-1] == "xm_seed"


def test_the_same_numbers_come_after_a_round_trip_through_a_file(tmp_path):
    device = Generator()
    draw()
    files.write_file(rng.collect(3, device), tmp_path / "file")
    expected = draw()
    device.state = 0
    draw()
    states = files.load(tmp_path / "file")
    rng.restore(states, device, source="file")
    assert draw() == expected
    assert device.state == 5
    assert states["step"] == 3


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"random_state": "nonsense"}, r"file: random_state \(\w+Error"),
        ({"numpy_random_seed": ("MT19937", np.zeros(3, np.uint32))}, r"file: numpy_random_seed \(\w+Error"),
        ({"torch_manual_seed": torch.zeros(3)}, r"file: torch_manual_seed \(\w+Error"),
        ({"torch_manual_seed": None}, r"file: torch_manual_seed \(\w+Error"),
        ({"torch_xpu_manual_seed": []}, r"file: torch_xpu_manual_seed \(this run has no such generator\)"),
    ],
)
def test_what_is_not_restored_is_named_and_the_rest_restored(change, named):
    states = rng.collect(0, CPU)
    expected = draw()
    with pytest.warns(UserWarning, match=named):
        rng.restore({**states, **change}, CPU, source="file")
    drawn = draw()
    names = ["random_state", "numpy_random_seed", "torch_manual_seed"]
    for name, one, other in zip(names, drawn, expected, strict=True):
        assert (one == other) == (name not in change)


def test_what_was_not_saved_is_named():
    states = rng.collect(0, CPU)
    with pytest.warns(UserWarning, match=r"torch_cuda_manual_seed \(it was not saved\)"):
        rng.restore(states, Generator(), source="file")


def test_nothing_is_said_when_all_is_restored():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rng.restore(rng.collect(0, CPU), CPU, source="file")
