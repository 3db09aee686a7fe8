"""Fill tensors up along one dim. Called by `RankGroup.pad_across_processes` and users; pure."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from accelerate.modules.nested import recursively_apply
from accelerate.runtime.flat import indices_by

__all__ = ["has_dim", "pad", "pad_input_tensors", "wrong_filling"]


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


def pad_input_tensors(tensor: Any, batch_size: int, num_processes: int, dim: int = 0) -> Any:
    """Fill a batch up with zeros until it can be divided evenly among processes, as pipelines need it.

    Nothing is sent: any process may call this alone.

    Args:
        tensor: a tensor, or nested lists, tuples and dictionaries of tensors.
        batch_size: number of samples in the batch.
        num_processes: among how many it is to be divided; each gets one sample at least.
        dim: along which the samples stand; a tensor without this dim is left as it is.

    Returns:
        Containers of the same types; what is missing to the next multiple of `num_processes` is added to
        every tensor. Where nothing is missing, a tensor is the same object. Gradients flow through.

    Raises:
        TypeError: something is not a tensor.
        ValueError: `num_processes` is less than 1.

    Example:
        >>> pad_input_tensors(torch.tensor([1, 2, 3]), batch_size=3, num_processes=2)
        tensor([1, 2, 3, 0])
    """
    if num_processes < 1:
        raise ValueError(f"`pad_input_tensors(..., {num_processes=})`: pass 1 or more.")
    missing = -batch_size % num_processes if batch_size else num_processes

    def fill(leaf: Tensor) -> Tensor:
        return pad(leaf, dim, leaf.shape[dim] + missing, 0, False) if has_dim(leaf, dim) else leaf

    return recursively_apply(fill, tensor, error_on_other_type=True)
