"""What stood in the way of a file that could not be written, and how much room there is. Loads without torch.

Called by what writes checkpoints, in this room, and by `accelerate checkpoint` for sizes in words.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from accelerate.errors import CheckpointError, CheckpointWriteError

__all__ = ["explained", "size_in_words"]

_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def explained(place: Path, needed: Callable[[], int] | None = None) -> Iterator[None]:
    """Turn the system's refusal to write into an error that says which file, what it takes and what there is.

    Args:
        place: the file or folder that is written.
        needed: called after a failure for the bytes that all of it takes.

    Raises:
        CheckpointWriteError: the system refused.
    """
    try:
        yield
    except CheckpointError:
        raise
    except OSError as error:
        what = "Writing" if error.filename is not None else f"Writing {place}"
        sentences = [f"{what} failed: {error}.", *_about_room(error, place, needed)]
        raise CheckpointWriteError(" ".join(sentences), number=error.errno, path=error.filename) from error


def _about_room(error: OSError, place: Path, needed: Callable[[], int] | None) -> Iterator[str]:
    if error.errno == errno.EFBIG:
        yield "A limit on the size of files stands in the way: see `ulimit -f`."
    if error.errno not in (*_NO_ROOM, errno.EFBIG):
        return
    # What is written of it goes away again.
    free, written = _free_bytes(place), _written_bytes(place)
    takes = [] if needed is None else [f"what this rank writes takes {size_in_words(needed())}"]
    room = [] if free is None else [f"{size_in_words(free + written)} were free on that file system"]
    if takes or room:
        text = ", and ".join(takes + room)
        yield f"{text[0].upper()}{text[1:]}."
    if error.errno == errno.EDQUOT:
        yield "A quota is used up, which may be less than what is free."


def _free_bytes(place: Path) -> int | None:
    for folder in place.parents:
        try:
            return shutil.disk_usage(folder).free
        except OSError:  # it was removed meanwhile: those above it are on the same file system, as a rule
            continue
    return None


def _written_bytes(place: Path) -> int:
    paths = [Path(folder) / name for folder, _, names in os.walk(place) for name in names]
    total = 0
    for path in paths or [place]:
        try:
            total += path.lstat().st_size
        except OSError:  # gone, and takes no room
            continue
    return total


def size_in_words(size: float) -> str:
    """Return a number of bytes in three digits or so, such as "1.2 GB".

    Example:
        >>> size_in_words(999), size_in_words(123_456_789)
        ('999 B', '123 MB')
    """
    for unit in _SIZES[:-1]:
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 99.95 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} {_SIZES[-1]}"
