"""Which process works in a folder, so that two saves into one place do not mix. Called by commit.

[Note: claims]
Whoever makes a staging folder claims it: it holds a lock on the folder (`flock`) while it has it open, under
whatever name, and a process that dies lets go. A folder that nobody holds was left behind. Where a file
system has no such locks (some network ones, and Windows), a claim still tells whether the folder was removed
or replaced meanwhile. Loads without torch.
"""

import contextlib
import errno
import os
import time
from pathlib import Path

from accelerate.errors import CheckpointError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["Claim", "busy", "wait_for"]

PATIENCE = 60.0  # seconds that the publishing of another process may take
_POLL = 0.05  # seconds


class Claim:
    """A folder that this process works in, until it is released."""

    _descriptor = -1

    def __init__(self, folder: Path) -> None:
        """Claim a folder that exists.

        Raises:
            CheckpointError: another process works in it.
            FileNotFoundError: another process has removed it.
        """
        if fcntl is None:
            return
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                self.release()
                raise busy(folder) from None
            # Else the file system has no locks.
        if not self.holds(folder):  # who held it has removed or renamed it, and there may be another one
            self.release()
            raise busy(folder)

    def holds(self, path: Path) -> bool:
        """Return whether the folder that was claimed is there under this path."""
        if self._descriptor < 0:
            return True
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(path))
        except OSError:  # nothing has that path, or the file system has forgotten the folder
            return False

    def __del__(self) -> None:
        self.release()

    def release(self) -> None:
        """Let others have the folder."""
        if self._descriptor >= 0:
            # A child process that was forked meanwhile has the descriptor, too: closing would not be enough.
            with contextlib.suppress(OSError):  # where there was no lock
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = -1


def busy(folder: Path) -> CheckpointError:
    """Return the error for a folder that another process works in."""
    return CheckpointError(
        f"Another process works in {folder}: it saves into the same place. Let each run have a folder of its "
        "own; if the other one has ended, save again."
    )


def wait_for(folder: Path) -> "Claim | None":
    """Claim a folder once the process that works in it has let go; None if the folder is gone then.

    Raises:
        CheckpointError: it still works there.
    """
    ends = time.monotonic() + PATIENCE
    while True:
        try:
            return Claim(folder)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except CheckpointError:
            if time.monotonic() > ends:
                raise
        time.sleep(_POLL)
