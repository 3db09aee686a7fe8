"""The trees that the checks read: the real package, and small planted ones that break one rule each."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.architecture.checks.source import Tree, read_tree

SOURCE = Path(__file__).parents[2] / "src"

Plant = Callable[[dict[str, str]], Tree]


@pytest.fixture(scope="session")
def package() -> Tree:
    """Give the package as it is."""
    return read_tree(SOURCE / "accelerate")


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    """Give a function that writes a package (path -> text) and reads it as a tree."""

    def write(files: dict[str, str]) -> Tree:
        for path, text in files.items():
            file = tmp_path / "accelerate" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return read_tree(tmp_path / "accelerate")

    return write
