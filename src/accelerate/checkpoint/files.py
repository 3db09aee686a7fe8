"""One file of a checkpoint, written whole or not at all and read without running code from it.

Home of the public `save` and `load`; called by all that writes or reads checkpoints.

`save` writes to a temporary sibling, brings it to the disk and renames it. Whoever is killed on the way
leaves the sibling (`.<name>.<digits>.partial`), never half a file under the final name, and a process that
has mapped the old file keeps it. A checkpoint is written with `write_new` into a staging folder instead.
"""

import _codecs
import contextlib
import errno
import os
import pickle
import re
import secrets
import stat
import struct
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file as read_safetensors_file
from safetensors.torch import save as safetensors_bytes

from accelerate.checkpoint import disk, tensors
from accelerate.checkpoint.shared import clean_state_dict_for_safetensors
from accelerate.checkpoint.space import explained
from accelerate.compat import env
from accelerate.errors import CheckpointError, MissingCheckpointFileError, UnsafeCheckpointError
from accelerate.modules.nested import walk
from accelerate.runtime.current import current
from accelerate.runtime.world import detect

__all__ = [
    "TORCH_SAFE_GLOBALS",
    "is_writer",
    "load",
    "read_safetensors",
    "require_file",
    "require_intact",
    "save",
    "size_of",
    "storable_tensors",
    "unsafe_names",
    "write_bytes",
    "write_file",
    "write_new",
]

FileName = str | os.PathLike[str]
SafeGlobal = Any  # a callable, or a callable with the full name that files know it by

_reconstruct: Any = np.zeros(0).__reduce__()[0]
_scalar: Any = np.float64(0).__reduce__()[0]

# The interface's list: what the random states of a checkpoint need besides tensors.
TORCH_SAFE_GLOBALS: list[Any] = [_reconstruct, np.ndarray, _codecs.encode, np.dtype, np.dtypes.UInt32DType]

_NUMERIC_DTYPES = (
    *("BoolDType", "Int8DType", "Int16DType", "Int32DType", "Int64DType"),
    *("UInt8DType", "UInt16DType", "UInt64DType", "Float16DType", "Float32DType", "Float64DType"),
    *("Complex64DType", "Complex128DType"),
)
# numpy 2 moved the two constructors; a file names the place of the numpy that wrote it.
_SAFE_GLOBALS: tuple[SafeGlobal, ...] = (
    *TORCH_SAFE_GLOBALS,
    *(getattr(np.dtypes, name) for name in _NUMERIC_DTYPES),
    *((_reconstruct, f"{package}.multiarray._reconstruct") for package in ("numpy.core", "numpy._core")),
    *((_scalar, f"{package}.multiarray.scalar") for package in ("numpy.core", "numpy._core")),
)
_safe_globals_lock = threading.RLock()

# What zipfile raises for damage depends on where the damage is.
_ZIP_DAMAGE = (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError, struct.error)

# How torch names, in the text of its error, the first thing that it refused to import.
_REFUSED = re.compile(r"GLOBAL (\S+)")


def save(
    obj: Any, f: FileName | BinaryIO, save_on_each_node: bool = False, safe_serialization: bool = False
) -> None:
    """Save an object to a file, from the main process only.

    The file appears whole or not at all, and replaces an older one of the same name. May be called on one
    rank or on all; ranks that do not write return at once. Without a run, the process counts as what the
    launcher's variables say, and as the main process when there are none.

    Args:
        obj: what to save; for safetensors a dictionary of names and tensors.
        f: path of the file, in a folder that exists, or an open binary file.
        save_on_each_node: let the main process of every machine write, for folders that are not shared.
        safe_serialization: write safetensors instead of a pickle. Of tensors that share memory, the first
            name is kept.

    Raises:
        MissingCheckpointFileError: the folder does not exist.
        TypeError: `safe_serialization` is on and a value is not a tensor.
        CheckpointWriteError: the disk is full, or the file cannot be written; it is an OSError.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save({"x": torch.ones(2)}, f"{folder}/weights.safetensors", safe_serialization=True)
        ...     read_safetensors(f"{folder}/weights.safetensors")
        {'x': tensor([1., 1.])}
    """
    if not is_writer(save_on_each_node):
        return
    if isinstance(f, (str, os.PathLike)):
        write_file(obj, f, safe_serialization=safe_serialization)
    elif safe_serialization:
        f.write(safetensors_bytes(storable_tensors(obj), metadata={"format": "pt"}))
    else:
        torch.save(obj, f)


