"""A group of ranks and what it does together. Called by the public collectives and rooms that have a group.

All tensors of a call travel together: a gather or broadcast is one collective a device, a reduce one a device
and dtype, however many tensors there are ([Note: two packings] in flat.py). A group of one sends nothing.
"""

import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from accelerate.modules.nested import describe, walk, with_leaves
from accelerate.runtime.call import Call, Contents, obstacle
from accelerate.runtime.flat import (
    REDUCTIONS,
    MovePlan,
    arithmetic,
    concatenate_flat,
    indices_by,
    split_flat,
)
from accelerate.runtime.header import ROOM, channel_of
from accelerate.runtime.padding import has_dim, pad, wrong_filling

__all__ = ["CannotPadNestedTensorWarning", "RankGroup"]

# torch 2.13 renamed it and warns at each call of the old name.
_ALL_GATHER = "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"


class CannotPadNestedTensorWarning(UserWarning):
    """A tensor of `torch.nested` has rows of several lengths and was left as it is."""


class RankGroup:
    """Some ranks, this process among them. Every rank calls each method, in one order, with alike arguments.

    Where ranks do not, those calls that have a header raise a `DistributedOperationException` on every rank
    before anything is sent ([Note: headers] in header.py). A rank whose peers stay away raises an
    `AbsentRankError`.

    Args:
        size: number of ranks.
        rank: this process's place in the group.
        device: of this rank; the group's backend can reach it.
        group: the process group; the default one when None.
        debug: compare what the ranks are about to do in every call.
    """

    def __init__(
        self,
        *,
        size: int,
        rank: int,
        device: torch.device,
        group: dist.ProcessGroup | None = None,
        debug: bool = False,
    ) -> None:
        self.size = size
        self.rank = rank
        self.device = device
        self.group = group
        self.debug = debug

    def gather(self, data: Any) -> Any:
        """Return `data` with every tensor's rows of all ranks, in rank order; see the function `gather`."""
        if self.size == 1:
            return data
        contents = Contents.of(data)
        call = Call(operation="gather", contents=contents, problem=self._wrong_leaf("gather", contents))
        with self._collective(call):
            return with_leaves(data, self._gather(contents.leaves))

    def reduce(self, data: Any, reduction: str = "mean") -> Any:
        """Return `data` with every tensor reduced over all ranks; see the function `reduce`."""
        contents = Contents.of(data)
        problem = self._wrong_leaf("reduce", contents)
        if reduction not in REDUCTIONS:
            problem = ValueError(
                f"`reduce(..., {reduction=})`: the reduction is one of {', '.join(REDUCTIONS)}."
            )
        call = Call(operation="reduce", arguments=f"{reduction=}", contents=contents, problem=problem)
        with self._collective(call):
            if self.size == 1:
                return with_leaves(data, [leaf.clone() for leaf in contents.leaves])
            return with_leaves(data, self._reduce(contents.leaves, reduction))

    def broadcast(self, data: Any, from_process: int = 0) -> Any:
        """Fill every tensor in `data` with that of one rank; see the function `broadcast`."""
        if self.size == 1:
            return data
        contents = Contents.of(data)
        problem = self._wrong_source("broadcast", from_process) or self._wrong_leaf("broadcast", contents)
        call = Call(operation="broadcast", arguments=f"{from_process=}", contents=contents, problem=problem)
        with self._collective(call):
            self._broadcast(contents.leaves, from_process)
            return with_leaves(data, contents.leaves)

    def pad_across_processes(
        self, data: Any, dim: int = 0, pad_index: float = 0, pad_first: bool = False
    ) -> Any:
        """Return `data` with every tensor as long as the longest; see the function `pad_across_processes`."""
        contents = Contents.of(data)
        leaves = contents.leaves
        problem = self._wrong_leaf("pad_across_processes", contents, nested=True)
        problem = problem or wrong_filling(pad_index, leaves)
        sizes = [leaf.shape[dim] if has_dim(leaf, dim) else 0 for leaf in leaves] if not problem else []
        call = Call(
            operation="pad_across_processes",
            arguments=f"{dim=}",
            contents=contents,
            exact=False,
            problem=problem,
            numbers=sizes,
        )
        with self._collective(call) as numbers:
            if sizes and self.size > 1:
                sizes = self._largest(sizes, numbers)
        if any(leaf.is_nested for leaf in leaves):
            warnings.warn(
                "`pad_across_processes` leaves nested tensors as they are: make them dense with "
                "`.to_padded_tensor(padding)` to have them padded.",
                CannotPadNestedTensorWarning,
                stacklevel=3,
            )
        if self.size == 1:
            return data
        return with_leaves(
            data,
            [pad(leaf, dim, size, pad_index, pad_first) for leaf, size in zip(leaves, sizes, strict=True)],
        )

    def gather_object(self, data: Any) -> Any:
        """Return the objects of all ranks; see the function `gather_object`."""
        if self.size == 1:
            return data
        mine, problem = self._pickled("gather_object", data)
        parcels: list[Any] = [None] * self.size
        with self._collective(Call(operation="gather_object", problem=problem)):
            dist.all_gather_object(parcels, mine, self.group)
        objects = [pickle.loads(parcel) for parcel in parcels]
        if all(type(each) in (list, tuple) for each in objects):
            return [item for each in objects for item in each]
        return objects

    def broadcast_object_list(self, object_list: list[Any], from_process: int = 0) -> list[Any]:
        """Replace the items of a list by those of one rank; see the function `broadcast_object_list`."""
        if self.size == 1:
            return object_list
        operation = "broadcast_object_list"
        # Travelling as one object, the list may differ in length between ranks.
        mine, problem = self._pickled(operation, object_list) if self.rank == from_process else (b"", None)
        problem = self._wrong_source(operation, from_process) or problem
        if not isinstance(object_list, list):
            problem = TypeError(
                f"`broadcast_object_list` was given {describe('', object_list)} on rank {self.rank}, "
                "but fills in a list: pass a list."
            )
        with self._collective(Call(operation=operation, arguments=f"{from_process=}", problem=problem)):
            parcel = [mine]
            dist.broadcast_object_list(parcel, group_src=from_process, group=self.group)
        if self.rank != from_process:
            object_list[:] = pickle.loads(parcel[0])
        return object_list

    def numbers_of_all(self, operation: str, numbers: Sequence[int]) -> list[list[int]]:
        """Return the integers of every rank, as many from each; they travel with the header, if there is one.

        Args:
            operation: name of what is done, for messages.
            numbers: of this rank, at most `ROOM`.
        """
        with self._collective(Call(operation=operation, numbers=numbers)) as received:
            if self.size == 1:
                return [list(numbers)]
            if received is None:
                row = torch.tensor(numbers, dtype=torch.int64, device=self.device)
                received = row.new_empty(self.size * len(numbers))
                getattr(dist, _ALL_GATHER)(received, row, group=self.group)
            rows: list[list[int]] = received.view(self.size, -1)[:, : len(numbers)].tolist()
            return rows

    @contextmanager
    def waiting(self, timeout: timedelta) -> Iterator[None]:
        """Wait longer than the time-out for ranks that are late to the calls in the block.

        For work that takes one rank longer, after all have met: a rank that is gone is noticed anyhow.
        """
        if self.size == 1:
            yield
            return
        channel = channel_of(self.group, rank=self.rank, size=self.size, device=self.device, debug=self.debug)
        with channel.waiting(timeout):
            yield

    @contextmanager
    def exchange(
        self, operation: str
    ) -> Iterator["Callable[[Tensor, Sequence[Tensor]], Callable[[], object]]"]:
        """Surround some scatters of rank 0, one step of many, with a note of where this rank is.

        Args:
            operation: name of what is done, for messages.

        Yields:
            A function that begins a scatter of bytes in CPU memory, and returns one that waits for its end.
            Its arguments are the row that this rank gets, and on rank 0 the rows of all ranks, as long.
        """
        with self._collective(Call(operation=operation, silent=True)):
            yield self._scatter

    def _scatter(self, row: Tensor, rows: Sequence[Tensor]) -> Callable[[], object]:
        channel = channel_of(self.group, rank=self.rank, size=self.size, device=self.device, debug=self.debug)
        if channel.gloo is not None:
            options = dist.ScatterOptions()
            options.rootRank = 0
            wait: Callable[[], object] = channel.gloo.scatter(
                [row], [list(rows)] if rows else [], options
            ).wait
            return wait
        device = self._reachable(row.device)
        received = row.to(device)
        sent = [each.to(device) for each in rows] or None
        dist.scatter(received, sent, group_src=0, group=self.group)
        return lambda: row.copy_(received)

    def barrier(self) -> None:
        """Return when every rank has called this."""
        with self._collective(Call(operation="wait_for_everyone")) as numbers:
            if self.size == 1 or (numbers is not None and self.device.type == "cpu"):
                return  # who has the headers of all ranks knows that all have come
            # NCCL would choose a device by itself, and warn. Other backends do not take one.
            takes_device = dist.get_backend(self.group) != "gloo" and self.device.index is not None
            dist.barrier(self.group, device_ids=[self.device.index] if takes_device else None)

    def compare(self, operation: str, data: Any) -> None:
        """Raise on every rank if `data` differs between ranks in structure, shapes or dtypes; send nothing.

        Args:
            operation: name of what is about to be done, for the message.
            data: nested containers of tensors.
        """
        with self._collective(Call(operation=operation, contents=Contents.of(data))):
            return

    @contextmanager
    def _collective(self, call: Call) -> Iterator[Tensor | None]:
        """Surround the whole exchange of one operation.

        Every operation passes here before it sends anything: the one place where ranks compare what each is
        about to do, and where a lost connection gets its explanation. A group of one compares nothing.

        Yields:
            What `Channel.open` gives.
        """
        if self.size == 1:
            if call.problem is not None:
                raise call.problem
            yield None
            return
        channel = channel_of(self.group, rank=self.rank, size=self.size, device=self.device, debug=self.debug)
        try:
            yield channel.open(call)
        except RuntimeError as error:
            absence = channel.absence(error)
            if absence is not None:
                raise absence from error  # and stay in this call, for others who wait in it
            channel.leave()
            raise
        except BaseException:
            channel.leave()
            raise
        channel.leave()

    def _wrong_leaf(self, name: str, contents: Contents, *, nested: bool = False) -> Exception | None:
        for index in contents.odd:
            leaf = contents.leaves[index]
            if isinstance(leaf, Tensor) and (self.size == 1 or (nested and leaf.is_nested)):
                continue
            where = describe(list(walk(contents.data))[index][0], leaf)
            if isinstance(leaf, Tensor):
                return TypeError(f"`{name}` was given {where} on rank {self.rank}; it is {obstacle(leaf)}.")
            return TypeError(
                f"`{name}` was given {where} on rank {self.rank}, but takes only tensors, in nested lists, "
                "tuples, dictionaries and dataclasses. Use `gather_object` or `broadcast_object_list` for "
                "other objects."
            )
        return None

    def _pickled(self, name: str, data: Any) -> tuple[bytes, Exception | None]:
        # Before the header: a rank whose object cannot be pickled must not leave the others waiting.
        try:
            return pickle.dumps(data), None
        except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
            return b"", TypeError(
                f"`{name}` was given what cannot be pickled on rank {self.rank}: {error}. Pass plain data, "
                "such as containers of numbers and text."
            )

    def _wrong_source(self, name: str, from_process: int) -> Exception | None:
        if 0 <= from_process < self.size:
            return None
        return ValueError(
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
                rows = rows.to(device).view(self.size, plan.row_bytes)
                # Views would keep the rows of all leaves alive.
                parts = plan.unpack(rows, copy=len(bucket) > 1)
                for index, leaf, part in zip(indices, bucket, parts, strict=True):
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

    def _largest(self, sizes: list[int], numbers: Tensor | None) -> list[int]:
        if numbers is not None and len(sizes) <= ROOM:
            largest = numbers[:, : len(sizes)].amax(0)  # they came with the headers
        else:
            largest = torch.tensor(sizes, dtype=torch.int64, device=self.device)
            dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=self.group)
        result: list[int] = largest.tolist()
        return result


def _gathered_shape(shape: torch.Size, size: int) -> tuple[int, ...]:
    return (size, *shape) if not shape else (size * shape[0], *shape[1:])


def _with_gradient(value: Tensor, leaf: Tensor, divisor: int) -> Tensor:
    """Return `value` such that a gradient flows back to `leaf`, as if other ranks' parts were constants."""
    if not (leaf.requires_grad and torch.is_grad_enabled()):
        return value
    connected = leaf.clone() if divisor == 1 else leaf / divisor
    with torch.no_grad():
        return connected.copy_(value)
