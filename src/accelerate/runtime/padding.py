"""Fill tensors up along one dim. Called by `RankGroup.pad_across_processes`; pure."""

from collections.abc import Sequence

import torch
from torch import Tensor

from accelerate.runtime.flat import indices_by

__all__ = ["has_dim", "pad", "wrong_filling"]


def has_dim(leaf: Tensor, dim: int) -> bool:
    """Return whether a tensor can be padded along a dim."""
    return not leaf.is_nested and -leaf.ndim <= dim < leaf.ndim


def wrong_filling(pad_index: float, leaves: Sequence[Tensor]) -> Exception | None:
    """Return what is to be raised where the dtype of a tensor cannot hold the filling."""
    for dtype in indices_by(lambda leaf: leaf.dtype, leaves):
        takes_fractions = dtype.is_floating_point or dtype.is_complex or dtype == torch.bool
        try:
            torch.full((2,), pad_index, dtype=dtype)  # with one element torch does not look
            fits = takes_fractions or float(pad_index).is_integer()
        except RuntimeError:  # torch's word for a number that overflows
            fits = False
        if not fits:
            return ValueError(
                f"`pad_across_processes(..., {pad_index=})`: tensors of dtype {dtype} cannot hold it."
            )
    return None


def pad(leaf: Tensor, dim: int, size: int, pad_index: float, pad_first: bool) -> Tensor:
    """Return a tensor with `size` along a dim, filled up where it is shorter."""
    if not has_dim(leaf, dim) or leaf.shape[dim] == size:
        return leaf
    shape = list(leaf.shape)
    shape[dim] = size
    padded = leaf.new_full(shape, pad_index)
    padded.narrow(dim, size - leaf.shape[dim] if pad_first else 0, leaf.shape[dim]).copy_(leaf)
    return padded
