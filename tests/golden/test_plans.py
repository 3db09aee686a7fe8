"""What each of these command lines, files and machines amounts to, word by word: plans/*.txt.

`make golden` writes them anew; the difference is what a change does to launches, and is reviewed as such.
"""

import pytest

from tests.golden.plan_cases import CASES
from tests.golden.plan_text import FOLDER, render


@pytest.mark.parametrize("name", sorted(CASES))
def test_plan(name: str) -> None:
    assert render(CASES[name]) == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def test_there_is_no_file_without_a_case() -> None:
    assert {file.stem for file in FOLDER.glob("*.txt")} == CASES.keys()
