"""A group of ranks and what it does together. Called by the public collectives and rooms that have a group.

All tensors of a call travel together: a gather or broadcast is one collective a device, a reduce one a device
and dtype, however many tensors there are ([Note: two packings] in flat.py). A group of one sends nothing.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from accelerate.modules.nested import describe, flatten, walk
from accelerate.runtime.flat import (
    REDUCTIONS,
    MovePlan,
    arithmetic,
    concatenate_flat,
    indices_by,
    split_flat,
)

__all__ = ["CannotPadNestedTensorWarning", "RankGroup"]

# torch 2.13 renamed it and warns at each call of the old name.
_ALL_GATHER = "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"

Result = TypeVar("Result")
Rebuild = Callable[[Iterable[Any]], Any]


class CannotPadNestedTensorWarning(UserWarning):
    """A tensor of `torch.nested` has rows of several lengths and was left as it is."""


class RankGroup:
    """Some ranks, this process among them. Every rank calls each method, in one order, with alike arguments.

    Args:
        size: number of ranks.
        rank: this process's place in the group.
        device: of this rank; the group's backend can reach it.
        group: the process group; the default one when None.
    """

    def __init__(
        self, *, size: int, rank: int, device: torch.device, group: dist.ProcessGroup | None = None
    ) -> None:
        self.size = size
        self.rank = rank
        self.device = device
        self.group = group

    def gather(self, data: Any) -> Any:
        """Return `data` with every tensor's rows of all ranks, in rank order; see the function `gather`."""
        if self.size == 1:
            return data
        leaves, rebuild = self._tensors("gather", data)
        return rebuild(self._collective("gather", leaves, self._gather, leaves))

    def reduce(self, data: Any, reduction: str = "mean") -> Any:
        """Return `data` with every tensor reduced over all ranks; see the function `reduce`."""
        if reduction not in REDUCTIONS:
            raise ValueError(f"`reduce(..., {reduction=})`: the reduction is one of {', '.join(REDUCTIONS)}.")
        leaves, rebuild = self._tensors("reduce", data)
        if self.size == 1:
            return rebuild([leaf.clone() for leaf in leaves])
        return rebuild(self._collective(f"reduce {reduction}", leaves, self._reduce, leaves, reduction))

    def broadcast(self, data: Any, from_process: int = 0) -> Any:
        """Fill every tensor in `data` with that of one rank; see the function `broadcast`."""
        if self.size == 1:
            return data
        self._check_source("broadcast", from_process)
        leaves, rebuild = self._tensors("broadcast", data)
        self._collective(f"broadcast from {from_process}", leaves, self._broadcast, leaves, from_process)
        return rebuild(leaves)

    def pad_across_processes(
        self, data: Any, dim: int = 0, pad_index: float = 0, pad_first: bool = False
    ) -> Any:
        """Return `data` with every tensor as long as the longest; see the function `pad_across_processes`."""
        leaves, rebuild = self._tensors("pad_across_processes", data, nested=True)
        if any(leaf.is_nested for leaf in leaves):
            warnings.warn(
                "`pad_across_processes` leaves nested tensors as they are: make them dense with "
                "`.to_padded_tensor(padding)` to have them padded.",
                CannotPadNestedTensorWarning,
                stacklevel=3,
            )
        if self.size == 1 or not leaves:
            return data if self.size == 1 else rebuild(leaves)
        for dtype in indices_by(lambda leaf: leaf.dtype, leaves):
            _check_pad_index(pad_index, dtype)
        sizes = [leaf.shape[dim] if _has_dim(leaf, dim) else 0 for leaf in leaves]
        sizes = self._collective(f"pad along {dim}", leaves, self._largest, sizes)
        return rebuild(
            [_pad(leaf, dim, size, pad_index, pad_first) for leaf, size in zip(leaves, sizes, strict=True)]
        )

    def gather_object(self, data: Any) -> Any:
        """Return the objects of all ranks; see the function `gather_object`."""
        if self.size == 1:
            return data
        objects: list[Any] = [None] * self.size
        self._collective("gather_object", (), dist.all_gather_object, objects, data, self.group)
        if all(type(each) in (list, tuple) for each in objects):
            return [item for each in objects for item in each]
        return objects

    def broadcast_object_list(self, object_list: list[Any], from_process: int = 0) -> list[Any]:
        """Replace the items of a list by those of one rank; see the function `broadcast_object_list`."""
        if self.size == 1:
            return object_list
        self._check_source("broadcast_object_list", from_process)
        if not isinstance(object_list, list):
            raise TypeError(
                f"`broadcast_object_list` was given {describe('', object_list)} on rank {self.rank}, "
                "but fills in a list: pass a list."
            )
        # Travelling as one object, the list may differ in length between ranks.
        parcel = [list(object_list)]
        self._collective(
            f"broadcast_object_list from {from_process}", (), self._broadcast_objects, parcel, from_process
        )
        if self.rank != from_process:
            object_list[:] = parcel[0]
        return object_list

    def _collective(
        self, name: str, leaves: Sequence[Tensor], call: Callable[..., Result], *args: Any
    ) -> Result:
        """Run `call(*args)`, the whole exchange of one operation.

        Every operation passes here before it sends anything: the one place where ranks can compare what each
        is about to do.

        Args:
            name: the operation with the arguments that must be alike on all ranks.
            leaves: the tensors of this rank; empty for objects.
            call: sends and receives.
            args: of `call`.
        """
        return call(*args)

    def _tensors(self, name: str, data: Any, *, nested: bool = False) -> tuple[list[Tensor], Rebuild]:
        leaves, rebuild = flatten(data)
        for index, leaf in enumerate(leaves):
            if _is_dense(leaf):
                continue
            if isinstance(leaf, Tensor) and (self.size == 1 or (nested and leaf.is_nested)):
                continue
            where = describe(list(walk(data))[index][0], leaf)
            if isinstance(leaf, Tensor):
                raise TypeError(f"`{name}` was given {where} on rank {self.rank}; it is {_obstacle(leaf)}.")
            raise TypeError(
                f"`{name}` was given {where} on rank {self.rank}, but takes only tensors, in nested lists, "
                "tuples and dictionaries. Use `gather_object` or `broadcast_object_list` for other objects."
            )
        return leaves, rebuild

    def _check_source(self, name: str, from_process: int) -> None:
        if not 0 <= from_process < self.size:
            raise ValueError(
                f"`{name}(..., {from_process=})`: there are {self.size} processes, 0 to {self.size - 1}."
            )

    def _reachable(self, device: torch.device) -> torch.device:
        """Return `device` if the backend can send from it, else this rank's device."""
        if device.type == self.device.type:
            return device
        backends = dist.get_backend_config(self.group)  # such as "cpu:gloo,cuda:nccl"
        return (
            device if device.type in {each.partition(":")[0] for each in backends.split(",")} else self.device
        )

    def _gather(self, leaves: Sequence[Tensor]) -> list[Tensor]:
        results = list(leaves)
        with torch.no_grad():
            for device, indices in indices_by(lambda leaf: leaf.device, leaves).items():
                bucket = [leaves[index] for index in indices]
                plan = MovePlan.of(bucket)
                row = plan.pack(bucket).to(self._reachable(device))
                rows = row.new_empty(self.size * plan.row_bytes)
                getattr(dist, _ALL_GATHER)(rows, row, group=self.group)
                parts = plan.unpack(rows.to(device).view(self.size, plan.row_bytes))
                for index, leaf, part in zip(indices, bucket, parts, strict=True):
                    if len(bucket) > 1:  # a view would keep the rows of all leaves alive
                        part = part.clone(memory_format=torch.contiguous_format)
                    results[index] = part.view(_gathered_shape(leaf.shape, self.size))
        return results

    def _reduce(self, leaves: Sequence[Tensor], reduction: str) -> list[Tensor]:
        results = list(leaves)
        buckets = indices_by(lambda leaf: (leaf.dtype, leaf.device), leaves)
        # All before anything is sent: a dtype that cannot be reduced must not leave peers waiting.
        plans = {dtype: arithmetic(dtype, reduction) for dtype, _ in buckets}
        for (dtype, device), indices in buckets.items():
            bucket = [leaves[index] for index in indices]
            with torch.no_grad():
                flat = concatenate_flat(bucket).resolve_conj().resolve_neg()
                if len(bucket) == 1:
                    flat = flat.clone()  # may be the caller's own memory
                buffer = plans[dtype].encode(flat).to(self._reachable(device))
                dist.all_reduce(buffer, op=plans[dtype].operation, group=self.group)
                if reduction == "mean":
                    buffer.div_(self.size)
                flat = plans[dtype].decode(buffer.to(device))
                reduced = split_flat(flat, [leaf.shape for leaf in bucket])
            for index, leaf, value in zip(indices, bucket, reduced, strict=True):
                results[index] = _with_gradient(value, leaf, self.size if reduction == "mean" else 1)
        return results

    def _broadcast(self, leaves: Sequence[Tensor], source: int) -> None:
        with torch.no_grad():
            for device, indices in indices_by(lambda leaf: leaf.device, leaves).items():
                bucket = [leaves[index] for index in indices]
                plan = MovePlan.of(bucket)
                row = plan.pack(bucket).to(self._reachable(device))
                dist.broadcast(row, group_src=source, group=self.group)
                if self.rank == source:
                    continue
                for leaf, part in zip(bucket, plan.unpack(row.to(device).unsqueeze(0)), strict=True):
                    if part.data_ptr() != leaf.data_ptr():  # else received in place
                        leaf.copy_(part.view(leaf.shape))

    def _broadcast_objects(self, parcel: list[Any], source: int) -> None:
        dist.broadcast_object_list(parcel, group_src=source, group=self.group)

    def _largest(self, sizes: list[int]) -> list[int]:
        largest = torch.tensor(sizes, dtype=torch.int64, device=self.device)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=self.group)
        result: list[int] = largest.tolist()
        return result