def load(f: FileName | BinaryIO, map_location: Any = None, **kwargs: Any) -> Any:
    """Load what `save` wrote without safetensors, refusing files that would run code.

    Args:
        f: path of the file, or an open binary file.
        map_location: where tensors go, as in `torch.load`.
        kwargs: passed on to `torch.load`. `weights_only` is True unless given: tensors, containers, numbers
            and numeric numpy arrays load, and what `torch.serialization.add_safe_globals` allows.

    Raises:
        MissingCheckpointFileError: there is no such file.
        UnsafeCheckpointError: the file needs a class or function that is not known to be safe.
        CheckpointError: the file is damaged, or was not written by torch.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> torch.save({"step": 3}, file)
        >>> load(io.BytesIO(file.getvalue()))
        {'step': 3}
    """
    weights_only = kwargs.pop("weights_only", True)
    if isinstance(f, (str, os.PathLike)):
        require_file(Path(f))
    with _numpy_is_safe() if weights_only else contextlib.nullcontext():
        try:
            return torch.load(
                f, map_location=_without_cpu_index(map_location), weights_only=weights_only, **kwargs
            )
        except (MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno != errno.EINVAL:  # that is a place in no file
                raise
            # What torch.load raises for damage depends on where the damage is: RuntimeError, EOFError,
            # UnpicklingError, KeyError, UnicodeDecodeError ... Nothing is hidden: all end in an error.
            raise _reading_failed(f, error, weights_only=weights_only) from error


def write_file(obj: Any, path: FileName, *, safe_serialization: bool = False) -> None:
    """Write an object to a file in the way of `save`, whatever this process is."""
    path = Path(path)
    if _is_special(path):  # a pipe or device is written to: renaming a file over it would remove it
        with open(path, "wb") as pipe:
            save(obj, pipe, safe_serialization=safe_serialization)
        return
    _replace(
        path,
        lambda temporary: write_new(obj, temporary, safe_serialization=safe_serialization),
        lambda: size_of(obj),
    )


def write_bytes(content: bytes, path: FileName) -> None:
    """Write bytes to a file, which appears whole or not at all."""

    def write(temporary: Path) -> None:
        with disk.Writer(temporary) as writer:
            writer.write(content)

    _replace(Path(path), write, lambda: len(content))


def write_new(obj: Any, path: Path, *, safe_serialization: bool = False) -> disk.Stamp:
    """Write an object to a new file and bring it to the disk; return its size and checksum.

    Raises:
        TypeError: `safe_serialization` is on and a value cannot be stored.
        OSError: the file exists, or the disk is full.
    """
    storable = storable_tensors(obj) if safe_serialization else None
    with disk.Writer(path) as writer:
        if storable is not None:
            tensors.write(storable, writer)
        else:
            torch.save(obj, cast(BinaryIO, writer))
    return writer.stamp


def read_safetensors(path: FileName, device: str | torch.device = "cpu") -> dict[str, torch.Tensor]:
    """Read all tensors of a safetensors file onto a device.

    Raises:
        MissingCheckpointFileError: there is no such file.
        CheckpointError: the file is damaged.
    """
    require_file(Path(path))
    try:
        return read_safetensors_file(path, device=str(_without_cpu_index(device)))
    except SafetensorError as error:
        raise CheckpointError(f"{path} cannot be read: it is damaged ({_reason(error)}).") from error


def require_file(path: Path) -> None:
    """Check that a file is there.

    Raises:
        MissingCheckpointFileError: it is not; the message says what the folder holds instead.
    """
    if not path.exists():
        folder = path.parent
        if not folder.is_dir():
            found = "its folder does not exist"
        else:
            found = f"the folder holds {', '.join(sorted(os.listdir(folder))) or 'nothing'}"
        raise MissingCheckpointFileError(f"{path} does not exist: {found}.")


def require_intact(path: Path) -> None:
    """Compare the checksums that `torch.save` has written into a file with what the file holds.

    A file that does not exist, or has another format, is left to `load`.

    Raises:
        CheckpointError: it is damaged.
    """
    if not torch.serialization.get_crc32_options():
        return  # who has switched checksums off writes wrong ones
    try:
        if not zipfile.is_zipfile(path):
            return
        with zipfile.ZipFile(path) as archive:
            wrong = archive.testzip()
    except _ZIP_DAMAGE as error:
        wrong = str(error)
    except OSError as error:
        if error.errno != errno.EINVAL:  # that is a place in no file
            raise
        wrong = str(error)
    if wrong is not None:
        raise CheckpointError(f"{path} cannot be read: it is damaged (checksum of {wrong}).")


def unsafe_names(path: FileName) -> list[str]:
    """Return the classes and functions because of which `load` would refuse this file."""
    with _numpy_is_safe():
        return _unsafe_names(path)


def storable_tensors(obj: Any) -> dict[str, torch.Tensor]:
    """Return what safetensors can store of a dictionary of tensors; see `clean_state_dict_for_safetensors`.

    Raises:
        TypeError: it is no dictionary, or a value is not a tensor.
    """
    if not isinstance(obj, dict):
        raise TypeError(
            f"save(obj, safe_serialization=True): obj is a {type(obj).__name__}, and safetensors holds a "
            "dictionary of names and tensors. Pass safe_serialization=False for anything else."
        )
    wrong = {name: value for name, value in obj.items() if not isinstance(value, torch.Tensor)}
    if wrong:
        name, value = next(iter(wrong.items()))
        raise TypeError(
            f"{name!r} is a {type(value).__name__}, and safetensors holds tensors only. Pass "
            "safe_serialization=False to write a pickle, or take it out of the state dict."
        )
    return clean_state_dict_for_safetensors(obj)


def size_of(obj: Any) -> int:
    """Return about how many bytes an object takes in a file: those of its tensors, shared memory once."""
    tensors = [leaf for _, leaf in walk(obj) if isinstance(leaf, torch.Tensor)]
    dense = [tensor for tensor in tensors if tensor.layout == torch.strided and not tensor.is_meta]
    return sum({(tensor.device, tensor.data_ptr()): tensor.nbytes for tensor in dense}.values())


def is_writer(save_on_each_node: bool) -> bool:
    """Return whether this process writes the files that exist once (once a machine, if asked for)."""
    world = current.world if current.started else detect(env.snapshot())
    return world.is_local_main if save_on_each_node else world.is_main


def _replace(path: Path, write: Callable[[Path], Any], needed: Callable[[], int]) -> None:
    """Let `write` make a file beside `path` that is on the disk, and give it its name."""
    if not path.parent.is_dir():
        raise MissingCheckpointFileError(
            f"{path} cannot be written: the folder {path.parent} does not exist."
        )
    temporary = path.with_name(f".{path.name}.{secrets.randbits(64)}.partial")
    try:
        with explained(temporary, needed):
            write(temporary)
            disk.rename(temporary, path)
    except BaseException:
        disk.unlink(temporary)
        raise
    with explained(path):
        disk.sync(path.parent)


def _is_special(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextlib.contextmanager
def _numpy_is_safe() -> Iterator[None]:
    """Allow numeric numpy arrays while a file is read.

    torch forgets at the end all that was allowed for a while, also what the user had allowed before: so
    only what is not yet allowed is added. Its list is global to the process: so one thread at a time.
    """
    with _safe_globals_lock:
        allowed = torch.serialization.get_safe_globals()
        new = [item for item in _SAFE_GLOBALS if item not in allowed]
        with torch.serialization.safe_globals(new):
            yield


def _without_cpu_index(location: Any) -> Any:
    """Return a place for tensors; both formats refuse "cpu:0", as the device of a rank is called."""
    named = isinstance(location, (str, torch.device)) and torch.device(location).type == "cpu"
    return "cpu" if named else location


def _reading_failed(f: FileName | BinaryIO, error: Exception, *, weights_only: bool) -> CheckpointError:
    name = str(f) if isinstance(f, (str, os.PathLike)) else repr(f)
    unsafe = _unsafe_names(f) if weights_only else []
    named = _REFUSED.search(str(error)) if weights_only else None
    if named and not unsafe:  # a pickle outside the zip archive that torch.save writes
        unsafe = [named.group(1)]
    if unsafe:
        return UnsafeCheckpointError(
            f"{name} was not loaded: it needs {', '.join(unsafe)}, and reading it could run code. If "
            "you trust these names, allow them with `torch.serialization.add_safe_globals([...])` before "
            "loading; if you trust whoever wrote the file with everything this process may do, pass "
            '`weights_only=False` (`load_kwargs={"weights_only": False}` in `load_state`).'
        )
    return CheckpointError(
        f"{name} cannot be read: it is damaged, or was not written by torch.save "
        f"({type(error).__name__}: {_reason(error)})."
    )


def _unsafe_names(f: FileName | BinaryIO) -> list[str]:
    if not isinstance(f, (str, os.PathLike)):
        f.seek(0)
    try:
        return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(f))
    except (ValueError, RuntimeError, EOFError, LookupError, OSError, pickle.UnpicklingError):
        return []  # asked after a failure, to say more about it: this file is too damaged to tell


def _reason(error: BaseException) -> str:
    text = str(error).strip().rpartition("WeightsUnpickler error: ")[2]
    return next(iter(text.splitlines()), "no more is known")
