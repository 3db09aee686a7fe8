"""Sizes that keep the code readable: lines of a file and of a function, branches, annotations."""

import ast
import math
from collections.abc import Iterator, Mapping

from tests.architecture.checks.source import Function, Tree

FILE_LINES = 400
FUNCTION_LINES = 60
FUNCTION_LINES_P99 = 40
COMPLEXITY = 10

BRANCHES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case)


def check_file_lines(tree: Tree, exceptions: Mapping[str, int]) -> list[str]:
    """Return every file with more lines than `FILE_LINES`, or than its own budget in `exceptions`."""
    return [
        f"{module.path} has {lines} lines, more than {exceptions.get(module.path, FILE_LINES)}"
        for module in tree.modules.values()
        if (lines := len(module.text.splitlines())) > exceptions.get(module.path, FILE_LINES)
    ]


def check_function_lines(tree: Tree, exceptions: Mapping[str, str]) -> list[str]:
    """Return every function with more lines than `FUNCTION_LINES`, its docstring aside."""
    return [
        f"{where} has {lines} lines without its docstring, more than {FUNCTION_LINES}"
        for where, node, _ in _functions(tree)
        if (lines := lines_of(node)) > FUNCTION_LINES and where not in exceptions
    ]


def check_function_lines_p99(tree: Tree) -> list[str]:
    """Return one line if more than one function in a hundred is longer than `FUNCTION_LINES_P99`."""
    lengths = sorted((lines_of(node), where) for where, node, _ in _functions(tree))
    if not lengths:
        return []
    p99 = lengths[math.ceil(0.99 * len(lengths)) - 1][0]
    longest = ", ".join(f"{where} ({lines})" for lines, where in lengths[-5:])
    return [f"p99 of function lines is {p99}, more than {FUNCTION_LINES_P99}; the longest: {longest}"] * (
        p99 > FUNCTION_LINES_P99
    )


def check_complexity(tree: Tree, exceptions: Mapping[str, str]) -> list[str]:
    """Return every function with more paths (1 + branches) than `COMPLEXITY`."""
    return [
        f"{where} has complexity {paths}, more than {COMPLEXITY}"
        for where, node, _ in _functions(tree)
        if (paths := complexity_of(node)) > COMPLEXITY and where not in exceptions
    ]


def check_annotations(tree: Tree) -> list[str]:
    """Return every function with a parameter or a result that has no annotation."""
    return [
        f"{where} has no annotation for {', '.join(missing)}"
        for where, node, is_method in _functions(tree)
        if (missing := unannotated(node, is_method))
    ]


def lines_of(node: Function) -> int:
    """Return the lines of a function from `def` to the end, without its docstring."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is not None:
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def complexity_of(node: Function) -> int:
    """Return 1 + the branches of a function; functions inside it are counted for themselves."""
    branches = 0
    for child in _own_nodes(node):
        branches += isinstance(child, BRANCHES)
        branches += len(child.ifs) if isinstance(child, ast.comprehension) else 0
    return 1 + branches


def unannotated(node: Function, is_method: bool) -> list[str]:
    """Return the parameters without annotation, and "the result" if that has none."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    is_static = any(isinstance(item, ast.Name) and item.id == "staticmethod" for item in node.decorator_list)
    if is_method and not is_static:
        positional = positional[1:]
    others = [item for item in (arguments.vararg, arguments.kwarg) if item is not None]
    missing = [a.arg for a in [*positional, *arguments.kwonlyargs, *others] if a.annotation is None]
    return missing if node.returns is not None else [*missing, "the result"]


def _functions(tree: Tree) -> Iterator[tuple[str, Function, bool]]:
    for module in tree.modules.values():
        for name, node, is_method in module.functions():
            yield f"{module.path}: {name}", node, is_method


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, Function):
            yield child
            yield from _own_nodes(child)
