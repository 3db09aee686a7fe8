"""Divide a collection among the ranks. Called by `split_between_processes` of the states and the facade.

Pure: the caller gives rank and size, and every rank holds the same collection.
"""

from collections.abc import Mapping
from typing import Any

import torch

__all__ = ["share_of", "split"]


def share_of(length: int, rank: int, size: int) -> tuple[int, int]:
    """Return the half-open range of items of `rank`; the first ranks take one more if need be."""
    base, extra = divmod(length, size)
    start = rank * base + min(rank, extra)
    return start, start + base + (rank < extra)


def split(inputs: Any, rank: int, size: int, *, apply_padding: bool = False) -> Any:
    """Return the part of `inputs` that belongs to `rank`.

    Args:
        inputs: list, tuple, tensor (along dim 0), `datasets.Dataset`, or a mapping of such, of one length.
            Anything else (a string, an object) is given to every rank whole.
        rank: this process.
        size: number of processes.
        apply_padding: repeat the last item so that every rank gets equally many.

    Returns:
        An object of the same kind; `inputs` itself is never changed.

    Raises:
        ValueError: the values of a mapping differ in length.
    """
    if size == 1:
        return inputs
    if isinstance(inputs, Mapping):
        lengths = {key: len(value) for key, value in inputs.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(
                "All values of a dictionary passed to `split_between_processes` must have the same length, "
                f"but they have {lengths}."
            )
        return {key: split(value, rank, size, apply_padding=apply_padding) for key, value in inputs.items()}
    if isinstance(inputs, (list, tuple, torch.Tensor)):
        return _slice(inputs, rank, size, apply_padding)
    if hasattr(inputs, "select") and hasattr(inputs, "column_names"):
        return inputs.select(_indices(len(inputs), rank, size, apply_padding))
    return inputs


def _slice(inputs: Any, rank: int, size: int, apply_padding: bool) -> Any:
    start, stop = share_of(len(inputs), rank, size)
    part = inputs[start:stop]
    missing = -(-len(inputs) // size) - (stop - start) if apply_padding and len(inputs) else 0
    if not missing:
        return part
    if isinstance(inputs, torch.Tensor):
        return torch.cat([part, inputs[-1:].expand(missing, *inputs.shape[1:])])
    return part + inputs[-1:] * missing


def _indices(length: int, rank: int, size: int, apply_padding: bool) -> list[int]:
    return list(_slice(list(range(length)), rank, size, apply_padding))
