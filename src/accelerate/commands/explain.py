"""How `accelerate launch --explain` shows a launch on screen. Called by commands/launch.py."""

import shutil
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from accelerate.launching.explain import Explanation

__all__ = ["show"]

_WIDTH = 120  # characters, where standard output is no terminal


def show(explanation: Explanation, warnings: Sequence[str] = ()) -> None:
    """Print values with their sources as a table, then the command and the environment as a shell reads them.

    Defaults are dim: what somebody or something decided stands out.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
    console = Console(file=sys.stdout, width=width, highlight=False)
    if explanation.file is not None:
        print(f"Configuration file: {explanation.file}\n")
    table = Table(
        "Option", "Value", "Source", title=f"Launcher: {explanation.launcher}", title_justify="left"
    )
    for row in explanation.rows:
        style = "dim" if row.source == "default" else ""
        table.add_row(Text(row.option), Text(row.value), Text(row.source), style=style)
    console.print(table)
    print("\nCommand of each process:\n")
    print(f"  {explanation.command_line()}")
    print("\nEnvironment, on top of this shell's:\n")
    for line in explanation.environ_lines():
        print(f"  {line}")
    for warning in warnings:
        print(f"\nWarning: {warning}")
    print("\nNothing was started.")
