"""What Python has loaded after a statement, in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

PROBE = """
import sys
sys.path.insert(0, {folder!r})
sys.argv = {argv!r}
try:
{statements}
except SystemExit as end:
    assert not end.code, f"exit code {{end.code}}"
import json
print("\\n" + json.dumps(sorted(sys.modules)))
"""
COMMAND_LINE = "from accelerate.commands.accelerate_cli import main\nmain()"


def loaded_after(folder: Path, statements: str, argv: Iterable[str] = ("accelerate",)) -> set[str]:
    """Return the modules that the statements load, beyond what every Python process here loads.

    Args:
        folder: the folder that holds the package.
        statements: Python source.
        argv: what the process sees as its command line.
    """
    return set(_loaded(folder, statements, tuple(argv)) - _loaded(folder, "pass", ("accelerate",)))


def check_loads(loaded: set[str], forbidden: Iterable[str]) -> list[str]:
    """Return each forbidden module, or package of a forbidden name, that was loaded."""
    return [f"loads {name}" for name in forbidden if name in loaded]


def check_loads_only_standard_library(loaded: set[str], package: str = "accelerate") -> list[str]:
    """Return each loaded package that neither comes with Python nor is ours."""
    tops = {name.partition(".")[0] for name in loaded}
    return [f"loads {name}" for name in sorted(tops - set(sys.stdlib_module_names) - {package})]


@cache
def _loaded(folder: Path, statements: str, argv: tuple[str, ...]) -> frozenset[str]:
    indented = "\n".join(f"    {line}" for line in statements.splitlines())
    process = subprocess.run(
        [sys.executable, "-c", PROBE.format(folder=str(folder), argv=list(argv), statements=indented)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if process.returncode:
        raise AssertionError(f"{statements!r} failed:\n{process.stderr}")
    return frozenset(json.loads(process.stdout.splitlines()[-1]))
