"""The code on the pages for users runs as it stands, and the files that they point to exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#]+)\)")


def blocks(language: str) -> list[tuple[str, str]]:
    """Return (page, code) for every block of one language."""
    found = [
        (page.name, block) for page in PAGES for block in BLOCK.findall(page.read_text(encoding="utf-8"))
    ]
    return [(page, code) for page, (kind, code) in found if kind == language]


def changed(diff: str) -> str:
    """Return the file after the diff."""
    return "".join(f"{line[2:]}\n" for line in diff.splitlines() if not line.startswith("-"))


def plain(diff: str) -> str:
    """Return the file before the diff; what stands in an added block moves out of it."""
    kept, depth = [], None
    for line in diff.splitlines():
        text = line[2:]
        indent = len(text) - len(text.lstrip())
        if line[:1] == "+":
            depth = indent if text.split("#")[0].rstrip().endswith(":") else depth
            continue
        if depth is not None and text and indent <= depth:
            depth = None
        kept.append(text[4:] if depth is not None else text)
    return "\n".join(kept) + "\n"


DIFFS = blocks("diff")


def test_there_are_diffs() -> None:
    assert [page for page, _ in DIFFS] == ["README.md", "index.md"]


@pytest.mark.parametrize(("page", "diff"), DIFFS, ids=[page for page, _ in DIFFS])
def test_the_five_lines(page: str, diff: str) -> None:
    assert sum(line.startswith("+") for line in diff.splitlines()) == 5
    before: dict[str, object] = {}
    exec(compile(plain(diff), page, "exec"), before)
    after: dict[str, object] = {}
    exec(compile(changed(diff), page, "exec"), after)
    assert "accelerator" in after
    assert "accelerator" not in before
    for names in (before, after):
        assert float(names["loss"].detach()) < 0.5  # type: ignore[attr-defined]  # it has learned


def test_the_page_on_handlers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code in [code for page, code in blocks("python") if page == "handlers.md"]:
        exec(compile(code.replace('backend="inductor"', 'backend="eager"'), "handlers.md", "exec"), names)
    assert [path.name for path in (tmp_path / "traces").iterdir()] == ["profile_0.json"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert missing == []


def test_the_loops_run_as_they_stand(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = "\n".join(code for page, code in blocks("python") if page == "loops.md")
    names: dict[str, object] = {}
    exec(compile(program, "loops.md", "exec"), names)
    assert (tmp_path / "checkpoint").exists()
    assert names["accelerator"].mixed_precision == "bf16"  # type: ignore[attr-defined]
    assert names["answers"] == ["A", "B", "C", "D", "E"]


def test_the_tests_on_the_page_about_testing(tmp_path: Path) -> None:
    """Run the page's code as a file of tests, in a pytest of its own."""
    file = tmp_path / "test_page.py"
    program = "\n".join(code for page, code in blocks("python") if page == "testing.md")
    file.write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout
    passed = re.search(r"(\d+) passed", ended.stdout)
    assert passed is not None
    assert int(passed[1]) >= 3  # those that need no accelerator and no package


def test_the_page_on_data_runs_as_it_stands(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = "\n".join(code for page, code in blocks("python") if page == "data.md")
    exec(compile(program, "data.md", "exec"), {})
    assert (tmp_path / "stopped" / "dl_state_dict.bin").exists()
