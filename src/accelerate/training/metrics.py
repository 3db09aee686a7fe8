"""Cut the filled-up tail off what ranks have gathered. Called by `gather_for_metrics` on a last batch."""

from typing import Any

import torch

from accelerate.modules.nested import flatten, map_leaves

__all__ = ["truncate", "truncate_full"]


def truncate(gathered: Any, inputs: Any, remainder: int) -> Any:
    """Return the first `remainder` rows of every gathered tensor.

    Args:
        gathered: nested containers of tensors, with the rows of all ranks along dim 0.
        inputs: what this rank gave, nested alike; where it holds a 0-d tensor, the gathered one has a value
            a rank and not a row a sample, and stays whole.
        remainder: number of real samples in the last global batch.
    """
    rows, rebuild = flatten(gathered)
    given, _ = flatten(inputs)
    return rebuild(
        tensor[:remainder] if source.dim() else tensor for tensor, source in zip(rows, given, strict=True)
    )


def truncate_full(data: Any, full: int | None, remainder: int) -> Any:
    """Return `data` of one process, with what has as many rows as a full batch cut to those of the last one.

    One process fills up nothing. But evaluation loops (that of transformers is one) repeat a mean over the
    batch `full` times, for an average over all samples, and count on the last repetitions being cut.

    Args:
        data: nested containers of tensors, or a list of objects.
        full: samples in a full batch; None when nobody knows.
        remainder: samples in the last batch.
    """
    leaves = flatten(data)[0]
    if isinstance(data, (list, tuple)) and not any(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return data[:remainder] if len(data) == full else data
    return map_leaves(lambda leaf: leaf[:remainder] if _rows(leaf) == full else leaf, data)


def _rows(leaf: Any) -> int:
    return len(leaf) if isinstance(leaf, torch.Tensor) and leaf.dim() else -1
