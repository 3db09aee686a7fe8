"""Cut the filled-up tail off what ranks have gathered. Called by `gather_for_metrics` on a last batch."""

from typing import Any

import torch

from accelerate.modules.nested import flatten, map_leaves
from accelerate.runtime import collectives

__all__ = ["gather_real_rows", "truncate", "truncate_full"]


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


def gather_real_rows(data: Any, real_rows: int, as_objects: bool) -> Any:
    """Gather over all ranks as many rows of each rank as count there, in the order of ranks.

    Every rank calls it, also those where none counts. What has no rows (a 0-d tensor, a single object) is
    gathered as it is.

    Args:
        data: of this rank.
        real_rows: how many rows of it count, from the first on.
        as_objects: gather as objects.
    """
    if as_objects:
        return collectives.gather_object(data[:real_rows] if isinstance(data, (list, tuple)) else data)
    leaves, rebuild = flatten(map_leaves(lambda leaf: leaf[:real_rows] if leaf.dim() else leaf, data))
    counts = torch.tensor([[len(leaf) if leaf.dim() else 1 for leaf in leaves]])
    counts_of_ranks = collectives.gather(counts.to(leaves[0].device)).T.tolist()
    padded = collectives.gather(collectives.pad_across_processes(leaves))
    return rebuild(
        torch.cat([part[:count] for part, count in zip(each.chunk(len(counts)), counts, strict=True)])
        if any(counts) and leaf.dim()
        else each
        for each, leaf, counts in zip(padded, leaves, counts_of_ranks, strict=True)
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
