"""Doors hold tables only, and nothing inside the package goes through one."""

import pytest

from tests.architecture.checks.doors import check_doors_hold_no_code, check_nothing_imports_a_door
from tests.architecture.checks.source import Tree
from tests.architecture.conftest import Plant

# "path: kind of statement" -> why.
STATEMENTS: dict[str, str] = {}

# "path: door" -> why.
THROUGH_DOORS = {
    "commands/env.py: accelerate": "prints `accelerate.__version__`, which packaging tools read from there",
    "launching/link.py: accelerate": "tells other machines `accelerate.__version__`, which must be theirs",
}

TABLE = '''"""A door."""

from typing import TYPE_CHECKING, Any

from accelerate.compat.doors import door

if TYPE_CHECKING:
    from accelerate.data.shard import DataLoaderShard

__version__ = "2"
HOMES = {"accelerate.data.shard": ["DataLoaderShard"]}

__getattr__, __dir__, __all__ = door(__name__, HOMES)
'''


def test_the_package(package: Tree) -> None:
    assert check_doors_hold_no_code(package, STATEMENTS) == []
    assert check_nothing_imports_a_door(package, THROUGH_DOORS) == []


def test_a_table_is_no_code(plant: Plant) -> None:
    paths = ("__init__.py", "data_loader.py", "utils/__init__.py", "utils/operations.py")
    assert check_doors_hold_no_code(plant(dict.fromkeys(paths, TABLE)), {}) == []


@pytest.mark.parametrize("path", ["__init__.py", "hooks.py", "tracking.py", "utils/memory.py"])
@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("def f():\n    return 1", "holds code: FunctionDef"),
        ("class C:\n    x = 1", "holds code: ClassDef"),
        ("for x in ():\n    y = x", "holds code: For"),
        ("if True:\n    x = 1", "holds code: If"),
        ("try:\n    x = 1\nfinally:\n    y = 2", "holds code: Try"),
        ("f = lambda: 1", "holds code: Lambda"),
        ("names = [x for x in ()]", "holds code: ListComp"),
        ("value = 1 if __debug__ else 2", "holds code: IfExp"),
        ("door(__name__, {})", "holds code: Expr"),
        ("value = print('loading')", "calls print, which does not come from accelerate.compat"),
        ("del Any", "holds code: Delete"),
        ("import torch", "imports torch when it is imported itself"),
        ("from accelerate.data.shard import x", "imports accelerate.data.shard when it is imported itself"),
        ("from . import state", "when it is imported itself"),
        ("if TYPE_CHECKING:\n    x = 1", "does more than import for type checkers"),
        ("if TYPE_CHECKING:\n    import x\nelse:\n    x = 1", "does more than import for type checkers"),
    ],
)
def test_planted_code_is_found(plant: Plant, path: str, code: str, fault: str) -> None:
    (violation,) = check_doors_hold_no_code(plant({path: TABLE + code}), {})
    assert violation.startswith(f"{path}:{TABLE.count(chr(10)) + 1} ")
    assert fault in violation


def test_homes_under_utils_may_hold_code(plant: Plant) -> None:
    tree = plant({"utils/other.py": "def f():\n    return 1", "utils/launch.py": "x = [y for y in ()]"})
    assert check_doors_hold_no_code(tree, {}) == []


def test_an_exception_excuses_one_kind_of_statement_in_one_file(plant: Plant) -> None:
    tree = plant(
        {"utils/__init__.py": TABLE + "del Any\nfor x in ():\n    y = x", "hooks.py": TABLE + "del Any"}
    )
    found = check_doors_hold_no_code(tree, {"utils/__init__.py: Delete": "a reason"})
    assert [violation.split(":")[0] for violation in found] == ["hooks.py", "utils/__init__.py"]


@pytest.mark.parametrize(
    "statement",
    [
        "import accelerate",
        "import accelerate.utils",
        "from accelerate import Accelerator",
        "from accelerate.utils import tqdm",
        "from accelerate.utils.operations import gather",
        "from accelerate import hooks",
        "from .hooks import x",
        "def f():\n    from accelerate.hooks import x",
    ],
)
def test_a_planted_import_of_a_door_is_found(plant: Plant, statement: str) -> None:
    doors = ("__init__.py", "hooks.py", "utils/__init__.py", "utils/operations.py")
    tree = plant({**dict.fromkeys(doors, TABLE), "optimizer.py": statement})
    (violation,) = check_nothing_imports_a_door(tree, {"optimizer.py: accelerate.elsewhere": "a reason"})
    assert violation.startswith("optimizer.py:")
    excuse = f"optimizer.py: {violation.split()[-1]}"
    assert check_nothing_imports_a_door(tree, {excuse: "a reason"}) == []


def test_homes_under_utils_may_be_imported(plant: Plant) -> None:
    tree = plant(
        {"utils/__init__.py": TABLE, "utils/other.py": "", "state.py": "import accelerate.utils.other"}
    )
    assert check_nothing_imports_a_door(tree, {}) == []
