"""Which line of a notebook used an accelerator first. Asked for by runtime/current.py, told by notebook.py.

Processes cannot be forked once the driver of an accelerator is in use, and the line that used it may be deep
in a library that a cell imports. torch sets a device up when it is first used, and makes then the calls that
were queued for that moment: a queued call that looks at the stack sees the line.
"""

import sys
import traceback
from types import ModuleType
from typing import Any

import torch

__all__ = ["first_use", "initialized_kind", "record_first_use"]

# Kinds whose module in torch sets the device up on first use.
_KINDS = ("cuda", "xpu", "mlu", "musa", "npu", "sdaa")

_stacks: dict[str, list[traceback.FrameSummary]] = {}
_watched: set[str] = set()


def record_first_use(*, always: bool = False) -> None:
    """Have the line noted that sets an accelerator up. Costs nothing until then; once is enough.

    Args:
        always: also where nobody types: only interactive sessions fork from a process with a history.
    """
    if not always and not _is_interactive():
        return
    for kind in _KINDS:
        module: Any = getattr(torch, kind, None)
        queue = getattr(module, "_lazy_call", None)
        if queue is None or kind in _watched or module.is_initialized():
            continue
        _watched.add(kind)
        queue(lambda kind=kind: _note(kind))


def first_use(kind: str) -> list[traceback.FrameSummary] | None:
    """Return the stack, outermost frame first, at the first use of a kind; None where it was not seen."""
    return _stacks.get(kind)


def initialized_kind() -> str | None:
    """Return the kind of accelerator that this process has set up, by torch's name; None for none."""
    for kind in _KINDS:
        module: ModuleType | None = getattr(torch, kind, None)
        if module is not None and hasattr(module, "is_initialized") and module.is_initialized():
            return kind
    return None


def _is_interactive() -> bool:
    return hasattr(sys, "ps1") or "IPython" in sys.modules


def _note(kind: str) -> None:
    # The last two frames are this function and the one that is queued.
    _stacks.setdefault(kind, list(traceback.extract_stack()[:-2]))
