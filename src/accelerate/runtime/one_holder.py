"""Tell all processes of a tensor that only one of them has, and hand it to them. Called by users."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from accelerate.runtime.collectives import current_ranks

__all__ = ["TENSOR_INT_TO_DTYPE", "TENSOR_TYPE_TO_INT", "copy_tensor_to_devices", "gather_tensor_shape"]

TENSOR_TYPE_TO_INT = {
    torch.float32: 1,
    torch.float64: 2,
    torch.float16: 3,
    torch.bfloat16: 4,
    torch.uint8: 5,
    torch.int8: 6,
    torch.int16: 7,
    torch.int32: 8,
    torch.int64: 9,
    torch.bool: 10,
}
TENSOR_INT_TO_DTYPE = {number: dtype for dtype, number in TENSOR_TYPE_TO_INT.items()}


class _Held(NamedTuple):
    """What one process passed; `problem` says what is wrong with it."""

    rank: int
    shape: tuple[int, ...] = ()
    dtype: torch.dtype | None = None
    problem: str = ""


def gather_tensor_shape(tensor: Any) -> tuple[Tensor, int]:
    """Return shape and dtype of a tensor that only one process has.

    Called by every process.

    Args:
        tensor: the tensor on the process that has it, None on the others.

    Returns:
        On every process: the shape as a column of int32 on this process's device, and the dtype's number in
        `TENSOR_TYPE_TO_INT`.

    Raises:
        ValueError: no process has a tensor, or several have one; on every process.
        TypeError: something is not a tensor, or its dtype has no number; on every process.

    Example:
        >>> gather_tensor_shape(torch.ones(2, 3))[1]
        1
    """
    held = _held("gather_tensor_shape", tensor)
    if held.dtype not in TENSOR_TYPE_TO_INT:
        known = ", ".join(map(str, TENSOR_TYPE_TO_INT))
        raise TypeError(
            f"`gather_tensor_shape` was given a tensor of dtype {held.dtype} on rank {held.rank}, which has "
            f"no number; those that have one are {known}. `copy_tensor_to_devices` takes any dtype."
        )
    shape = torch.tensor(held.shape, dtype=torch.int32, device=current_ranks().device)
    return shape.view(-1, 1), TENSOR_TYPE_TO_INT[held.dtype]


def copy_tensor_to_devices(tensor: Any = None) -> Tensor:
    """Return, on every process, the tensor that only one process has; the others need not know its shape.

    Called by every process. See `broadcast` for tensors that every process has.

    Args:
        tensor: the tensor on the process that has it, None on the others.

    Returns:
        The tensor on this process's device; gradients do not flow through. On the process that has it, its
        memory is shared if it was on that device already.

    Raises:
        ValueError: no process has a tensor, or several have one; on every process.
        TypeError: something is not a dense tensor; on every process.

    Example:
        >>> copy_tensor_to_devices(torch.tensor([1, 2]))
        tensor([1, 2])
    """
    held = _held("copy_tensor_to_devices", tensor)
    ranks = current_ranks()
    if ranks.rank == held.rank:
        mine = tensor.detach().to(ranks.device)
    else:
        mine = torch.empty(held.shape, dtype=held.dtype, device=ranks.device)
    copy: Tensor = ranks.broadcast(mine, held.rank)
    return copy


def _held(name: str, tensor: Any) -> _Held:
    """Return what the one process that has a tensor has; raise on every process if there is no such one."""
    ranks = current_ranks()
    described = [] if tensor is None else [_describe(tensor, ranks.rank)]
    everything: list[_Held] = ranks.gather_object(described)
    for held in everything:
        if held.problem:
            raise TypeError(
                f"`{name}` was given {held.problem} on rank {held.rank}: pass a dense tensor on one process "
                "and None on the others."
            )
    if len(everything) != 1:
        found = f"ranks {', '.join(str(held.rank) for held in everything)}" if everything else "no rank"
        raise ValueError(
            f"`{name}` takes a tensor on one process and None on the others, but was given tensors on "
            f"{found}. Where every process has one, call `broadcast(tensor, from_process=...)`."
        )
    return everything[0]


def _describe(tensor: Any, rank: int) -> _Held:
    if not isinstance(tensor, Tensor):
        return _Held(rank, problem=f"an object of type {type(tensor).__name__}")
    if tensor.is_nested or tensor.layout != torch.strided:
        return _Held(rank, problem=f"a tensor of layout {'nested' if tensor.is_nested else tensor.layout}")
    return _Held(rank, tuple(tensor.shape), tensor.dtype)
