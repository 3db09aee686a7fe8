"""Pack many tensors into one flat buffer and take them out again. Called by the collectives only; pure.

[Note: two packings]
Moving data (gather, broadcast) does not care what the bits mean: `MovePlan` packs tensors of *all* dtypes of
one device into bytes, so that one collective carries them, also dtypes that a backend does not know (gloo
has no int16 and no float8). A leaf travels as its *carrier*: its own dtype where that is plain, else an
integer of the same size. Leaves of one carrier form a *segment*. Segments stand in order of falling item size
and a row ends on a multiple of the largest, so that each segment of each row can be viewed as its carrier.

Calculating (reduce) does care: `Arithmetic` says in which dtype a backend calculates correctly, and takes the
result back to the tensors' own dtype.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = [
    "REDUCTIONS",
    "Arithmetic",
    "MovePlan",
    "arithmetic",
    "concatenate_flat",
    "indices_by",
    "split_flat",
]

Key = TypeVar("Key", bound=Hashable)

# torch declares that it returns nothing.
_split_copy: Any = torch.split_with_sizes_copy

_PLAIN = frozenset(
    {
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.uint8,
        torch.complex128,
    }
)
_CARRIER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


def indices_by(key: Callable[[Tensor], Key], leaves: Sequence[Tensor]) -> dict[Key, list[int]]:
    """Return the indices of `leaves` grouped by `key(leaf)`, groups in the order of their first member."""
    groups: dict[Key, list[int]] = defaultdict(list)
    for index, leaf in enumerate(leaves):
        groups[key(leaf)].append(index)
    return groups


@dataclass(frozen=True, kw_only=True)
class _Segment:
    """Leaves of one carrier, side by side in every row."""

    carrier: torch.dtype
    indices: list[int]  # into the leaves
    numels: list[int]  # in elements of the carrier
    start: int  # bytes from the beginning of a row
    stop: int  # bytes


@dataclass(frozen=True, kw_only=True)
class MovePlan:
    """Where each of some tensors stands in a row of bytes; see [Note: two packings]."""

    dtypes: list[torch.dtype]
    segments: list[_Segment]
    row_bytes: int

    @staticmethod
    def of(leaves: Sequence[Tensor]) -> "MovePlan":
        """Plan the row for `leaves`, which are on one device; ranks with alike leaves get alike plans."""
        groups = indices_by(lambda leaf: _carrier(leaf.dtype), leaves)
        carriers = sorted(groups, key=lambda carrier: carrier.itemsize, reverse=True)
        numels = [[leaves[index].numel() for index in groups[carrier]] for carrier in carriers]
        sizes = [sum(each) * carrier.itemsize for each, carrier in zip(numels, carriers, strict=True)]
        segments = [
            _Segment(carrier=carrier, indices=groups[carrier], numels=each, start=start, stop=stop)
            for carrier, each, (start, stop) in zip(
                carriers, numels, pairwise(accumulate(sizes, initial=0)), strict=True
            )
        ]
        alignment = carriers[0].itemsize
        row_bytes = -(-sum(sizes) // alignment) * alignment
        return MovePlan(dtypes=[leaf.dtype for leaf in leaves], segments=segments, row_bytes=row_bytes)

    def pack(self, leaves: Sequence[Tensor]) -> Tensor:
        """Return the row of bytes; for a single contiguous leaf it is a view of the leaf's own memory."""
        if len(self.segments) == 1:
            return concatenate_flat([_raw(leaf) for leaf in leaves]).view(torch.uint8)
        row = torch.empty(self.row_bytes, dtype=torch.uint8, device=leaves[0].device)
        self.pack_into(row, leaves)
        return row

    def pack_into(self, row: Tensor, leaves: Sequence[Tensor]) -> None:
        """Write the bytes of all leaves into a row, whose memory begins where every dtype may begin."""
        raw = [_raw(leaf) for leaf in leaves]
        for segment in self.segments:
            window = row[segment.start : segment.stop].view(segment.carrier)
            torch.cat([raw[index].flatten() for index in segment.indices], out=window)

    def unpack(self, rows: Tensor, *, copy: bool = False) -> list[Tensor]:
        """Return each leaf's elements, (num_rows, numel), out of `rows`, (num_rows, row_bytes).

        They are views, or contiguous copies with memory of their own.
        """
        split = _split_copy if copy else torch.split_with_sizes
        leaves = [rows] * len(self.dtypes)
        for segment in self.segments:
            window = rows[:, segment.start : segment.stop]
            # A window of no bytes has strides that cannot be viewed as a larger dtype.
            window = window.view(segment.carrier) if window.numel() else window.to(segment.carrier)
            parts = split(window, segment.numels, dim=1)
            for index, part in zip(segment.indices, parts, strict=True):
                dtype = self.dtypes[index]
                leaves[index] = part if dtype == segment.carrier else part.view(dtype)
        return leaves


