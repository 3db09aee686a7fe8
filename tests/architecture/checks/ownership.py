"""What one place owns: the environment, decisions by DistributedType, the making of the Borg classes."""

import ast
from collections.abc import Iterator, Mapping

from tests.architecture.checks.source import Module, Tree, called_name, dotted

ENVIRONMENT_DOOR = "compat/env.py"
ENVIRONMENT_NAMES = ("environ", "environb", "getenv", "getenvb", "putenv", "unsetenv")

DISTRIBUTED_TYPE_HOMES = (
    "state.py",
    "options/",
    "devices/",
    "launching/",
    "commands/",
    "strategies/select.py",
)
BORG_CLASSES = ("PartialState", "AcceleratorState", "GradientState")
BORG_HOME = "state.py"


def check_environment(tree: Tree) -> list[str]:
    """Return every use of the process environment outside its door."""
    return [
        f"{module.path}:{line} uses os.{name}: only {ENVIRONMENT_DOOR} touches the environment"
        for module in tree.modules.values()
        if module.path != ENVIRONMENT_DOOR
        for name, line in _environment_uses(module)
    ]


def check_distributed_type(tree: Tree, exceptions: Mapping[str, str]) -> list[str]:
    """Return every comparison with a DistributedType outside the places that choose by it."""
    return [
        f"{module.path}:{line} compares with DistributedType: ask the strategy or the device instead"
        for module in tree.modules.values()
        if not module.path.startswith(DISTRIBUTED_TYPE_HOMES) and module.path not in exceptions
        for line in _distributed_type_comparisons(module)
    ]


def check_borg_construction(tree: Tree, exceptions: Mapping[str, str]) -> list[str]:
    """Return every call of a Borg class inside the package, its home aside.

    Args:
        tree: the package.
        exceptions: "path: class" -> why it is made there.
    """
    return [
        f"{module.path}:{node.lineno} makes {called_name(node)}: take the current run as an argument"
        for module in tree.modules.values()
        if module.path != BORG_HOME
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and called_name(node) in BORG_CLASSES
        and f"{module.path}: {called_name(node)}" not in exceptions
    ]


def _environment_uses(module: Module) -> Iterator[tuple[str, int]]:
    aliases = {"os"}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            aliases |= {alias.asname for alias in node.names if alias.name == "os" and alias.asname}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from ((a.name, node.lineno) for a in node.names if a.name in ENVIRONMENT_NAMES)
        elif (
            isinstance(node, ast.Attribute)
            and node.attr in ENVIRONMENT_NAMES
            and dotted(node.value) in aliases
        ):
            yield node.attr, node.lineno


def _distributed_type_comparisons(module: Module) -> Iterator[int]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Compare | ast.Match | ast.MatchValue):
            for operand in _operands(node):
                if _mentions_distributed_type(operand):
                    yield operand.lineno
                    break


def _operands(node: ast.Compare | ast.Match | ast.MatchValue) -> list[ast.expr]:
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    return [node.subject if isinstance(node, ast.Match) else node.value]


def _mentions_distributed_type(expression: ast.expr) -> bool:
    for node in ast.walk(expression):
        if isinstance(node, ast.Attribute | ast.Name):
            parts = dotted(node).split(".")
            if "DistributedType" in parts or parts[-1] == "distributed_type":
                return True
    return False
