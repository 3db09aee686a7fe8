"""A package as syntax trees, never imported. The checks of this folder read it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PACKAGE = "accelerate"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class Import:
    """One module that an import statement names."""

    target: str  # dotted name, in full
    line: int
    in_function: bool


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    name: str  # dotted name, in full
    path: str  # relative to the package's folder, with slashes
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Give the parsed file."""
        return ast.parse(self.text, self.path)

    @property
    def package(self) -> str:
        """Give the name that a relative import with one dot starts from."""
        return self.name if self.path.endswith("__init__.py") else self.name.rpartition(".")[0]

    def functions(self) -> Iterator[tuple[str, Function, bool]]:
        """Yield (qualified name, node, whether it is a method) for every function, also nested ones."""
        yield from _functions(self.tree, "", in_class=False)


@dataclass(frozen=True)
class Tree:
    """All files of a package, by dotted name."""

    modules: dict[str, Module]

    def imports(self, module: Module) -> Iterator[Import]:
        """Yield what a module imports of its own package, wherever in the file; TYPE_CHECKING aside."""
        for statement in run_time_nodes(module.tree):
            for target in self._targets(module, statement.node):
                if target == PACKAGE or target.startswith(f"{PACKAGE}."):
                    line = getattr(statement.node, "lineno", 0)
                    yield Import(target=target, line=line, in_function=statement.in_function)

    def _targets(self, module: Module, node: ast.AST) -> list[str]:
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            source = absolute_source(module, node)
            named = [f"{source}.{alias.name}" for alias in node.names]
            return sorted({name if name in self.modules else source for name in named})
        if isinstance(node, ast.Call) and node.args and called_name(node) in ("import_module", "__import__"):
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                return [argument.value]
        return []


def read_tree(folder: Path) -> Tree:
    """Read every Python file under the package's folder."""
    modules = {}
    for file in sorted(folder.rglob("*.py")):
        path = file.relative_to(folder)
        parts = [*path.parts[:-1], *([] if path.name == "__init__.py" else [path.stem])]
        name = ".".join([PACKAGE, *parts])
        modules[name] = Module(name, path.as_posix(), file.read_text(encoding="utf-8"))
    return Tree(modules)


@dataclass(frozen=True)
class Placed:
    """A node and whether it stands inside a function."""

    node: ast.AST
    in_function: bool


def run_time_nodes(node: ast.AST, in_function: bool = False) -> Iterator[Placed]:
    """Yield every node below, leaving out the bodies of `if TYPE_CHECKING:`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and is_type_checking(child.test):
            for other in child.orelse:
                yield Placed(other, in_function)
                yield from run_time_nodes(other, in_function)
            continue
        yield Placed(child, in_function)
        yield from run_time_nodes(child, in_function or isinstance(child, Function))


def is_type_checking(test: ast.expr) -> bool:
    """Return whether a condition is `TYPE_CHECKING` or `typing.TYPE_CHECKING`."""
    return dotted(test).rpartition(".")[2] == "TYPE_CHECKING"


def absolute_source(module: Module, node: ast.ImportFrom) -> str:
    """Return the full name of the module behind `from ... import`."""
    if not node.level:
        return node.module or ""
    base = module.package.split(".")
    base = base[: len(base) - (node.level - 1)]
    return ".".join([*base, node.module] if node.module else base)


def dotted(node: ast.expr) -> str:
    """Return `a.b.c` for a chain of names, "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def called_name(node: ast.Call) -> str:
    """Return the last part of the name of what is called."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _functions(node: ast.AST, prefix: str, in_class: bool) -> Iterator[tuple[str, Function, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            name = f"{prefix}{child.name}"
            yield name, child, in_class
            yield from _functions(child, f"{name}.", in_class=False)
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.", in_class=True)
        else:
            yield from _functions(child, prefix, in_class)
