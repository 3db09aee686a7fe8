"""Every row of every door leads to its home, the stubs agree, and `import accelerate` stays light."""

import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = {
    "accelerate",
    "accelerate.data_loader",
    "accelerate.utils",
    "accelerate.utils.constants",
    "accelerate.utils.dataclasses",
    "accelerate.utils.environment",
    "accelerate.utils.imports",
    "accelerate.utils.memory",
    "accelerate.utils.operations",
    "accelerate.utils.other",
    "accelerate.utils.random",
    "accelerate.utils.torch_xla",
    "accelerate.utils.tqdm",
    "accelerate.utils.versions",
}
HEAVY = {"torch", "numpy", "yaml", "rich", "psutil", "importlib.metadata", "packaging", "huggingface_hub"}


def load_tool() -> Any:
    specification = importlib.util.spec_from_file_location("door_stubs", ROOT / "tools" / "door_stubs.py")
    assert specification is not None
    assert specification.loader is not None
    tool = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(tool)
    return tool


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TABLES = {module_name(path): table for path, table in load_tool().doors()}
ROWS = [
    pytest.param(door, home, name, id=f"{door}.{name}")
    for door, table in TABLES.items()
    for home, names in table.items()
    for name in names
]


def python(program: str, *flags: str) -> str:
    command = [sys.executable, "-W", "error", *flags, "-c", program]
    # Without site (-S) Python does not look where the package is installed.
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_doors_are_found() -> None:
    assert set(TABLES) >= PUBLIC


@pytest.mark.parametrize(("door", "home", "name"), ROWS)
def test_a_row_leads_home(door: str, home: str, name: str) -> None:
    value = getattr(importlib.import_module(door), name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert value.__module__ == home
    # Equal values that are made anew when the caches of versions were cleared need not be one object.
    assert value in (getattr(importlib.import_module(home), name),)


def test_stubs_agree_with_the_tables() -> None:
    command = [sys.executable, str(ROOT / "tools" / "door_stubs.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_importing_the_package_loads_next_to_nothing() -> None:
    loaded = python(
        "import sys; before = set(sys.modules); import accelerate; print(*(set(sys.modules) - before))",
        "-S",
    ).split()
    ours = {name for name in loaded if name.startswith("accelerate")}
    assert ours == {"accelerate", "accelerate.compat", "accelerate.compat.doors"}
    assert not {"typing", "re", "collections", *HEAVY} & set(loaded)


def test_doors_load_without_anything_heavy() -> None:
    doors = ", ".join(TABLES)
    python(f"import sys, {doors}; heavy = {HEAVY} & set(sys.modules); assert not heavy, heavy")


def test_options_and_environment_come_through_the_doors_without_torch() -> None:
    python(
        "import sys, accelerate\n"
        "accelerate.DistributedDataParallelKwargs().to_kwargs()\n"
        "accelerate.utils.TorchDynamoPlugin()\n"
        "accelerate.utils.parse_flag_from_env('X')\n"
        "accelerate.utils.is_torch_version('>=', '2.6')\n"
        "accelerate.is_rich_available()\n"
        "assert 'torch' not in sys.modules\n"
    )


def test_submodules_need_no_import_of_their_own() -> None:
    python(
        "import accelerate\n"
        "assert accelerate.utils.versions.is_torch_version('>=', '2.6')\n"
        "assert accelerate.utils.dataclasses.DistributedType is accelerate.DistributedType\n"
        "assert accelerate.errors.AccelerateError\n"
        "assert accelerate.data_loader.__name__ == 'accelerate.data_loader'\n"
    )


@pytest.mark.parametrize("door", ["accelerate", "accelerate.utils", "accelerate.data_loader"])
def test_star_import(door: str) -> None:
    count = python(f"from {door} import *; print(len([name for name in dir() if not name.startswith('__')]))")
    public = [name for names in TABLES[door].values() for name in names if not name.startswith("_")]
    assert int(count) == len(public)


def test_a_typing_error_names_the_nearest() -> None:
    import accelerate

    with pytest.raises(
        AttributeError, match=r"module 'accelerate' has no attribute 'Acelerator'.*'Accelerator'"
    ):
        _ = accelerate.Acelerator  # type: ignore[attr-defined]


def test_the_version_is_that_of_the_distribution() -> None:
    import accelerate

    text = (ROOT / "pyproject.toml").read_text()
    assert f'\nversion = "{accelerate.__version__}"\n' in text
