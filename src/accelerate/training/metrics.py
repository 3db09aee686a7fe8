"""Cut the filled-up tail off what ranks have gathered. Called by `gather_for_metrics` on a last batch."""

from typing import Any

from accelerate.modules.nested import flatten

__all__ = ["truncate"]


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
