"""docs/launch.md and docs/configuration.md say what is true: files load, commands parse, code runs."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from accelerate.commands.accelerate_cli import COMMANDS
from accelerate.commands.config import get_config_parser
from accelerate.commands.launch import launch_command_parser
from accelerate.options.config_file import LEGACY, parse, sections
from tests.unit.test_pages import blocks

PAGES = ("launch.md", "configuration.md")
FILES = [code for page, code in blocks("yaml") if page == "configuration.md"]
LINES = [
    line.partition("  #")[0]
    for page, code in blocks("bash")
    if page in PAGES
    for line in code.splitlines()
    if line
]


@pytest.mark.parametrize("text", FILES)
def test_files_load(text: str) -> None:
    found = parse(yaml.safe_load(text), "c.yaml")
    assert (found.problems, found.warnings) == ((), ())


@pytest.mark.parametrize("line", LINES)
def test_commands_parse(line: str) -> None:
    program, command, *arguments = shlex.split(line)
    assert program == "accelerate"
    assert command in COMMANDS
    parser = {"launch": launch_command_parser, "config": get_config_parser}[command]()
    parser.parse_args(arguments)


def test_every_legacy_key_and_section_is_on_the_page() -> None:
    text = Path("docs/configuration.md").read_text(encoding="utf-8")
    for key in LEGACY:
        assert re.search(rf"`{re.escape(key)}(: true)?`", text), key
    for section in sections():
        assert f"`{section}`" in text


def test_the_python_of_the_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("import os; open(os.environ['RANK'], 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    code = {page: "".join(code for at, code in blocks("python") if at == page) for page in PAGES}
    names: dict[str, object] = {}
    exec(compile(code["configuration.md"], "configuration.md", "exec"), names)
    assert names["config"].mixed_precision == "bf16"  # type: ignore[attr-defined]
    parsed: dict[str, object] = {}
    head = code["launch.md"].replace("launch_command(args)\n", "")
    exec(compile(head, "launch.md", "exec"), parsed)
    assert parsed["args"].num_processes == 2  # type: ignore[attr-defined]
