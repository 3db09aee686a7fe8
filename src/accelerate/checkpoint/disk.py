"""The file layer: every change that checkpoints make on a file system, one system call a function.

Called by checkpoint/files.py and checkpoint/commit.py. Loads without torch.

Each call is told to the observers before it is made: a test counts the calls, traces them, lets one fail or
kills the process there. Nothing else in this package changes a checkpoint.
"""

import contextlib
import ctypes
import errno
import functools
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

__all__ = [
    "NO_LINK",
    "Stamp",
    "Writer",
    "can_exchange",
    "change_mode",
    "exchange",
    "link",
    "make_folder",
    "make_folders",
    "observed",
    "remove_folder",
    "remove_tree",
    "rename",
    "stamp",
    "symlink",
    "sync",
    "unlink",
]

Observer = Callable[..., None]

BUFFER = 1 << 20  # bytes that small writes are gathered into
BLOCK = 1 << 18  # bytes read at once, few enough to be still in the cache when they are summed up
_OVERLAP = 1 << 18  # bytes from which a second thread pays for itself
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of <fcntl.h> and <linux/fs.h>
# What a file system says that has no exchange, no hard links, or no way to flush a folder.
_CANNOT = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
NO_LINK = (*_CANNOT, errno.EPERM, errno.EXDEV, errno.EMLINK, errno.EACCES)

_observers: list[Observer] = []


@contextlib.contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Call `observer(operation, *paths)` before every change that this process makes inside the block."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def _tell(operation: str, *paths: Path) -> None:
    for observer in _observers:
        observer(operation, *paths)


@contextlib.contextmanager
def _about(path: Path) -> Iterator[None]:
    """Have an error name the file, which calls that take a descriptor do not know."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


@dataclass(frozen=True, kw_only=True)
class Stamp:
    """What tells whether a file is the one that was written."""

    size: int  # bytes
    crc32: int


class Writer:
    """A new file that is summed up while it is written. What is written is on the disk after `close`.

    Args:
        path: the file; it must not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _tell("create", path)
        self._descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666
        )
        self._pending = bytearray()
        self._size = 0
        self._crc32 = 0
        self._summing = ThreadPoolExecutor(1, "accelerate-crc32")
        self._failure: OSError | None = None

    def __enter__(self) -> "Writer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        self._release()
        # torch.save goes on after a failure and says that the end is not where it should be.
        if self._failure is not None and error is not self._failure:
            raise self._failure from None

    def write(self, data: Any) -> int:
        """Append bytes; any object with a contiguous buffer will do."""
        view = memoryview(data).cast("B")
        if len(self._pending) + len(view) < BUFFER:
            self._pending += view
        else:
            self.flush()
            self._write(view)
        return len(view)

    def flush(self) -> None:
        """Hand what was gathered to the system."""
        if self._pending:
            pending, self._pending = self._pending, bytearray()
            self._write(memoryview(pending))

    def close(self) -> None:
        """Bring the file to the disk and close it."""
        try:
            self.flush()
            _tell("sync", self.path)
            with _about(self.path):
                os.fsync(self._descriptor)
        finally:
            self._release()

    @property
    def stamp(self) -> Stamp:
        """Size and checksum of what was handed to the system so far; of the whole file once it is closed."""
        return Stamp(size=self._size, crc32=self._crc32)

    def _write(self, view: memoryview) -> None:
        if self._failure is not None:
            raise self._failure
        # The sum is made while the system copies; both let go of the interpreter.
        overlaps = len(view) >= _OVERLAP
        total = self._summing.submit(zlib.crc32, view, self._crc32) if overlaps else None
        try:
            _tell("write", self.path)
            rest = view
            with _about(self.path):
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            self._failure = error
            raise
        finally:
            crc32 = zlib.crc32(view, self._crc32) if total is None else total.result()
        self._crc32, self._size = crc32, self._size + len(view)

    def _release(self) -> None:
        self._summing.shutdown()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def stamp(path: Path) -> Stamp:
    """Read a file and return its size and checksum."""
    buffer = memoryview(bytearray(BLOCK))
    size = crc32 = 0
    with _about(path), open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            crc32 = zlib.crc32(buffer[:count], crc32)
            size += count
    return Stamp(size=size, crc32=crc32)


# ---- one change each ---------------------------------------------------------------------------------------


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows opens no folders; its renames are written through
    _tell("sync", path)
    is_folder = path.is_dir()
    descriptor = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    try:
        with _about(path):
            os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot flush a folder; they have no cache of names to lose.
        if not (is_folder and error.errno in _CANNOT):
            raise
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder whose parent exists."""
    _tell("mkdir", path)
    path.mkdir()


def make_folders(path: Path, *, lasting: bool = True) -> None:
    """Make a folder and those above it that are missing.

    Args:
        path: the folder.
        lasting: bring each new name to the disk.
    """
    missing = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        make_folder(folder)
        if lasting:
            sync(folder.parent)


def change_mode(path: Path, mode: int) -> None:
    """Set the permissions of a file or folder."""
    _tell("chmod", path)
    os.chmod(path, mode)


def rename(source: Path, target: Path) -> None:
    """Give a file or folder another name, in place of a file or an empty folder that has it."""
    _tell("rename", source, target)
    os.replace(source, target)


def exchange(one: Path, other: Path) -> None:
    """Let two folders of one file system change names, at once.

    Raises:
        OSError: the kernel or the file system cannot; see `can_exchange`.
    """
    _tell("exchange", one, other)
    renameat2 = _renameat2()
    if renameat2 is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one), None, str(other))


def can_exchange(error: OSError | None = None) -> bool:
    """Return whether the system has an exchange; with an error, whether that says anything else than no."""
    return _renameat2() is not None and (error is None or error.errno not in _CANNOT)


@functools.cache
def _renameat2() -> Any:
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # another system, or a C library older than the call
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return function


def link(source: Path, target: Path) -> None:
    """Give a file a second name."""
    _tell("link", source, target)
    os.link(source, target, follow_symlinks=False)


def symlink(text: str, path: Path) -> None:
    """Make a symbolic link that says `text`."""
    _tell("symlink", path)
    os.symlink(text, path)


def unlink(path: Path) -> None:
    """Remove a name of a file; fine if it is gone."""
    _tell("unlink", path)
    path.unlink(missing_ok=True)


def remove_folder(path: Path) -> None:
    """Remove an empty folder; fine if it is gone."""
    _tell("rmdir", path)
    with contextlib.suppress(FileNotFoundError):
        path.rmdir()


def remove_tree(path: Path, *, last: str = "") -> None:
    """Remove a folder with all in it, or a file; symbolic links are not followed. Fine if it is gone.

    Args:
        path: what to remove.
        last: name of a file in the folder that goes after all others.
    """
    try:
        is_folder = stat.S_ISDIR(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if not is_folder:
        unlink(path)
        return
    names: list[str] = []
    with contextlib.suppress(FileNotFoundError):  # somebody else removes it, too
        names = os.listdir(path)
    for name in sorted(names, key=lambda name: (name == last, name)):
        remove_tree(path / name)
    remove_folder(path)
