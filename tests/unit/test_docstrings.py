"""Every example in a docstring of the package runs, prints what it says and leaves nothing behind.

`tests/golden/doctests.txt` lists the docstrings that have one, so that an example that is no longer collected
(its docstring gone, or hidden behind a decorator) is missed by name. A new example is a line more there.
"""

import doctest
import importlib
from pathlib import Path

import pytest

from tests.architecture.checks.source import read_tree
from tests.support.isolation import undo_leaks, watched_variables

ROOT = Path(__file__).parents[2]
PACKAGE = read_tree(ROOT / "src" / "accelerate")
GOLDEN = ROOT / "tests" / "golden" / "doctests.txt"
WITH_EXAMPLES = sorted(name for name, module in PACKAGE.modules.items() if ">>> " in module.text)


def collect(name: str) -> list[doctest.DocTest]:
    """Return the docstrings with examples of one module, in the order of their names."""
    found = doctest.DocTestFinder().find(importlib.import_module(name), name)
    return sorted(test for test in found if test.examples)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told: list[str] = []
    for test in collect(name):
        before = watched_variables()
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=told.append)
        # An example starts no processes and joins none; the current run is reset for the next one.
        told += [f"{test.name} left something behind: {leak}\n" for leak in undo_leaks(before)]
    assert told == [], "\n" + "".join(told)
    assert list(tmp_path.iterdir()) == []


def test_no_example_is_lost() -> None:
    listed = GOLDEN.read_text(encoding="utf-8").splitlines()
    found = [test.name for name in WITH_EXAMPLES for test in collect(name)]
    lost = sorted(set(listed) - set(found))
    added = sorted(set(found) - set(listed))
    assert lost == [], f"no longer collected (find out why, or take out of {GOLDEN.name}):\n" + "\n".join(
        lost
    )
    assert added == [], f"add to {GOLDEN.name}, in alphabetical order:\n" + "\n".join(added)
    assert listed == sorted(found)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_every_prompt_in_the_source_is_collected(name: str) -> None:
    prompts = [line for line in PACKAGE.modules[name].text.splitlines() if line.lstrip().startswith(">>> ")]
    assert sum(len(test.examples) for test in collect(name)) == len(prompts)