def _is_dense(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and _obstacle(leaf) is None


def _obstacle(leaf: Tensor) -> str | None:
    """Return why `leaf` cannot be sent as a row of elements, and what to do; None if it can."""
    if leaf.is_nested:
        return "nested: make it dense with `.to_padded_tensor(padding)`"
    if leaf.is_meta:
        return "on the meta device, without data"
    if leaf.layout != torch.strided:
        return f"of layout {leaf.layout}: make it dense with `.to_dense()`"
    if type(leaf) is not Tensor and hasattr(leaf, "full_tensor"):
        return "sharded over a mesh: take `.full_tensor()` or `.to_local()`"
    return None


def _gathered_shape(shape: torch.Size, size: int) -> tuple[int, ...]:
    return (size, *shape) if not shape else (size * shape[0], *shape[1:])


def _with_gradient(value: Tensor, leaf: Tensor, divisor: int) -> Tensor:
    """Return `value` such that a gradient flows back to `leaf`, as if other ranks' parts were constants."""
    if not (leaf.requires_grad and torch.is_grad_enabled()):
        return value
    connected = leaf.clone() if divisor == 1 else leaf / divisor
    with torch.no_grad():
        return connected.copy_(value)


def _has_dim(leaf: Tensor, dim: int) -> bool:
    return not leaf.is_nested and -leaf.ndim <= dim < leaf.ndim


def _check_pad_index(pad_index: float, dtype: torch.dtype) -> None:
    takes_fractions = dtype.is_floating_point or dtype.is_complex or dtype == torch.bool
    try:
        torch.full((2,), pad_index, dtype=dtype)  # with one element torch does not look
        fits = takes_fractions or float(pad_index).is_integer()
    except RuntimeError:  # torch's word for a number that overflows
        fits = False
    if not fits:
        raise ValueError(
            f"`pad_across_processes(..., {pad_index=})`: tensors of dtype {dtype} cannot hold it."
        )


def _pad(leaf: Tensor, dim: int, size: int, pad_index: float, pad_first: bool) -> Tensor:
    if not _has_dim(leaf, dim) or leaf.shape[dim] == size:
        return leaf
    shape = list(leaf.shape)
    shape[dim] = size
    padded = leaf.new_full(shape, pad_index)
    padded.narrow(dim, size - leaf.shape[dim] if pad_first else 0, leaf.shape[dim]).copy_(leaf)
    return padded
