"""Files, functions and branches stay small, and everything is annotated."""

import pytest

from tests.architecture.checks.budgets import (
    check_annotations,
    check_complexity,
    check_file_lines,
    check_function_lines,
    check_function_lines_p99,
)
from tests.architecture.checks.source import Tree
from tests.architecture.conftest import Plant

# path -> lines that this file may have.
LONGER_FILES = {"accelerator.py": 1200}  # the facade: mostly docstrings

# "path: function" -> why it is longer, or has more branches.
LONGER_FUNCTIONS: dict[str, str] = {}
COMPLEX_FUNCTIONS: dict[str, str] = {}


def test_the_package(package: Tree) -> None:
    assert check_file_lines(package, LONGER_FILES) == []
    assert check_function_lines(package, LONGER_FUNCTIONS) == []
    assert check_function_lines_p99(package) == []
    assert check_complexity(package, COMPLEX_FUNCTIONS) == []
    assert check_annotations(package) == []


def function(num_lines: int, docstring: str = "") -> str:
    body = ["def f() -> None:", *([docstring] if docstring else []), *(["    x = 1"] * (num_lines - 1))]
    return "\n".join(body) + "\n"


def test_a_long_file_is_found(plant: Plant) -> None:
    tree = plant({"a.py": "x = 1\n" * 401, "b.py": "x = 1\n" * 400, "accelerator.py": "x = 1\n" * 1201})
    assert check_file_lines(tree, LONGER_FILES) == [
        "a.py has 401 lines, more than 400",
        "accelerator.py has 1201 lines, more than 1200",
    ]


def test_a_long_function_is_found(plant: Plant) -> None:
    docstring = '    """Say much.\n' + "\n" * 50 + '    """'
    tree = plant({"a.py": function(61), "b.py": function(60, docstring), "c.py": function(61)})
    excused = {"c.py: f": "a reason"}
    assert check_function_lines(tree, excused) == ["a.py: f has 61 lines without its docstring, more than 60"]


def test_too_many_longish_functions_are_found(plant: Plant) -> None:
    short = [function(2).replace("f()", f"f{index}()") for index in range(98)]
    long = [function(41), function(41).replace("f()", "g()")]
    one_in_100 = "".join([*short, function(40), *long[:1]])
    assert check_function_lines_p99(plant({"a.py": one_in_100})) == []
    (violation,) = check_function_lines_p99(plant({"a.py": "".join(short + long)}))
    assert violation.startswith("p99 of function lines is 41, more than 40")
    assert "a.py: g (41)" in violation
    assert check_function_lines_p99(plant({"a.py": ""})) == []


BRANCHES = [
    "    if x: pass",
    "    y = 1 if x else 2",
    "    for y in x: pass",
    "    while x: pass",
    "    y = [z for z in x if z]",
    "    try: pass\n    except ValueError: pass",
    "    match x:\n        case 1: pass",
    "    if x: pass\n    elif y: pass",
]


@pytest.mark.parametrize("branch", BRANCHES)
def test_many_branches_are_found(plant: Plant, branch: str) -> None:
    per_line = 2 if "elif" in branch else 1
    most = 9 // per_line
    assert check_complexity(plant({"a.py": "def f(x):\n" + f"{branch}\n" * most}), {}) == []
    (violation,) = check_complexity(plant({"a.py": "def f(x):\n" + f"{branch}\n" * (most + 1)}), {})
    assert violation.startswith("a.py: f has complexity 11" if per_line == 1 or most < 5 else "a.py: f")


def test_branches_of_an_inner_function_are_its_own(plant: Plant) -> None:
    inner = "    def g(x):\n" + "        if x: pass\n" * 6
    source = "class C:\n  def f(self, x):\n" + inner + "    if x: pass\n" * 6
    assert check_complexity(plant({"a.py": source}), {}) == []
    too_many = source + "    if x: pass\n" * 4
    assert check_complexity(plant({"a.py": too_many}), {}) == ["a.py: C.f has complexity 11, more than 10"]
    assert check_complexity(plant({"a.py": too_many}), {"a.py: C.f": "a reason"}) == []


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("def f(a: int): ...", "f has no annotation for the result"),
        ("def f(a) -> int: ...", "f has no annotation for a"),
        ("def f(*args, **kwargs) -> int: ...", "f has no annotation for args, kwargs"),
        ("def f(a: int, /, b, *, c) -> int: ...", "f has no annotation for b, c"),
        ("async def f(a): ...", "f has no annotation for a, the result"),
        ("class C:\n    def m(self, a) -> int: ...", "C.m has no annotation for a"),
        ("class C:\n    def __init__(self): ...", "C.__init__ has no annotation for the result"),
        ("class C:\n    @staticmethod\n    def m(a) -> int: ...", "C.m has no annotation for a"),
        ("def f() -> None:\n    def g(a) -> None: ...", "f.g has no annotation for a"),
        ("if True:\n    def f(a) -> None: ...", "f has no annotation for a"),
    ],
)
def test_a_missing_annotation_is_found(plant: Plant, source: str, missing: str) -> None:
    assert check_annotations(plant({"a.py": source})) == [f"a.py: {missing}"]


def test_full_annotations_are_left_alone(plant: Plant) -> None:
    methods = (
        "def m(self, *args: int, k: str = '') -> None: ...\n    @classmethod\n    def n(cls) -> None: ..."
    )
    source = f"class C:\n    {methods}\nf = lambda x: x\n"
    assert check_annotations(plant({"a.py": source})) == []
