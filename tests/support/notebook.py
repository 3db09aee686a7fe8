"""A real Jupyter kernel for tests: cells go in, what the notebook would show comes out."""

import os
import re
import textwrap
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import nbformat
from nbclient import NotebookClient

__all__ = ["Notebook", "Shown"]

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Shown:
    """What a notebook shows below a cell.

    Attributes:
        text: standard output and error.
        error: name of the exception, or None.
        message: its text.
        traceback: all that is shown of it.
    """

    text: str
    error: str | None
    message: str
    traceback: str


class Notebook:
    """A kernel with an empty notebook, from `with` to its end."""

    def __init__(self, timeout: int = 60) -> None:
        self._document = nbformat.v4.new_notebook()
        self._client: Any = NotebookClient(
            self._document, timeout=timeout, kernel_name="python3", allow_errors=True
        )
        self._kernel: Any = None

    def __enter__(self) -> "Notebook":
        # A kernel that finds itself in a test leaves out part of what it does with its output.
        environ = {name: text for name, text in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        self._kernel = self._client.setup_kernel(env=environ)
        self._kernel.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kernel.__exit__(kind, error, trace)

    def run(self, source: str) -> Shown:
        """Run a cell and return what it shows."""
        cell = nbformat.v4.new_code_cell(textwrap.dedent(source).strip())
        self._document.cells.append(cell)
        cell = self._client.execute_cell(cell, len(self._document.cells) - 1)
        outputs = cell.outputs
        text = "".join(output.text for output in outputs if output.output_type == "stream")
        failure = next((output for output in outputs if output.output_type == "error"), None)
        if failure is None:
            return Shown(text, None, "", "")
        trace = _COLOURS.sub("", "\n".join(failure.traceback))
        return Shown(text, failure.ename, failure.evalue, trace)
