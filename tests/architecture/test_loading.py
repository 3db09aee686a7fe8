"""What is loaded by `import accelerate`, by `--help` and by the rooms that promise to do without torch."""

from pathlib import Path

import pytest

from tests.architecture.checks.loading import (
    COMMAND_LINE,
    check_loads,
    check_loads_only_standard_library,
    loaded_after,
)
from tests.architecture.checks.source import Tree
from tests.architecture.conftest import SOURCE, Plant

SLOW_FOR_HELP = ("torch", "yaml", "rich", "importlib.metadata")


def test_import_accelerate_loads_nothing_but_python() -> None:
    loaded = loaded_after(SOURCE, "import accelerate")
    assert "accelerate" in loaded
    assert check_loads_only_standard_library(loaded) == []
    assert check_loads(loaded, SLOW_FOR_HELP) == []


@pytest.mark.parametrize("arguments", [("--help",), ("launch", "--help")])
def test_help_loads_nothing_slow(arguments: tuple[str, ...]) -> None:
    loaded = loaded_after(SOURCE, COMMAND_LINE, ("accelerate", *arguments))
    assert "accelerate.commands.accelerate_cli" in loaded
    assert check_loads_only_standard_library(loaded) == []
    assert check_loads(loaded, SLOW_FOR_HELP) == []


def test_options_load_without_torch(package: Tree) -> None:
    names = [name for name in package.modules if name.startswith("accelerate.options")]
    loaded = loaded_after(SOURCE, "\n".join(f"import {name}" for name in names))
    assert loaded >= set(names)
    assert check_loads(loaded, ["torch"]) == []


@pytest.fixture
def fake_packages(tmp_path: Path) -> Path:
    """Give a folder with packages named like the slow ones, found before the real ones."""
    for name in ("torch", "yaml", "rich"):
        (tmp_path / f"{name}.py").write_text("")
    return tmp_path


@pytest.mark.parametrize("name", SLOW_FOR_HELP)
def test_a_planted_import_is_found(plant: Plant, fake_packages: Path, name: str) -> None:
    plant(
        {
            "__init__.py": "",
            "commands/__init__.py": "",
            "commands/accelerate_cli.py": f"def main():\n    import {name}\n    raise SystemExit(0)\n",
        }
    )
    assert check_loads(loaded_after(fake_packages, "import accelerate"), SLOW_FOR_HELP) == []
    loaded = loaded_after(fake_packages, COMMAND_LINE)
    assert check_loads(loaded, SLOW_FOR_HELP) == [f"loads {name}"]
    third_party = [] if name == "importlib.metadata" else [f"loads {name}"]
    assert check_loads_only_standard_library(loaded) == third_party


def test_a_planted_eager_door_is_found(plant: Plant, fake_packages: Path) -> None:
    plant({"__init__.py": "from accelerate import state", "state.py": "import torch"})
    loaded = loaded_after(fake_packages, "import accelerate")
    assert check_loads_only_standard_library(loaded) == ["loads torch"]


def test_a_command_that_fails_is_not_taken_for_a_light_one(plant: Plant, tmp_path: Path) -> None:
    plant({"__init__.py": "", "commands/accelerate_cli.py": "def main():\n    raise SystemExit(2)\n"})
    with pytest.raises(AssertionError, match="exit code 2"):
        loaded_after(tmp_path, COMMAND_LINE)
