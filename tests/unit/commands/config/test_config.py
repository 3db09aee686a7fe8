"""Without a terminal: one line of standard input per answer."""

import io
from pathlib import Path

import pytest

from accelerate.commands.config.config import main


def test_lines_answer_the_questions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.yaml"
    lines = ["This machine", "1", "yes", "no", "bf16"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines) + "\n"))
    assert main(["--config_file", str(file)]) == 0
    printed = capsys.readouterr().out
    assert f"Launch with it: accelerate launch --config_file {file} script.py" in printed
    assert file.read_text() in printed
    assert "mixed_precision: bf16" in file.read_text()


def test_lines_that_end_too_early_write_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.yaml"
    monkeypatch.setattr("sys.stdin", io.StringIO("1\n"))
    assert main(["--config_file", str(file)]) == 1
    assert "accelerate config default" in capsys.readouterr().err
    assert not file.exists()
