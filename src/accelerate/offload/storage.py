"""The offload folder: raw tensors, one a file, and an index. Called by the loading and placing of weights.

Format: `<name>.dat` holds the bytes of a tensor in C order and `index.json` its dtype and shape. An entry may
instead point into a safetensors file that is already there. Files are replaced, never written over: an older
one may still be mapped. Reading maps a file; on the CPU no copy is made.
"""

import contextlib
import functools
import json
import os
import secrets
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from accelerate.errors import CheckpointError, MissingCheckpointFileError
from accelerate.modules.tensors import set_module_tensor_to_device

__all__ = [
    "INDEX_NAME",
    "load_offloaded_weight",
    "load_offloaded_weights",
    "offload_state_dict",
    "offload_weight",
    "read_index",
    "read_safetensors_weight",
    "save_offload_index",
]

FileName = str | os.PathLike[str]
Index = MutableMapping[str, dict[str, Any]]

INDEX_NAME = "index.json"


def offload_weight(
    weight: Tensor, weight_name: str, offload_folder: FileName, index: Index | None = None
) -> Index | None:
    """Write one tensor into an offload folder that exists, and note it in an index.

    Args:
        weight: the tensor, on any device but meta.
        weight_name: its name; the file is `<weight_name>.dat`.
        offload_folder: where the file goes.
        index: gets the entry of the tensor; it is written to the disk by `save_offload_index`.

    Returns:
        `index`.

    Raises:
        OSError: the file cannot be written; nothing is left of it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     offload_weight(torch.ones(2), "layer.bias", folder, {})
        {'layer.bias': {'dtype': 'float32', 'shape': [2]}}
    """
    flat = weight.detach().cpu().contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy().data if flat.numel() else b"\0"  # an empty file cannot be mapped
    _replace(Path(offload_folder) / f"{weight_name}.dat", data)
    if index is not None:
        index[weight_name] = {"dtype": str(weight.dtype).removeprefix("torch."), "shape": list(weight.shape)}
    return index


def _replace(path: Path, data: Any) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.randbits(64)}.partial")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise


def load_offloaded_weight(weight_file: FileName, weight_info: Mapping[str, Any]) -> Tensor:
    """Map one tensor of an offload folder; its bytes are read when they are used.

    What is written into the tensor stays in this process.

    Args:
        weight_file: the file.
        weight_info: dtype and shape, as the index has them.

    Raises:
        MissingCheckpointFileError: there is no such file.
        CheckpointError: the file is shorter than the index says.
    """
    path, shape = Path(weight_file), tuple(weight_info["shape"])
    dtype: torch.dtype = getattr(torch, weight_info["dtype"])
    if not path.is_file():
        raise MissingCheckpointFileError(
            f"No such file or directory: {path}, which holds an offloaded weight."
        )
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if path.stat().st_size < size:
        raise CheckpointError(
            f"{path} is damaged: it has {path.stat().st_size} bytes, and a tensor of dtype {dtype} and shape "
            f"{shape} has {size}."
        )
    if not size:
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(np.memmap(path, np.uint8, "c", shape=(size,))).view(dtype).reshape(shape)


def read_safetensors_weight(path: FileName, name: str, device: Any = None, dtype: Any = None) -> Tensor:
    """Return one tensor of a safetensors file, mapped where it stays on the CPU in its own dtype.

    Args:
        path: the file.
        name: of the tensor in the file.
        device: where it goes; None for the CPU.
        dtype: of the result, by name or as torch has it; None for the one of the file.

    Raises:
        MissingCheckpointFileError: there is no such file.
        CheckpointError: the file is damaged, or has no such tensor.
    """
    try:
        stamp = os.stat(path)
    except FileNotFoundError:
        raise MissingCheckpointFileError(
            f"No such file or directory: {path}, which should hold {name!r}."
        ) from None
    try:
        file = _mapped(os.fspath(path), stamp.st_mtime_ns, stamp.st_size, stamp.st_ino)
        tensor: Tensor = file.get_tensor(name)
    except SafetensorError as error:
        raise CheckpointError(f"{path} cannot be read for {name!r}: {error}") from None
    wanted = getattr(torch, dtype.removeprefix("torch.")) if isinstance(dtype, str) else dtype
    return tensor.to(device="cpu" if device is None else device, dtype=wanted)


@functools.lru_cache(maxsize=256)
def _mapped(path: str, modified: int, size: int, inode: int) -> Any:
    """Return a file opened once; what changed since, by time, size or identity, is another file."""
    return safe_open(path, framework="pt", device="cpu")


def save_offload_index(index: Mapping[str, Any] | None, offload_folder: FileName) -> None:
    """Add entries to the index of an offload folder; others that stand in it are kept.

    Args:
        index: entries by name; nothing is done when there are none.
        offload_folder: a folder that exists.
    """
    if not index:
        return
    path = Path(offload_folder) / INDEX_NAME
    content = {**(read_index(offload_folder) if path.is_file() else {}), **index}
    _replace(path, json.dumps(content, indent=2).encode())


def read_index(offload_folder: FileName) -> dict[str, dict[str, Any]]:
    """Return the index of an offload folder.

    Raises:
        MissingCheckpointFileError: there is none.
        CheckpointError: it is damaged.
    """
    path = Path(offload_folder) / INDEX_NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingCheckpointFileError(
            f"No such file or directory: {path}, the index of an offload folder."
        ) from None
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged, it is no JSON text: {error}") from None
    return cast(dict[str, dict[str, Any]], content)


def offload_state_dict(save_dir: FileName, state_dict: Mapping[str, Tensor]) -> None:
    """Write all tensors of a state dict into an offload folder, which is created.

    Args:
        save_dir: the folder.
        state_dict: names and tensors; one at a time is asked for, so that it may bring them from elsewhere.
    """
    os.makedirs(save_dir, exist_ok=True)
    index: dict[str, dict[str, Any]] = {}
    for name, tensor in _items(state_dict):
        offload_weight(tensor, name, save_dir, index)
    save_offload_index(index, save_dir)


def _items(state_dict: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    for name in state_dict:
        yield name, state_dict[name]


def load_offloaded_weights(
    model: nn.Module, index: Mapping[str, Any] | None, offload_folder: FileName
) -> None:
    """Put the weights that an index names from an offload folder into a model, on the CPU.

    Args:
        model: changed in place.
        index: entries by name; nothing is done when there are none.
        offload_folder: the folder.

    Raises:
        MissingCheckpointFileError: a file is missing.
    """
    for name, info in (index or {}).items():
        weight = load_offloaded_weight(Path(offload_folder) / f"{name}.dat", info)
        set_module_tensor_to_device(model, name, "cpu", value=weight)
