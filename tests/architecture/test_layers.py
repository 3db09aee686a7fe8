"""Imports go down the layers, between rooms only where said, never in a circle, and not inside functions."""

import pytest

from tests.architecture.checks.layers import Pair, check_cycles, check_function_imports, check_layers
from tests.architecture.checks.source import Tree
from tests.architecture.conftest import Plant

# (importer, imported) -> why. A room or a module each.
ACROSS_ROOMS: dict[Pair, str] = {
    ("compat", "errors"): "what is wrong with a variable or a version is told with our own errors",
    ("devices", "options.enums"): "a kind of device names the DistributedType that it leads to",
    ("options.handlers", "modules.comm_hooks"): "a method of the interface that works on a module",
    ("options.fsdp", "modules.wrapping"): "the plugin binds its wrap policy to a model",
    ("state", "runtime"): "the public states are views of the current run",
    ("logging", "runtime"): "a log line asks the current run who speaks",
    ("offload", "checkpoint.files"): "offloaded weights lie in the files of a checkpoint",
    ("big_modeling", "offload"): "the home that clients patch is a thin front of the room",
    ("strategies", "axes.base"): "a strategy takes axes by their protocol",
    ("utils.launch", "commands.utils"): "what was typed is found in a namespace as the command does it",
    ("accelerator", "training"): "the facade is put together from the parts of the loop",
}

# Room or file -> why it imports our own modules inside functions.
INSIDE_FUNCTIONS = {
    "options": "loads without torch, and its public classes have methods that need it",
    "commands": "loads without torch",
    "launching": "loads without torch",
}


def test_the_package(package: Tree) -> None:
    assert check_layers(package, ACROSS_ROOMS) == []
    assert check_function_imports(package, INSIDE_FUNCTIONS) == []
    assert check_cycles(package) == []


@pytest.mark.parametrize(
    ("importer", "statement", "reason"),
    [
        (
            "runtime/world.py",
            "from accelerate.data.shard import x",
            "layer 2 (runtime) may not import layer 3",
        ),
        ("errors.py", "import accelerate.state", "layer 0 (errors) may not import layer 2 (state)"),
        ("data/shard.py", "from accelerate.checkpoint import files", "rooms of layer 3 are independent"),
        ("data/shard.py", "from ..checkpoint.files import x", "rooms of layer 3 are independent"),
        (
            "data/shard.py",
            "def f():\n    from accelerate.accelerator import x",
            "layer 3 (data) may not import",
        ),
        (
            "data/shard.py",
            "import importlib\nimportlib.import_module('accelerate.axes.base')",
            "layer 4 (axes)",
        ),
        ("launching/simple.py", "from accelerate.optimizer import x", "launching imports layers 0 to 2"),
        ("accelerator.py", "from accelerate.launching.simple import x", "is imported by layer 7"),
        ("state.py", "from accelerate.commands.launch import x", "layer 2 (state) may not import layer 7"),
        ("data/shard.py", "from accelerate.attic import x", "attic has no layer"),
        ("attic.py", "", "attic has no layer"),
        ("offload/load.py", "from accelerate.checkpoint.naming import x", "rooms of layer 3 are independent"),
    ],
)
def test_a_planted_import_is_found(plant: Plant, importer: str, statement: str, reason: str) -> None:
    tree = plant({"checkpoint/files.py": "", "checkpoint/__init__.py": "", importer: statement})
    (violation,) = check_layers(tree, ACROSS_ROOMS)
    assert violation.startswith(importer)
    assert reason in violation


def test_lawful_imports_are_left_alone(plant: Plant) -> None:
    tree = plant(
        {
            "runtime/current.py": "from typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    from accelerate.strategies.base import Strategy\n",
            "state.py": "from accelerate.runtime.current import x\nfrom .errors import y\nimport torch",
            "launching/elastic.py": "from accelerate.launching.base import x\nfrom accelerate.state import y",
            "commands/launch.py": "from accelerate.launching.select import x",
            "strategies/fsdp.py": "from accelerate.axes.base import Axis\nimport accelerate.optimizer",
            "hooks.py": "from accelerate.accelerator import a_door_is_not_judged_here",
        }
    )
    assert check_layers(tree, ACROSS_ROOMS) == []
    assert check_cycles(tree) == []


def test_a_type_checking_block_hides_only_itself(plant: Plant) -> None:
    source = (
        "import typing\nif typing.TYPE_CHECKING:\n    import x\nelse:\n    import accelerate.accelerator\n"
    )
    assert len(check_layers(plant({"state.py": source}), ACROSS_ROOMS)) == 1


def test_planted_cycles_are_found(plant: Plant) -> None:
    tree = plant(
        {
            "data/a.py": "from accelerate.data import b",
            "data/b.py": "def f():\n    from .c import x",
            "data/c.py": "import accelerate.data.a",
            "data/d.py": "import accelerate.data.a",
            "runtime/e.py": "from accelerate.runtime.f import x",
            "runtime/f.py": "from accelerate.runtime.e import y",
        }
    )
    assert sorted(check_cycles(tree)) == [
        "import cycle: accelerate.data.a, accelerate.data.b, accelerate.data.c",
        "import cycle: accelerate.runtime.e, accelerate.runtime.f",
    ]


def test_a_planted_import_inside_a_function_is_found(plant: Plant) -> None:
    late = "def f():\n    import torch\n    from accelerate.errors import AccelerateError\n"
    tree = plant({"data/shard.py": late, "commands/env.py": late, "errors.py": ""})
    assert check_function_imports(tree, INSIDE_FUNCTIONS) == [
        "data/shard.py:3 imports accelerate.errors inside a function"
    ]
