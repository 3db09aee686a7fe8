"""Doors: the paths that users import. They hold tables and no code, and nothing inside goes through them."""

import ast
import sys
from collections.abc import Iterator, Mapping

from tests.architecture.checks.source import (
    PACKAGE,
    Module,
    Tree,
    absolute_source,
    called_name,
    is_type_checking,
)

DOORS = (
    "__init__.py",
    "data_loader.py",
    "hooks.py",
    "launchers.py",
    "memory_utils.py",
    "test_utils/__init__.py",
    "test_utils/testing.py",
    "tracking.py",
)
HOMES_UNDER_UTILS = ("utils/fsdp_utils.py", "utils/launch.py", "utils/other.py", "utils/rich.py")

# What a table cannot contain: each of these decides or computes something.
CODE = (ast.Lambda, ast.IfExp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.NamedExpr)
DOOR_MAKERS = f"{PACKAGE}.compat"


def is_door(module: Module) -> bool:
    """Return whether a file is a door: named in the table, or under `utils/` and not one of its homes."""
    in_utils = module.path.startswith("utils/") and module.path not in HOMES_UNDER_UTILS
    return module.path in DOORS or in_utils


def check_doors_hold_no_code(tree: Tree, exceptions: Mapping[str, str]) -> list[str]:
    """Return every statement of a door that is neither documentation, import nor table.

    Args:
        tree: the package.
        exceptions: "path: kind of node" -> why this one statement is needed.
    """
    found = []
    for module in filter(is_door, tree.modules.values()):
        makers = _names_from(module, DOOR_MAKERS)
        for position, statement in enumerate(module.tree.body):
            fault = "" if position == 0 and _is_text(statement) else _fault(module, statement, makers)
            if fault and f"{module.path}: {type(statement).__name__}" not in exceptions:
                found.append(f"{module.path}:{statement.lineno} {fault}")
    return found


def check_nothing_imports_a_door(tree: Tree, exceptions: Mapping[str, str]) -> list[str]:
    """Return every import, from inside the package, of a module that is a door.

    Args:
        tree: the package.
        exceptions: "path: door" -> why this import is needed.
    """
    return [
        f"{module.path}:{found.line} imports the door {found.target}"
        for module in tree.modules.values()
        if not is_door(module)
        for found in tree.imports(module)
        if found.target in tree.modules and is_door(tree.modules[found.target])
        if f"{module.path}: {found.target}" not in exceptions
    ]


def _fault(module: Module, statement: ast.stmt, makers: set[str]) -> str:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        eager = [name for name in _sources(module, statement) if not _is_light(name)]
        return f"imports {', '.join(eager)} when it is imported itself" if eager else ""
    if isinstance(statement, ast.If) and is_type_checking(statement.test):
        only_imports = all(isinstance(child, ast.Import | ast.ImportFrom) for child in statement.body)
        return "" if only_imports and not statement.orelse else "does more than import for type checkers"
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        return _fault_of_value(statement, makers)
    return f"holds code: {type(statement).__name__}"


def _fault_of_value(statement: ast.Assign | ast.AnnAssign, makers: set[str]) -> str:
    for node in ast.walk(statement):
        if isinstance(node, CODE):
            return f"holds code: {type(node).__name__}"
        if isinstance(node, ast.Call) and called_name(node) not in makers:
            return f"calls {called_name(node) or 'something'}, which does not come from {DOOR_MAKERS}"
    return ""


def _names_from(module: Module, source: str) -> set[str]:
    """Return the names that a module imports from `source` or below."""
    return {
        alias.asname or alias.name
        for node in module.tree.body
        if isinstance(node, ast.ImportFrom) and _below(absolute_source(module, node), source)
        for alias in node.names
    }


def _sources(module: Module, statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(statement, ast.ImportFrom):
        yield absolute_source(module, statement)
    else:
        yield from (alias.name for alias in statement.names)


def _is_light(name: str) -> bool:
    return name.split(".")[0] in sys.stdlib_module_names or _below(name, DOOR_MAKERS)


def _below(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
