"""Every example in a docstring of the package runs and prints what it says."""

import doctest
import importlib
from pathlib import Path

import pytest

from tests.architecture.checks.source import read_tree

PACKAGE = read_tree(Path(__file__).parents[2] / "src" / "accelerate")
WITH_EXAMPLES = [name for name, module in PACKAGE.modules.items() if ">>> " in module.text]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0  # the differences are in the captured output
