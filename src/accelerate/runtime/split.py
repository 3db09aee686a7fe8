"""Divide a collection among the ranks. Called by `split_between_processes` of the states and the facade.

Pure: the caller gives rank and size, and every rank holds the same collection, so that nothing is sent.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from accelerate.errors import ConfigurationError
from accelerate.modules.nested import honor_type

__all__ = ["share_of", "split"]


def share_of(length: int, rank: int, size: int) -> tuple[int, int]:
    """Return the half-open range of items of `rank`; the first ranks take one more if need be.

    Example:
        >>> [share_of(5, rank, 2) for rank in range(2)]
        [(0, 3), (3, 5)]
    """
    base, extra = divmod(length, size)
    start = rank * base + min(rank, extra)
    return start, start + base + (rank < extra)


def split(inputs: Any, rank: int, size: int, *, apply_padding: bool = False) -> Any:
    """Return the part of `inputs` that belongs to `rank`.

    Args:
        inputs: a list, tuple or other sequence, a tensor or array (along dim 0), a `datasets.Dataset`, or
            mappings of such, nested or not, all of one length. What cannot be divided (a string, a number, an
            object) goes to every rank whole, alone and inside a mapping.
        rank: this process.
        size: number of processes.
        apply_padding: repeat the last item so that every rank gets equally many.

    Returns:
        An object of the same kind; `inputs` itself is never changed, and with one process it is returned.

    Raises:
        ConfigurationError: the parts of a mapping differ in length (a ValueError).

    Example:
        >>> [split([1, 2, 3], rank, 2) for rank in range(2)]
        [[1, 2], [3]]
        >>> split({"x": [1, 2, 3]}, 1, 2, apply_padding=True)
        {'x': [3, 3]}
    """
    if size == 1:
        return inputs
    lengths = dict(_lengths(inputs))
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{path} has {length}" for path, length in lengths.items())
        raise ConfigurationError(
            "split_between_processes(...): all values of a dictionary must have the same length, as item i "
            f"of each goes to the same process, but {told}. Split them one by one, or make them equally long."
        )
    return _part(inputs, rank, size, apply_padding)


def _lengths(inputs: Any, path: str = "inputs") -> Iterator[tuple[str, int]]:
    """Yield (where it stands, length) of everything that is to be divided."""
    if isinstance(inputs, Mapping):
        for key, value in inputs.items():
            yield from _lengths(value, f"{path}[{key!r}]")
    elif _is_divisible(inputs):
        yield path, len(inputs)


def _is_divisible(inputs: Any) -> bool:
    if isinstance(inputs, (torch.Tensor, np.ndarray)):
        return inputs.ndim > 0
    if isinstance(inputs, Sequence):
        return not isinstance(inputs, (str, bytes, bytearray))
    return _is_dataset(inputs)


def _is_dataset(inputs: Any) -> bool:
    return hasattr(inputs, "select") and hasattr(inputs, "column_names") and hasattr(inputs, "__len__")


def _part(inputs: Any, rank: int, size: int, apply_padding: bool) -> Any:
    if isinstance(inputs, Mapping):
        parts = [(key, _part(value, rank, size, apply_padding)) for key, value in inputs.items()]
        return honor_type(inputs, parts)
    if not _is_divisible(inputs):
        return inputs
    length = len(inputs)
    start, stop = share_of(length, rank, size)
    missing = -(-length // size) - (stop - start) if apply_padding and length else 0
    if _is_dataset(inputs):
        return inputs.select([*range(start, stop), *[length - 1] * missing])
    if isinstance(inputs, (torch.Tensor, np.ndarray)):
        return _padded_rows(inputs[start:stop], inputs[length - 1 :], missing)
    part = inputs[start:stop]
    return part if not missing else _items_of(part) + _items_of(inputs[length - 1 :]) * missing


def _padded_rows(rows: Any, last: Any, missing: int) -> Any:
    if not missing:
        return rows
    concatenate = torch.cat if isinstance(rows, torch.Tensor) else np.concatenate
    return concatenate([rows, *[last] * missing])


def _items_of(part: Any) -> Any:
    return part if isinstance(part, (list, tuple)) else list(part)
