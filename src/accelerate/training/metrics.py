"""Cut the filled-up tail off what ranks have gathered. Called by `gather_for_metrics` on a last batch."""

from typing import Any

import torch

from accelerate.modules.nested import recursively_apply

__all__ = ["truncate"]


def truncate(gathered: Any, inputs: Any, remainder: int) -> Any:
    """Return the first `remainder` rows of every gathered tensor.

    Args:
        gathered: nested containers of tensors (rows of all ranks along dim 0), or a list of objects.
        inputs: what this rank gave; where it holds 0-d tensors they are one value a rank and not rows.
        remainder: number of real samples in the last global batch.
    """
    if isinstance(inputs, torch.Tensor) and inputs.dim() == 0:
        return gathered

    def rows(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[:remainder] if tensor.dim() else tensor

    if isinstance(gathered, list) and not any(isinstance(item, torch.Tensor) for item in gathered):
        return gathered[:remainder]
    return recursively_apply(rows, gathered)