def _carrier(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype in _PLAIN else _CARRIER_OF_SIZE[dtype.itemsize]


def _raw(leaf: Tensor) -> Tensor:
    if leaf.is_conj() or leaf.is_neg():
        leaf = leaf.resolve_conj().resolve_neg()
    carrier = _carrier(leaf.dtype)
    return leaf if leaf.dtype == carrier else leaf.view(carrier)


def concatenate_flat(leaves: Sequence[Tensor]) -> Tensor:
    """Return the elements of all `leaves`, of one dtype, in one dim; one contiguous leaf is only viewed."""
    if len(leaves) > 1:
        return torch.cat([leaf.flatten() for leaf in leaves])  # one dim already: the same tensor
    flat = leaves[0].reshape(-1).contiguous()
    # torch calls one element contiguous whatever its stride, but neither views nor sends it then.
    return flat if flat.stride(0) == 1 else flat.as_strided(flat.shape, (1,))


def split_flat(flat: Tensor, shapes: Sequence[torch.Size]) -> list[Tensor]:
    """Return tensors of `shapes` from `flat`, the reverse of `concatenate_flat`.

    Several of them get memory of their own, since a view would keep the whole buffer alive and would be saved
    to a file with all of it.
    """
    if len(shapes) == 1:
        return [flat.view(shapes[0])]
    parts = _split_copy(flat, [shape.numel() for shape in shapes])
    return [part if len(shape) == 1 else part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


REDUCTIONS = {
    "sum": dist.ReduceOp.SUM,
    "mean": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
}


@dataclass(frozen=True, kw_only=True)
class Arithmetic:
    """How a backend calculates with one dtype."""

    operation: dist.ReduceOp.RedOpType
    encode: Callable[[Tensor], Tensor]  # to what the backend understands; may be a view
    decode: Callable[[Tensor], Tensor]  # back to the dtype of the input


# gloo and NCCL have no 16-bit integers and no unsigned ones over 8 bits. A sum that overflows wraps alike.
_WIDER = {torch.int16: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64}


def arithmetic(dtype: torch.dtype, reduction: str) -> Arithmetic:
    """Return how to apply `reduction` to tensors of `dtype`.

    Sums of bool are logical "or", as in torch.

    Raises:
        RuntimeError: the mean of integers or bools.
        TypeError: there is no such reduction of this dtype.
    """
    if reduction == "mean" and not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError(
            f'reduction="mean" of tensors of dtype {dtype} is no {dtype}: pass reduction="sum", or convert '
            "the tensors first, for instance with `.float()`."
        )
    operation = REDUCTIONS[reduction]
    if dtype == torch.bool:
        # Added as bytes, True + True would be 2: not a bool, and equal to neither.
        operation = dist.ReduceOp.MIN if reduction == "min" else dist.ReduceOp.MAX
        return _converted(operation, lambda flat: flat.view(torch.uint8), lambda flat: flat.view(torch.bool))
    if dtype in _WIDER:
        return _converted(operation, lambda flat: flat.to(_WIDER[dtype]), lambda flat: flat.to(dtype))
    ordered = reduction in ("max", "min")
    if dtype.is_complex and not ordered:
        return _converted(operation, torch.view_as_real, torch.view_as_complex)
    if dtype == torch.uint64 and not ordered:
        return _converted(
            operation, lambda flat: flat.view(torch.int64), lambda flat: flat.view(torch.uint64)
        )
    if dtype not in _PLAIN - {torch.complex128} | {torch.int8}:
        raise TypeError(
            f'reduction="{reduction}" of tensors of dtype {dtype} is not supported: convert them first, for '
            "instance with `.float()`."
        )
    return _converted(operation, lambda flat: flat, lambda flat: flat)


def _converted(
    operation: dist.ReduceOp.RedOpType,
    encode: Callable[[Tensor], Tensor],
    decode: Callable[[Tensor], Tensor],
) -> Arithmetic:
    return Arithmetic(operation=operation, encode=encode, decode=decode)
