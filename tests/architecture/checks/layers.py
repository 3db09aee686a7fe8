"""Imports go down: which room may import which, and that no modules import each other in a circle."""

from collections.abc import Iterator, Mapping

from tests.architecture.checks.doors import is_door
from tests.architecture.checks.source import PACKAGE, Module, Tree

LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "compat"),
    ("options", "devices", "modules", "parallelism_config"),
    ("runtime", "state", "logging"),
    (
        "data",
        "precision",
        "offload",
        "checkpoint",
        "trackers",
        "optimizer",
        "scheduler",
        "big_modeling",
        "utils.fsdp_utils",
    ),
    ("strategies", "axes"),
    ("checkpointing",),
    ("accelerator", "inference", "local_sgd", "training"),
    ("commands", "test_utils", "utils.launch", "utils.other", "utils.rich"),
)
LAYER_OF = {room: layer for layer, rooms in enumerate(LAYERS) for room in rooms}

SIDE_ROOM = "launching"
SIDE_ROOM_SEES = 2  # highest layer that the side room imports
SIDE_ROOM_SEEN_FROM = 7  # lowest layer that imports the side room

Pair = tuple[str, str]  # (importer, imported): rooms or modules, without the package's name


def check_layers(tree: Tree, exceptions: Mapping[Pair, str]) -> list[str]:
    """Return every import that goes up a layer or across between rooms of one layer."""
    violations = []
    for module in tree.modules.values():
        if is_door(module):
            continue
        if room_of(module.name) not in (*LAYER_OF, SIDE_ROOM):
            violations.append(f"{module.path}: {room_of(module.name)} has no layer; give it one in the table")
            continue
        for target, line in _targets(tree, module):
            if not _allowed(room_of(module.name), room_of(target)) and not _excepted(
                module.name, target, exceptions
            ):
                violations.append(f"{module.path}:{line} imports {target}: {_reason(module.name, target)}")
    return violations


def check_function_imports(tree: Tree, exceptions: Mapping[str, str]) -> list[str]:
    """Return every import of our own inside a function: only rooms that load without torch need them."""
    return [
        f"{module.path}:{found.line} imports {found.target} inside a function"
        for module in tree.modules.values()
        if not is_door(module) and room_of(module.name) not in exceptions and module.path not in exceptions
        for found in tree.imports(module)
        if found.in_function
    ]


def check_cycles(tree: Tree) -> list[str]:
    """Return every set of modules that import each other, imports inside functions included."""
    graph = {
        module.name: {found.target for found in tree.imports(module)} & tree.modules.keys() - {module.name}
        for module in tree.modules.values()
    }
    return [f"import cycle: {', '.join(sorted(group))}" for group in _components(graph) if len(group) > 1]


def room_of(module: str) -> str:
    """Return the room that a module, given by its full name, belongs to."""
    parts = module.split(".")[1:]
    if parts[:1] == ["utils"]:
        return ".".join(parts[:2])
    return parts[0] if parts else PACKAGE


def _targets(tree: Tree, module: Module) -> Iterator[tuple[str, int]]:
    for found in tree.imports(module):
        known = tree.modules.get(found.target)
        if known is None or not is_door(known):  # importing a door is a violation of its own, told elsewhere
            yield found.target, found.line


def _allowed(importer: str, imported: str) -> bool:
    if importer == imported:
        return True
    if imported == SIDE_ROOM:
        return LAYER_OF[importer] >= SIDE_ROOM_SEEN_FROM
    if imported not in LAYER_OF:
        return False
    if importer == SIDE_ROOM:
        return LAYER_OF[imported] <= SIDE_ROOM_SEES
    return LAYER_OF[imported] < LAYER_OF[importer]


def _excepted(importer: str, imported: str, exceptions: Mapping[Pair, str]) -> bool:
    return any(
        _within(importer, allowed_importer) and _within(imported, allowed_imported)
        for allowed_importer, allowed_imported in exceptions
    )


def _within(module: str, place: str) -> bool:
    return module == f"{PACKAGE}.{place}" or module.startswith(f"{PACKAGE}.{place}.")


def _reason(importer: str, imported: str) -> str:
    source, target = room_of(importer), room_of(imported)
    if target not in (*LAYER_OF, SIDE_ROOM):
        return f"{target} has no layer; give it one in the table"
    if SIDE_ROOM in (source, target):
        return (
            f"{SIDE_ROOM} imports layers 0 to {SIDE_ROOM_SEES} and is imported by layer {SIDE_ROOM_SEEN_FROM}"
        )
    if LAYER_OF[source] == LAYER_OF[target]:
        return f"rooms of layer {LAYER_OF[source]} are independent of each other"
    return f"layer {LAYER_OF[source]} ({source}) may not import layer {LAYER_OF[target]} ({target})"


def _components(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Return the strongly connected components (Kosaraju: order of leaving, then the reversed graph)."""
    order: list[str] = []
    seen: set[str] = set()
    for start in graph:
        _visit(graph, start, seen, order)
    reversed_graph: dict[str, set[str]] = {name: set() for name in graph}
    for name, targets in graph.items():
        for target in targets:
            reversed_graph[target].add(name)
    components, seen = [], set()
    for start in reversed(order):
        members: list[str] = []
        _visit(reversed_graph, start, seen, members)
        if members:
            components.append(set(members))
    return components


def _visit(graph: Mapping[str, set[str]], start: str, seen: set[str], left: list[str]) -> None:
    """Walk depth first from `start`, and append each new node to `left` when it is left."""
    if start in seen:
        return
    seen.add(start)
    stack = [(start, iter(sorted(graph[start])))]
    while stack:
        name, targets = stack[-1]
        target = next((target for target in targets if target not in seen), None)
        if target is None:
            left.append(name)
            stack.pop()
        else:
            seen.add(target)
            stack.append((target, iter(sorted(graph[target]))))
