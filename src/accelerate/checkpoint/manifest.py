"""The manifest: which files a checkpoint consists of, and whether they are whole. Loads without torch.

Written last by checkpoint/commit.py; read by what loads a checkpoint and by `accelerate checkpoint`. A folder
with a manifest whose files are all as it says is whole. A folder without one is a legacy one: it was written
by another version, and nothing tells whether it is whole.
"""

import functools
import json
import os
import platform
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath
from typing import Any

from accelerate.checkpoint import disk
from accelerate.checkpoint.disk import Stamp
from accelerate.errors import CheckpointError

__all__ = ["MANIFEST", "Manifest", "empty_folders_in", "files_in", "problems", "read", "share", "versions"]

MANIFEST = "accelerate_manifest.json"
FORMAT = 1
_CRC32 = re.compile(r"[0-9a-f]{8}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a checkpoint is.

    Attributes:
        generation: a name that no other save has; the same in all folders of one save.
        step: the Accelerator's counter.
        world_size: number of ranks that saved.
        rank: who wrote the manifest; differs where every machine has a folder of its own.
        created: when, in seconds since 1970.
        versions: of what wrote it.
        files: path inside the folder, with "/" -> size and checksum.
    """

    generation: str
    step: int
    world_size: int
    rank: int
    created: float
    versions: Mapping[str, str]
    files: Mapping[str, Stamp]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files.values())

    def encode(self) -> bytes:
        """Return the text of the file, which has a checksum of its own."""
        content = {"format": FORMAT, **asdict(self)}
        content["files"] = {
            name: {"size": file.size, "crc32": f"{file.crc32:08x}"}
            for name, file in sorted(self.files.items())
        }
        content["crc32"] = _crc32_of(content)
        return (json.dumps(content, indent=1) + "\n").encode()


def read(folder: Path) -> Manifest | None:
    """Return the manifest of a checkpoint; None for a legacy folder.

    Raises:
        CheckpointError: there is one, but it is damaged, or of a later version.
    """
    path = folder / MANIFEST
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        content = json.loads(text)
        claimed = content.pop("crc32")
    except (ValueError, AttributeError, LookupError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: it is no manifest ({error}).") from error
    if claimed != _crc32_of(content):
        raise CheckpointError(f"{path} is damaged: its content does not have its checksum.")
    if content.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has format {content.get('format')!r}, and this version reads {FORMAT}: load the "
            "checkpoint with the version that wrote it, or a later one."
        )
    try:
        return _manifest(content)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged: {error}.") from error


def _manifest(content: Mapping[str, Any]) -> Manifest:
    for name, file in content["files"].items():
        parts = PurePosixPath(name).parts
        if not parts or PurePosixPath(name).is_absolute() or ".." in parts or "\\" in name:
            raise ValueError(f"{name!r} is no name of a file inside the folder")
        if not _CRC32.fullmatch(file["crc32"]):
            raise ValueError(f"{name!r} has no checksum")
    return Manifest(
        generation=str(content["generation"]),
        step=int(content["step"]),
        world_size=int(content["world_size"]),
        rank=int(content["rank"]),
        created=float(content["created"]),
        versions=dict(content["versions"]),
        files={
            name: Stamp(size=int(file["size"]), crc32=int(file["crc32"], 16))
            for name, file in content["files"].items()
        },
    )


def _crc32_of(content: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(content, sort_keys=True).encode()):08x}"


def problems(folder: Path, files: Mapping[str, Stamp], *, contents: bool = True) -> Iterator[str]:
    """Check files, and give a sentence for each that is not as the manifest says.

    Args:
        folder: of the checkpoint.
        files: those to check.
        contents: read them; otherwise only the sizes are compared.
    """
    for name, expected in files.items():
        path = folder / name
        try:
            size = path.stat().st_size
            if size == expected.size and contents:
                found = disk.stamp(path)
            else:
                found = Stamp(size=size, crc32=expected.crc32)
        except FileNotFoundError:
            yield f"{path} is missing"
        except OSError as error:
            yield f"{path} cannot be read ({error})"
        else:
            if found.size != expected.size:
                yield f"{path} has {found.size} bytes instead of {expected.size}: it is damaged"
            elif found != expected:
                yield f"{path} is damaged: its content does not have its checksum"


def share(files: Mapping[str, Stamp], index: int, num_shares: int) -> dict[str, Stamp]:
    """Return those files that one of several readers checks, so that each has about as many bytes.

    Args:
        files: all files.
        index: of the reader, 0 <= index < num_shares.
        num_shares: number of readers.
    """
    loads = [0] * num_shares  # bytes
    mine = {}
    for name, file in sorted(files.items(), key=lambda item: (-item[1].size, item[0])):
        lightest = loads.index(min(loads))
        loads[lightest] += file.size
        if lightest == index:
            mine[name] = file
    return mine


def files_in(folder: Path, *, without: Iterable[str] = ()) -> list[str]:
    """Return the files in a folder and the folders in it, as a manifest names them; links are not followed.

    Args:
        folder: where to look.
        without: names directly inside it to leave out.
    """
    left_out = set(without)
    found = []
    for place, folders, files in os.walk(folder):
        inside = Path(place).relative_to(folder)
        if inside == Path():
            folders[:] = [name for name in folders if name not in left_out]
            files = [name for name in files if name not in left_out]
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        found += [(inside / name).as_posix() for name in (*files, *links)]
    return sorted(found)


def empty_folders_in(folder: Path, *, without: Iterable[str] = ()) -> list[str]:
    """Return the folders in a folder that hold nothing; `without` as for `files_in`."""
    found = [
        Path(place).relative_to(folder)
        for place, folders, files in os.walk(folder)
        if not folders and not files and Path(place) != folder
    ]
    return sorted(name.as_posix() for name in found if name.parts[0] not in set(without))


@functools.cache  # looking into the metadata of packages takes longer than a small save
def versions() -> Mapping[str, str]:
    """Return the versions of what writes a checkpoint."""
    found = {"python": platform.python_version()}
    for name in ("accelerate", "torch", "numpy", "safetensors"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
