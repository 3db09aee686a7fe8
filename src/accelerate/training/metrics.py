"""Cut the filled-up tail off what ranks have gathered. Called by `gather_for_metrics` on a last batch."""

from typing import Any

import torch

from accelerate.modules.nested import flatten, map_leaves

__all__ = ["truncate", "truncate_full"]


def truncate(gathered: Any, given: Any, remainder: int) -> Any:
    """Return what several ranks have gathered without the rows that filled up the last global batch.

    Args:
        gathered: what `gather` or `gather_object` gave, with the rows of all ranks along dim 0.
        given: what this rank gave. Where it is a 0-d tensor or a single object, the gathered one has a value
            a rank and not a row a sample, and stays whole.
        remainder: real samples in the last global batch; 0 when it is full, -1 when it is dropped or
            nobody can know.

    Example:
        >>> truncate(torch.arange(4), given=torch.arange(2), remainder=3)
        tensor([0, 1, 2])
    """
    if remainder <= 0:
        return gathered
    leaves, rebuild = flatten(given)
    if not leaves or not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return gathered[:remainder] if isinstance(given, (list, tuple)) else gathered
    rows, _ = flatten(gathered)
    return rebuild(
        tensor[:remainder] if source.dim() else tensor for tensor, source in zip(rows, leaves, strict=True)
    )


def truncate_full(data: Any, full: int | None, remainder: int) -> Any:
    """Return `data` of one process, with what has as many rows as a full batch cut to those of the last one.

    One process fills up nothing. But evaluation loops (that of transformers is one) repeat a mean over the
    batch `full` times, for an average over all samples, and count on the last repetitions being cut.

    Args:
        data: nested containers of tensors, or a list of objects.
        full: samples in a full batch; None when nobody knows.
        remainder: samples in the last batch; 0 when it is full, -1 when it is dropped or nobody can know.

    Example:
        >>> truncate_full(torch.full((4,), 0.5), full=4, remainder=3)
        tensor([0.5000, 0.5000, 0.5000])
    """
    if remainder <= 0 or full is None:
        return data
    leaves = flatten(data)[0]
    if isinstance(data, (list, tuple)) and not any(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return data[:remainder] if len(data) == full else data
    return map_leaves(lambda leaf: leaf[:remainder] if _rows(leaf) == full else leaf, data)


def _rows(leaf: Any) -> int:
    return len(leaf) if isinstance(leaf, torch.Tensor) and leaf.dim() else -1
