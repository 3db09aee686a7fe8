"""The guard between tests notices what is left behind, and removes it."""

import os
from pathlib import Path

import pytest
import torch.distributed as dist

from accelerate.state import AcceleratorState, PartialState
from tests.support.isolation import undo_leaks, watched_variables


def test_nothing_left_is_no_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_SET_BEFORE", "1")
    before = watched_variables()
    os.environ["SOMETHING_ELSE"] = "1"
    try:
        assert undo_leaks(before) == []
        assert os.environ["ACCELERATE_SET_BEFORE"] == "1"
    finally:
        del os.environ["SOMETHING_ELSE"]


def test_variables_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_CHANGED", "old")
    monkeypatch.setenv("ACCELERATE_REMOVED", "old")
    before = watched_variables()
    os.environ["ACCELERATE_CHANGED"] = "new"
    del os.environ["ACCELERATE_REMOVED"]
    os.environ["ACCELERATE_ADDED"] = os.environ["WORLD_SIZE"] = "2"
    assert undo_leaks(before) == [
        "ACCELERATE_ADDED was None and is '2'",
        "ACCELERATE_CHANGED was 'old' and is 'new'",
        "ACCELERATE_REMOVED was 'old' and is None",
        "WORLD_SIZE was None and is '2'",
    ]
    assert watched_variables() == before


def test_a_process_group_is_ended(tmp_path: Path) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    assert undo_leaks(watched_variables()) == ["a process group is still there"]
    assert not dist.is_initialized()


def test_the_current_run_is_reset() -> None:
    PartialState(cpu=True)
    assert undo_leaks(watched_variables()) == []
    assert PartialState._shared_state == {}
    assert AcceleratorState._shared_state == {}
