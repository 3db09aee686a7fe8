"""What the helpers about memory ask of the device; tests/distributed/test_runs.py sees what is freed."""

import gc
import weakref

import pytest
from torch import nn

from accelerate.devices.fake import FakeDevice
from accelerate.runtime import memory
from accelerate.runtime.current import current
from accelerate.runtime.memory import clear_device_cache, release_memory


class Circle:
    def __init__(self):
        self.me = self


@pytest.fixture
def fake():
    current.start(cpu=True)
    current.kind = FakeDevice()
    return current.kind


def test_the_device_of_the_run_gives_memory_back(fake):
    clear_device_cache()
    release_memory()
    assert fake.calls == [("empty_cache",), ("empty_cache",)]


def test_without_a_run_the_device_that_would_be_chosen(monkeypatch):
    fake = FakeDevice()
    monkeypatch.setattr(memory, "choose", lambda environ: fake)
    clear_device_cache()
    assert fake.calls == [("empty_cache",)]
    assert not current.started


def test_garbage_is_collected_on_request(fake):
    gc.disable()
    try:
        reference = weakref.ref(Circle())
        clear_device_cache()
        assert reference() is not None
        clear_device_cache(garbage_collection=True)
        assert reference() is None
    finally:
        gc.enable()


def test_names_are_overwritten_and_what_they_held_goes():
    model, other = nn.Linear(2, 2), Circle()
    references = weakref.ref(model), weakref.ref(other)
    model, other = release_memory(model, other)
    assert (model, other) == (None, None)
    assert references[0]() is None
    release_memory()  # what refers to itself needs another collection
    assert references[1]() is None


def test_as_many_as_were_given():
    assert release_memory() == []
    assert release_memory([1, 2], 3) == [None, None]
