import sys
import types
from collections.abc import Callable

import pytest
import torch

from accelerate.devices import first_use as module
from accelerate.devices.first_use import first_use, initialized_kind, record_first_use


class FakeKind(types.ModuleType):
    """A module of torch that sets its device up on first use, as torch.cuda does."""

    def __init__(self) -> None:
        super().__init__("torch.mlu")
        self.queued: list[Callable[[], object]] = []
        self.is_there = False

    def is_initialized(self) -> bool:
        return self.is_there

    def _lazy_call(self, call: Callable[[], object]) -> None:
        self.queued.append(call)

    def init(self) -> None:
        for call in self.queued:
            call()
        self.is_there = True


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> FakeKind:
    fake = FakeKind()
    monkeypatch.setattr(torch, "mlu", fake, raising=False)
    monkeypatch.setattr(module, "_stacks", {})
    monkeypatch.setattr(module, "_watched", set())
    return fake


def test_the_line_is_noted(kind: FakeKind) -> None:
    record_first_use(always=True)
    record_first_use(always=True)
    assert len(kind.queued) == 1
    assert initialized_kind() is None
    kind.init()  # this line
    stack = first_use("mlu")
    assert stack is not None
    assert [frame.name for frame in stack[-2:]] == ["test_the_line_is_noted", "init"]
    assert stack[-2].line == "kind.init()  # this line"
    assert initialized_kind() == "mlu"


def test_a_device_in_use_tells_nothing(kind: FakeKind) -> None:
    kind.init()
    record_first_use(always=True)
    assert kind.queued == []
    assert first_use("mlu") is None


def test_scripts_are_not_watched(kind: FakeKind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    monkeypatch.delattr(sys, "ps1", raising=False)
    record_first_use()
    assert kind.queued == []
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    record_first_use()
    assert len(kind.queued) == 1
