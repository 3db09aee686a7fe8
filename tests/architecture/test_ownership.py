"""One place each for the environment, for decisions by DistributedType and for making the Borg classes."""

import pytest

from tests.architecture.checks.ownership import (
    check_borg_construction,
    check_distributed_type,
    check_environment,
)
from tests.architecture.checks.source import Tree
from tests.architecture.conftest import Plant

# path -> why it compares with DistributedType.
COMPARISONS = {
    "precision/scaler.py": "`get_grad_scaler` is told the type by its caller",
}

# "path: class" -> why it is made there.
CONSTRUCTIONS = {
    "precision/autocast.py: AcceleratorState": "a public function that is told nothing about the run",
    "accelerator.py: GradientState": "the view that `Accelerator.gradient_state` gives to users",
}


def test_the_package(package: Tree) -> None:
    assert check_environment(package) == []
    assert check_distributed_type(package, COMPARISONS) == []
    assert check_borg_construction(package, CONSTRUCTIONS) == []


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import os\nos.environ['A'] = 'b'", "environ"),
        ("import os\nx = os.getenv('A')", "getenv"),
        ("import os\nos.putenv('A', 'b')", "putenv"),
        ("import os as system\nx = dict(system.environ)", "environ"),
        ("def f():\n    from os import environ", "environ"),
        ("import os.path\nx = os.environ", "environ"),
    ],
)
def test_a_planted_use_of_the_environment_is_found(plant: Plant, source: str, name: str) -> None:
    tree = plant({"compat/env.py": source, "compat/other.py": source})
    (violation,) = check_environment(tree)
    assert violation.startswith("compat/other.py:")
    assert f"uses os.{name}:" in violation


def test_other_uses_of_os_are_left_alone(plant: Plant) -> None:
    source = "import os\nfrom os import path\nx = os.path.join('a')\nclass C: environ = 1\ny = C.environ"
    assert check_environment(plant({"state.py": source})) == []


@pytest.mark.parametrize(
    "source",
    [
        "x = state.distributed_type == DistributedType.FSDP",
        "x = DistributedType.NO != kind",
        "x = kind in (DistributedType.FSDP, DistributedType.DEEPSPEED)",
        "x = kind is enums.DistributedType.NO",
        "x = self.distributed_type == 'FSDP'",
        "x = distributed_type not in names",
        "match state.distributed_type:\n    case 'FSDP': pass",
        "match kind:\n    case DistributedType.FSDP: pass",
        "def f():\n    while g(self.distributed_type.value) == 1: pass",
    ],
)
def test_a_planted_comparison_is_found(plant: Plant, source: str) -> None:
    homes = (
        "state.py",
        "options/x.py",
        "devices/x.py",
        "launching/x.py",
        "commands/x.py",
        "strategies/select.py",
    )
    tree = plant(dict.fromkeys((*homes, "strategies/ddp.py", "excused.py"), source))
    (violation,) = check_distributed_type(tree, {"excused.py": "a reason"})
    assert violation.startswith("strategies/ddp.py:")


def test_other_mentions_of_distributed_type_are_left_alone(plant: Plant) -> None:
    source = (
        "x = DistributedType.NO\ny: DistributedType\nz = {DistributedType.NO: 1}[x] == 2 if 1 < 2 else 3\n"
    )
    assert check_distributed_type(plant({"optimizer.py": source.replace(" == 2", "")}), {}) == []


@pytest.mark.parametrize("name", ["PartialState", "AcceleratorState", "GradientState"])
@pytest.mark.parametrize("call", ["x = {}()", "def f():\n    return state.{}(cpu=True).device"])
def test_a_planted_construction_is_found(plant: Plant, name: str, call: str) -> None:
    source = call.format(name)
    tree = plant({"state.py": source, "data/shard.py": source, "accelerator.py": source})
    (violation,) = check_borg_construction(tree, {f"accelerator.py: {name}": "a reason"})
    assert violation.startswith("data/shard.py:")
    assert f"makes {name}:" in violation


def test_naming_a_borg_class_is_left_alone(plant: Plant) -> None:
    source = "x = PartialState._shared_state\ndef f(state: PartialState) -> bool:\n    return state is x"
    assert check_borg_construction(plant({"logging.py": source}), {}) == []
