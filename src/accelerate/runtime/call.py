"""What one rank is about to do, as a value to hash and compare. Made by `RankGroup`, read by headers."""

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from typing import Any
from zlib import crc32

import torch
from torch import Tensor

from accelerate.modules.nested import outline

__all__ = ["Call", "Contents", "digest_of", "obstacle"]


@dataclass(frozen=True, kw_only=True)
class Contents:
    """Nested containers that a caller has given, looked into once."""

    data: Any = ()
    leaves: Sequence[Any] = ()
    structure: Any = ()  # the containers, with None for a leaf that can be sent and words for any other
    odd: Sequence[int] = ()  # indices of leaves that cannot be sent

    @staticmethod
    def of(data: Any) -> "Contents":
        """Look into `data`."""
        leaves: list[Any] = []
        odd: list[int] = []

        def visit(leaf: Any) -> str | None:
            words = obstacle(leaf) if isinstance(leaf, Tensor) else type(leaf).__qualname__
            if words is not None:
                odd.append(len(leaves))
            leaves.append(leaf)
            return words

        return Contents(data=data, structure=outline(visit, data), leaves=leaves, odd=odd)

    def essence(self) -> bytes:
        """Return shape, dtype and kind of device of all leaves that can be sent."""
        leaves = (
            [leaf for index, leaf in enumerate(self.leaves) if index not in self.odd]
            if self.odd
            else self.leaves
        )
        shapes = [leaf.shape for leaf in leaves]
        codes = [_CODES[leaf.dtype] for leaf in leaves]
        on_cpu = [leaf.is_cpu for leaf in leaves]
        return array("q", [*map(len, shapes), *chain.from_iterable(shapes), *codes, *on_cpu]).tobytes()


class _Codes(dict[torch.dtype, int]):
    """A number for every dtype, the same in every process."""

    def __missing__(self, dtype: torch.dtype) -> int:
        code = self[dtype] = crc32(str(dtype).encode())
        return code


_CODES = _Codes()


@dataclass(frozen=True, kw_only=True)
class Call:
    """What one rank is about to do.

    Attributes:
        operation: name of the collective.
        arguments: those that must be alike on all ranks, as the user wrote them.
        contents: what it is done to; nothing where that need not be alike.
        exact: shapes and dtypes must be alike too, not only the structure.
        problem: why this rank cannot take part. It is raised after the header, when all ranks know of it.
        numbers: integers for all other ranks, at most `ROOM` of them travel in the header.
        silent: has no header, whatever its number: it is one of many between two that have.
    """

    operation: str
    arguments: str = ""
    contents: Contents = Contents()
    exact: bool = True
    problem: Exception | None = None
    numbers: Sequence[int] = ()
    silent: bool = False

    @property
    def label(self) -> str:
        """The call as the user wrote it."""
        return f"{self.operation}({self.arguments})" if self.arguments else self.operation

    def digest(self, number: int) -> int:
        """Return a hash of all that must be alike, the same in every process, as an int64."""
        fine = self.problem is None
        text = repr((number, self.operation, self.arguments, fine, self.contents.structure))
        essence = self.contents.essence() if fine and self.exact else b""
        return digest_of(text.encode() + essence)


def digest_of(content: bytes) -> int:
    """Return a hash of `content`, the same in every process, as an int64."""
    number: int = struct.unpack("=q", blake2b(content, digest_size=8).digest())[0]
    return number


def obstacle(leaf: Tensor) -> str | None:
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
