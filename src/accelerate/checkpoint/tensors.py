"""safetensors files, written piece by piece and read into tensors that are there. Called by files and model.

The format: 8 bytes with the length of a JSON header, the header, then the bytes of the tensors one after the
other; the header says shape, dtype and place of each. Our files are byte for byte what the safetensors
library writes; no second copy of a tensor on the CPU is made on the way.
"""

import json
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from accelerate.checkpoint.disk import Writer
from accelerate.errors import CheckpointError

__all__ = ["read_into", "write"]

_DTYPES: dict[torch.dtype, str] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.complex64: "C64",
}
# How the library orders tensors of one size: by its own list of dtypes, the last first.
_ORDER = (
    *("BOOL", "F4", "F6_E2M3", "F6_E3M2", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "I16", "U16", "F16"),
    *("BF16", "I32", "U32", "F32", "C64", "F64", "I64", "U64"),
)
_MOST_HEADER = 100_000_000  # bytes, the limit of the library


def write(tensors: Mapping[str, Tensor], writer: Writer) -> None:
    """Write contiguous tensors that share no memory.

    Raises:
        TypeError: the format has no such dtype.
    """
    odd = next(((name, t.dtype) for name, t in tensors.items() if t.dtype not in _DTYPES), None)
    if odd is not None:
        raise TypeError(
            f"{odd[0]!r} has dtype {odd[1]}, which safetensors does not have. Pass safe_serialization=False "
            "to write a pickle."
        )
    names = sorted(tensors, key=lambda name: (-_ORDER.index(_DTYPES[tensors[name].dtype]), name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in names:
        tensor = tensors[name]
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    writer.write(struct.pack("<Q", len(text)) + text)
    for name in names:
        if tensors[name].numel():
            writer.write(_bytes_of(tensors[name]))


def _bytes_of(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy()
    if sys.byteorder == "big" and tensor.element_size() > 1:
        width = tensor.element_size() // (2 if tensor.is_complex() else 1)
        flat = flat.reshape(-1, width)[:, ::-1].copy().reshape(-1)
    return flat.data


def read_into(path: Path, live: Mapping[str, Tensor]) -> bool:
    """Fill tensors with what a file holds, without a copy on the way, if names, shapes and dtypes are alike.

    Args:
        path: a safetensors file.
        live: tensors that are written into.

    Returns:
        Whether that was possible; if not, nothing has changed.

    Raises:
        CheckpointError: the file is damaged.
    """
    if sys.byteorder == "big" or not all(_is_plain(tensor) for tensor in live.values()):
        return False
    with open(path, "rb", buffering=0) as file:
        places = _places(file, path)
        if places is None or places.keys() != live.keys():
            return False
        for name, tensor in live.items():
            dtype, shape, _ = places[name]
            if dtype != _DTYPES.get(tensor.dtype) or shape != list(tensor.shape):
                return False
        for name in sorted(live, key=lambda name: places[name][2]):
            if live[name].numel():
                file.seek(places[name][2])
                _fill(file, live[name], path)
    return True


def _is_plain(tensor: Tensor) -> bool:
    return (
        type(tensor) in (Tensor, torch.nn.Parameter)
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and tensor.is_contiguous()
    )


def _places(file: Any, path: Path) -> dict[str, tuple[str, list[int], int]] | None:
    """Return dtype, shape and place of each tensor; None for a file that another reader should judge."""
    size = path.stat().st_size
    length = int.from_bytes(file.read(8), "little")
    if not 2 <= length <= min(size - 8, _MOST_HEADER):
        return None
    try:
        header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        places = {
            name: (entry["dtype"], entry["shape"], 8 + length + entry["data_offsets"][0])
            for name, entry in header.items()
        }
        ends = sorted(tuple(entry["data_offsets"]) for entry in header.values())
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    if 8 + length + max((end for _, end in ends), default=0) != size:
        return None
    return places


def _fill(file: Any, tensor: Tensor, path: Path) -> None:
    view = tensor.detach().reshape(-1).view(torch.uint8).numpy().data
    while view:
        count = file.readinto(view)
        if not count:
            raise CheckpointError(f"{path} cannot be read: it is damaged (it ends too early).")
        view = view[count:]
