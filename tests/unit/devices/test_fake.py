from types import SimpleNamespace

import pytest
import torch

from accelerate.devices.fake import FakeDevice


def test_count_and_memory_are_as_chosen():
    device = FakeDevice(3, memory=[(1, 10), (2, 20), (3, 30)])
    assert device.count() == 3
    assert [device.memory(index) for index in range(3)] == [(1, 10), (2, 20), (3, 30)]
    assert FakeDevice(2, memory=(5, 6)).memory(1) == (5, 6)


def test_memory_for_another_count_is_refused():
    with pytest.raises(ValueError, match="1 pairs for 2 devices"):
        FakeDevice(2, memory=[(1, 2)])


def test_none_of_it_is_not_available():
    assert not FakeDevice(0).is_available()
    assert FakeDevice(0).count() == 0


def test_calls_are_recorded_in_order():
    device = FakeDevice(2)
    chosen = device.torch_device(SimpleNamespace(local_rank=3, size=4, launched=True))
    device.select(chosen)
    device.seed_all(5)
    device.synchronize()
    device.empty_cache()
    assert device.calls == [
        ("select", torch.device("cuda", 1)),
        ("seed_all", 5),
        ("synchronize",),
        ("empty_cache",),
    ]


def test_a_pinned_copy_records_in_the_same_list():
    device = FakeDevice(2)
    device.pinned(torch.device("cuda", 1)).synchronize()
    assert device.calls == [("synchronize",)]


def test_the_generators_are_independent_and_restorable():
    device = FakeDevice(2)
    state = device.rng_state()
    first = device.draw()
    assert first[0] != first[1]
    assert device.draw() != first
    device.set_rng_state(state)
    assert device.draw() == first


def test_unsupported_dtypes_are_as_chosen():
    device = FakeDevice(unsupported=[torch.float16])
    assert not device.supports(torch.float16)
    assert device.supports(torch.bfloat16)
