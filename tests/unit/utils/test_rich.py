"""Importing accelerate.utils.rich switches coloured tracebacks on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[3] / "src"


def fail_with(import_line: str, flag: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "ACCELERATE_ENABLE_RICH": flag}
    program = f"{import_line}\nsecret = 'hidden'\n1 / 0\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
    )
    assert done.returncode == 1
    return done.stderr


@pytest.mark.parametrize("line", ["import accelerate.utils.rich", "from accelerate.utils import rich"])
def test_tracebacks_are_in_boxes_and_show_no_values(line: str) -> None:
    text = fail_with(line, "1")
    assert "Traceback (most recent call last) \u2500" in text
    assert "ZeroDivisionError: division by zero" in text
    assert "hidden" not in text.replace("secret = 'hidden'", "")


def test_without_the_flag_the_import_says_how_to_ask() -> None:
    text = fail_with("import accelerate.utils.rich", "0")
    assert (
        "ModuleNotFoundError: accelerate.utils.rich needs the package rich and ACCELERATE_ENABLE_RICH=1"
        in text
    )
