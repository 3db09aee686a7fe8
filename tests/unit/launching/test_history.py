import sys
import traceback

import pytest
import torch

from accelerate.launching import history
from accelerate.launching.history import told_first_use


def frame(filename: str, line: str, name: str = "f") -> traceback.FrameSummary:
    return traceback.FrameSummary(filename, 7, name, line=line, lookup_line=False)


def test_nothing_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "initialized_kind", lambda: None)
    assert told_first_use() is None


def test_the_way_from_a_cell_to_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = [
        frame("/x/ipykernel/kernelbase.py", "dispatch"),
        frame("/x/IPython/core/interactiveshell.py", "exec", "run_code"),
        frame("cell", "import library"),
        frame("<frozen importlib._bootstrap>", ""),
        *[frame(f"/x/site-packages/library/{name}.py", f"call {name}") for name in "abcde"],
        frame(torch.cuda.__file__, "_lazy_init()"),
    ]
    monkeypatch.setattr(history, "initialized_kind", lambda: "cuda")
    monkeypatch.setattr(history, "first_use", lambda kind: stack)
    lines = (told_first_use() or "").splitlines()
    assert lines[0].startswith("CUDA is in use")
    assert lines[1:-1] == [
        "    cell, line 7: import library",
        *(f"      through /x/site-packages/library/{name}.py, line 7: call {name}" for name in "cde"),
    ]


def test_what_is_on_a_device_when_nobody_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "initialized_kind", lambda: "cpu")
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "weights", torch.ones(1), raising=False)
    monkeypatch.setattr(main, "network", torch.nn.Linear(1, 1), raising=False)
    assert "On the device are: network, weights." in (told_first_use() or "")
