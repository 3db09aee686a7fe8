"""The tool that renders docs/differences.yaml, and the file's entries about names and signatures."""

import importlib.util
from pathlib import Path
from typing import Any

from tests.golden.verdict import Intended

ROOT = Path(__file__).parents[2]


def load_tool() -> Any:
    """Return tools/differences.py as a module."""
    specification = importlib.util.spec_from_file_location(
        "differences_tool", ROOT / "tools" / "differences.py"
    )
    assert specification is not None
    assert specification.loader is not None
    tool = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(tool)
    return tool


def intended() -> list[Intended]:
    """Return the names and signatures that differ on purpose."""
    tool = load_tool()
    return [
        Intended(path, entry.get("here"))
        for entry in tool.read(tool.SOURCE.read_text())["surface"]
        for path in (
            [f"{entry['path']}.{name}" for name in entry["adds"]] if "adds" in entry else [entry["path"]]
        )
    ]
