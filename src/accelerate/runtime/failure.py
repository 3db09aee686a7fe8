"""What a rank says: whole lines, and its uncaught exception in a file. Called at group start.

Whoever started the rank (our launcher, torchrun) names the file in the environment and reads it when the
rank has ended. Outside of such a launch nothing is installed.
"""

import contextlib
import faulthandler
import io
import json
import os
import sys
import time
import traceback
from types import TracebackType

from accelerate.compat import env

__all__ = ["ERROR_FILE_VARIABLE", "error_record", "install_excepthook", "keep_lines_whole"]

ERROR_FILE_VARIABLE = "TORCHELASTIC_ERROR_FILE"


def install_excepthook() -> None:
    """Make an uncaught exception of this process reach the launcher's error file before it is printed.

    Replaces `sys.excepthook` by one that writes and then calls the former one, and turns on Python's fault
    handler, so that a crash in native code prints a stack. Does nothing outside an elastic launch, and
    nothing the second time. Every rank calls it, once, before it joins its process group.
    """
    path = env.get(ERROR_FILE_VARIABLE)
    if not path or getattr(sys.excepthook, "writes_error_file", False):
        return
    if not faulthandler.is_enabled():
        # Standard error may be replaced by an object without a file descriptor: then there is no crash stack.
        with contextlib.suppress(AttributeError, ValueError, io.UnsupportedOperation, RuntimeError):
            faulthandler.enable()
    former = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, stack: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            _write(path, error)
        former(kind, error, stack)

    excepthook.writes_error_file = True  # type: ignore[attr-defined]
    sys.excepthook = excepthook


def keep_lines_whole() -> None:
    """Make this process write its standard output line by line, where it was unbuffered.

    Unbuffered (`python -u`, as launchers start ranks; PYTHONUNBUFFERED), one `print` is several writes, and
    the ranks of a launch mix up within a line. Does nothing where Python buffers already.
    """
    output = sys.stdout
    if isinstance(output, io.TextIOWrapper) and output.write_through:
        output.reconfigure(line_buffering=True, write_through=False)


def error_record(error: BaseException, now: float) -> dict[str, object]:
    """Return `error` in the form that torch elastic reads; `now` is in seconds since the epoch."""
    return {
        "message": {
            "message": f"{type(error).__name__}: {error}",
            "extraInfo": {
                "py_callstack": "".join(traceback.format_exception(error)),
                "timestamp": str(int(now)),
                "timestamp_ns": str(int(now * 1e9)),
            },
        }
    }


def _write(path: str, error: BaseException) -> None:
    # The launcher may end this process at any moment, and half a file would fail its reader: rename.
    draft = f"{path}.{os.getpid()}"
    try:
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(error_record(error, time.time()), file)
        os.replace(draft, path)
    except OSError:
        # The exception itself is printed in any case; only the launcher's summary loses its text.
        return
