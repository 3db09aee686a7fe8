import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest
from packaging.version import parse

from accelerate.compat import colab
from accelerate.compat.colab import install_xla
from accelerate.errors import LaunchError

PIP = [sys.executable, "-m", "pip", "install"]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Record commands in place of running them, as if torch 2.9.1 was installed."""
    recorded: list[list[str]] = []

    def run(command: list[str], *, check: bool) -> None:
        assert check
        recorded.append(command)

    def version(distribution: str) -> Any:
        return parse("2.9.1+cpu")

    version.cache_clear = lambda: recorded.append(["forget the version"])  # type: ignore[attr-defined]
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(colab, "installed_version", version)
    return recorded


def enter(monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    notebook = ModuleType("IPython")
    notebook.get_ipython = lambda: shell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", notebook)


def test_in_colab_the_release_of_torch_decides(
    monkeypatch: pytest.MonkeyPatch, commands: list[list[str]]
) -> None:
    enter(monkeypatch, "<google.colab._shell.Shell object>")
    install_xla()
    assert commands == [[*PIP, "torch_xla[tpu]==2.9.*"]]


def test_an_upgrade_of_torch_comes_first(monkeypatch: pytest.MonkeyPatch, commands: list[list[str]]) -> None:
    enter(monkeypatch, "<google.colab._shell.Shell object>")
    install_xla(upgrade=True)
    assert commands == [
        [*PIP, "--upgrade", "torch"],
        ["forget the version"],
        [*PIP, "torch_xla[tpu]==2.9.*"],
    ]


@pytest.mark.parametrize("shell", [None, "<ipykernel.zmqshell.ZMQInteractiveShell object>"])
def test_elsewhere_nothing_is_installed(
    shell: str | None, monkeypatch: pytest.MonkeyPatch, commands: list[list[str]]
) -> None:
    if shell is not None:
        enter(monkeypatch, shell)
    with pytest.raises(LaunchError, match=r"Google Colab only.*pip install") as caught:
        install_xla()
    assert isinstance(caught.value, RuntimeError)
    assert commands == []
