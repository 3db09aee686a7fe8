from pathlib import Path

import pytest

from accelerate.test_utils.examples import clean_lines, compare_against_test, get_function_contents_by_name

TEMPLATE = """\
import argparse

def training_function(config, args):
    # what it does
    accelerator = Accelerator()

    for epoch in range(3):
        print(epoch)

def main():
    parser = argparse.ArgumentParser()
    training_function({}, parser.parse_args())

if __name__ == "__main__":
    main()
"""
FEATURE = TEMPLATE.replace("Accelerator()", "Accelerator(cpu=True)").replace(
    "    training_function(", '    parser.add_argument("--x")\n    training_function('
)


@pytest.fixture(autouse=True)
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "nlp_example.py").write_text(TEMPLATE)
    (tmp_path / "template.py").write_text(TEMPLATE)
    (tmp_path / "feature.py").write_text(FEATURE)


def test_functions_end_where_the_next_begins() -> None:
    lines = TEMPLATE.splitlines(keepends=True)
    training = get_function_contents_by_name(lines, "training_function")
    assert (training[0], training[-2]) == (lines[2], "        print(epoch)\n")
    assert clean_lines(get_function_contents_by_name(lines, "main")) == lines[9:12]


def test_what_a_complete_example_lacks() -> None:
    assert compare_against_test("template.py", "feature.py", False) == [
        "    accelerator = Accelerator(cpu=True)\n"
    ]
    assert compare_against_test("template.py", "feature.py", True) == ['    parser.add_argument("--x")\n']


@pytest.mark.parametrize("parser_only", [True, False])
def test_nothing_is_lacking(parser_only: bool) -> None:
    assert compare_against_test("feature.py", "feature.py", parser_only) == []
    assert compare_against_test("feature.py", "template.py", parser_only) == []


def test_lines_of_another_template_are_no_feature() -> None:
    missing = compare_against_test("feature.py", "feature.py", False, secondary_filename="feature.py")
    assert missing == ["    accelerator = Accelerator(cpu=True)\n"]


def test_other_functions_are_refused() -> None:
    with pytest.raises(ValueError, match="Incorrect function name passed: other"):
        get_function_contents_by_name(["x"], "other")
    with pytest.raises(ValueError, match="no function `main`"):
        get_function_contents_by_name(["x"], "main")
