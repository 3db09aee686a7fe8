"""Why a notebook cannot be forked any more: the line that used a device first. Called by notebook.py."""

import sys
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path

import torch

from accelerate.devices.first_use import first_use, initialized_kind

__all__ = ["told_first_use"]

_NAMES = {"cuda": "CUDA"}
_MOST_FRAMES = 4
_TORCH = str(Path(torch.__file__).parent)
_STANDARD = sysconfig.get_paths()["stdlib"]


def told_first_use() -> str | None:
    """Return which line set an accelerator up, and the way out; None where none was set up."""
    kind = initialized_kind()
    if kind is None:
        return None
    name = _NAMES.get(kind, kind.upper())
    stack = first_use(kind)
    seen = _unseen(kind) if stack is None else "The first to use it was\n" + _lines(stack)
    return (
        f"{name} is in use in this notebook already, and a process that uses it cannot be forked. {seen}\n"
        "Do that inside of the function that is launched, restart the kernel and run the cells again"
    )


def _lines(stack: Sequence[traceback.FrameSummary]) -> str:
    """Return the user's line and those that led from it to the device, one a line."""
    frames = _of_interest(stack)
    shown = frames if len(frames) <= _MOST_FRAMES else [frames[0], *frames[1 - _MOST_FRAMES :]]
    words = [f"{_place(frame.filename)}, line {frame.lineno}: {frame.line or ''}" for frame in shown]
    return "\n".join([f"    {words[0]}", *(f"      through {text}" for text in words[1:])])


def _of_interest(stack: Sequence[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """Return the frames of the cell and of what it called, without torch and what imports modules."""
    cells = [i for i, frame in enumerate(stack) if frame.name == "run_code" and "IPython" in frame.filename]
    called = stack[cells[-1] + 1 :] if cells else stack
    kept = [frame for frame in called if not _is_machinery(frame.filename)]
    return kept or list(called[-1:])


def _is_machinery(filename: str) -> bool:
    is_library = filename.startswith(_STANDARD) and "site-packages" not in filename
    return filename.startswith((_TORCH, "<frozen importlib")) or is_library


def _place(filename: str) -> str:
    """Return a file, or the number of a cell, as the notebook shows it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    naming = getattr(getattr(shell, "compile", None), "format_code_name", None)
    named = naming(filename) if naming is not None else None
    return filename if named is None else str(named[1])


def _unseen(kind: str) -> str:
    """Return what can still be found out when nobody looked on."""
    holders = sorted(name for name, value in vars(sys.modules["__main__"]).items() if _is_on(value, kind))
    there = f" On the device are: {', '.join(holders)}." if holders else ""
    return (
        "That was before accelerate was imported, so that the line is not known; with "
        f"`from accelerate import notebook_launcher` in the first cell the next message names it.{there}"
    )


def _is_on(value: object, kind: str) -> bool:
    if isinstance(value, torch.nn.Module):
        value = next(value.parameters(), None)
    return isinstance(value, torch.Tensor) and value.device.type == kind
