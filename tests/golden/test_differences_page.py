"""docs/differences.md is what the tool makes of docs/differences.yaml."""

import pytest

from tests.golden.differences import load_tool

CONTENT = """
introduction: Few words.
sections:
  - title: Loaders
    introduction: See elsewhere.
    differences:
      - >-
        One
        thing.
      - Another.
surface:
  - {path: a.f, here: "(x, y=1)", why: it helps.}
  - {path: a.C, adds: [one, two], why: they help.}
"""


def test_the_page_is_current() -> None:
    tool = load_tool()
    assert tool.PAGE.read_text() == tool.page(tool.read(tool.SOURCE.read_text())), "run `make differences`"


def test_what_the_page_says() -> None:
    tool = load_tool()
    assert tool.page(tool.read(CONTENT)).split("\n", 4)[4] == (
        "Few words.\n\n## Loaders\n\nSee elsewhere.\n\n- One thing.\n- Another.\n\n"
        "## Names and signatures\n\n"
        "- `a.f` is `(x, y=1)`: it helps.\n- `a.C` has `one`, `two` in addition: they help.\n"
    )


def test_check_tells_a_stale_page(
    tmp_path: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = load_tool()
    for name, file, text in [("SOURCE", "a.yaml", CONTENT), ("PAGE", "a.md", "old")]:
        monkeypatch.setattr(tool, name, tmp_path / file)
        (tmp_path / file).write_text(text)
    monkeypatch.setattr("sys.argv", ["differences.py", "--check"])
    assert tool.main() == 1
    assert "a.md is not what a.yaml says" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["differences.py"])
    assert tool.main() == 0
    monkeypatch.setattr("sys.argv", ["differences.py", "--check"])
    assert tool.main() == 0
