"""Every name of the interface is there, at the path where test suites import it from."""

import importlib
from pathlib import Path

import pytest

from accelerate.test_utils.processes import path_in_accelerate_package

# Copied from the list of the interface's names; module -> names.
NAMES = dict(
    line.split(": ")
    for line in (Path(__file__).parent / "interface_names.txt").read_text(encoding="utf-8").splitlines()
)
SCRIPTS = ("test_distributed_data_loop.py", "test_ops.py", "test_script.py", "test_sync.py")


@pytest.mark.parametrize("module", NAMES)
def test_names_of_the_interface(module: str) -> None:
    home = importlib.import_module(module)
    names = NAMES[module].split()
    assert len(names) >= 3
    assert [name for name in names if not hasattr(home, name)] == []


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_of_the_interface(script: str) -> None:
    assert path_in_accelerate_package("test_utils", "scripts", script).is_file()
