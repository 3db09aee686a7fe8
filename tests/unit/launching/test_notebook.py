import sys
import types
from typing import Any

import pytest

from accelerate.errors import ConfigurationError, LaunchError, MissingPackageError
from accelerate.launching import notebook
from accelerate.launching.machine import Machine
from accelerate.launching.notebook import notebook_launcher


@pytest.fixture(autouse=True)
def no_tpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TPU_NAME", "PJRT_DEVICE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"num_processes": None}, r"num_processes=None\): say how many"),
        ({"num_processes": 0}, r"num_processes=0\): give at least 1"),
        ({"max_restarts": -1}, "give at least 0"),
        ({"monitor_interval": 0}, "give seconds greater than 0"),
        ({"mixed_precision": "half"}, r"mixed_precision='half'\): use one of no, fp8, fp16, bf16"),
        ({"node_rank": 2, "num_nodes": 2}, "give a node_rank that is smaller than num_nodes"),
        ({"use_port": "http"}, r"use_port='http'\): give a port"),
        ({"use_port": "99999"}, "give a port"),
        ({"use_port": "0", "num_nodes": 2}, "several machines need a port to agree on"),
    ],
)
def test_contradictions(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        notebook_launcher(print, **{"num_processes": 2, **arguments})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"function": "train"}, "give a function"),
        ({"args": 1}, r"args=1\): give a tuple, as in args=\(1,\)"),
        ({"args": "word"}, r"give a tuple, as in args=\('word',\)"),
        ({"num_processes": "2"}, r"num_processes='2'\): give a whole number"),
        ({"num_processes": 2.0}, "give a whole number"),
        ({"num_processes": True}, "give a whole number"),
        ({"rdzv_conf": "timeout=3"}, r"give a dictionary, as in rdzv_conf=\{'timeout': 60\}"),
    ],
)
def test_wrong_types(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        notebook_launcher(**{"function": print, "num_processes": 2, **arguments})


def test_machines_that_do_not_come() -> None:
    port = str(notebook.get_free_port())
    with pytest.raises(LaunchError, match=r"the 2 machine\(s\) did not meet at 127\.0\.0\.1:"):
        notebook_launcher(print, num_processes=1, num_nodes=2, use_port=port, rdzv_conf={"timeout": 1})


def test_one_process_is_this_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(notebook.torch.backends.mps, "is_available", lambda: False)
    seen = []
    notebook_launcher(
        lambda *args: seen.append((args, notebook.env.get("ACCELERATE_MIXED_PRECISION"))), (1, "a"), 1, "BF16"
    )
    assert seen == [((1, "a"), "bf16")]
    assert capsys.readouterr().out == "Launching training on CPU.\n"
    assert notebook.env.get("ACCELERATE_MIXED_PRECISION") is None


def test_more_processes_than_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(installed_gpus=2, gpus=2, evidence="made up", cores=4)
    monkeypatch.setattr(notebook, "look", lambda environ: machine)
    with pytest.raises(ConfigurationError, match=r"2 can be used \(made up\); give num_processes=2"):
        notebook_launcher(print, num_processes=4)
    with pytest.raises(ConfigurationError, match="as in num_processes=2, one per GPU"):
        notebook_launcher(print)


@pytest.mark.parametrize(("asked", "number"), [(None, None), (8, None), (1, 1)])
def test_a_tpu(asked: int | None, number: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_NAME", "local")
    calls: list[dict[str, Any]] = []
    started = types.ModuleType("xla_multiprocessing")
    started.spawn = lambda function, **rest: calls.append({"function": function, **rest})  # type: ignore[attr-defined]
    package = types.ModuleType("torch_xla.distributed")
    package.xla_multiprocessing = started  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_xla", types.ModuleType("torch_xla"))
    monkeypatch.setitem(sys.modules, "torch_xla.distributed", package)
    notebook_launcher(print, ("a",), asked)
    (call,) = calls
    assert call.pop("function").launcher is print
    assert call == {"args": ("a",), "nprocs": number, "start_method": "fork"}


def test_a_tpu_without_torch_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PJRT_DEVICE", "TPU")
    monkeypatch.setitem(sys.modules, "torch_xla", None)
    with pytest.raises(MissingPackageError, match="pip install torch_xla"):
        notebook_launcher(print)
