"""A batch as a row of bytes, and back. Called by the dispatcher, which sends the rows.

[Note: parcels] A *row* is what one rank gets in one step. It begins with a *head* of some integers. Then
comes the *form*: a pickle of all but the tensors' data, left out where it is that of the row before. Then
comes the data of all tensors, packed as in [Note: two packings] of runtime/flat.py. Tensors that cannot be
packed (nested, sparse, of a class of their own) travel inside the form.
"""

import pickle
import struct
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from accelerate.modules.nested import flatten, map_leaves
from accelerate.runtime.call import obstacle
from accelerate.runtime.flat import MovePlan

__all__ = ["HEAD", "Head", "Packer", "Parcel", "RemoteTraceback", "Unpacker", "exception_parcel", "read_head"]

HEAD = 64  # bytes
_NUMBERS = struct.Struct("=7q")
_ALIGNMENT = 16  # bytes, of the widest dtype
_FIXED = frozenset([str, bytes, int, float, complex, bool, type(None)])


class _Tensor:
    """Where a tensor stands in a form; the class stands for itself."""

    device = torch.device("cpu")  # a PackedSequence looks whether its batch sizes are there


@dataclass(frozen=True, kw_only=True)
class Head:
    """The integers at the beginning of a row, in this order."""

    kind: int  # what the message is
    length: int  # bytes of the longest row of this message
    form: int  # bytes
    ends: int  # whether this is the last batch of this rank
    last: int  # whether no message follows
    rows: int  # samples of all ranks together that are real, -1 when nobody knows
    real_rows: int  # of this rank, -1 where `rows` says all

    def write(self, row: Tensor) -> None:
        """Put the integers at the beginning of a row."""
        numbers = (self.kind, self.length, self.form, self.ends, self.last, self.rows, self.real_rows)
        memory: Any = row.numpy()
        _NUMBERS.pack_into(memory, 0, *numbers)


def read_head(row: Tensor) -> Head:
    """Return what the integers at the beginning of a row say."""
    memory: Any = row.numpy()
    kind, length, form, ends, last, rows, real_rows = _NUMBERS.unpack_from(memory)
    return Head(kind=kind, length=length, form=form, ends=ends, last=last, rows=rows, real_rows=real_rows)


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """What goes into a row behind its head."""

    form: bytes = b""
    plan: MovePlan | None = None
    leaves: Sequence[Tensor] = ()

    @property
    def length(self) -> int:
        """Bytes of the row, the head included."""
        start = _aligned(HEAD + len(self.form))
        return start + (0 if self.plan is None else self.plan.row_bytes)

    def write(self, row: Tensor) -> None:
        """Put form and data into a row that is long enough."""
        if self.form:
            row[HEAD : HEAD + len(self.form)] = torch.frombuffer(bytearray(self.form), dtype=torch.uint8)
        if self.plan is not None:
            start = _aligned(HEAD + len(self.form))
            self.plan.pack_into(row[start : start + self.plan.row_bytes], self.leaves)


class Packer:
    """Make parcels of the batches of one rank, in order."""

    def __init__(self) -> None:
        self._form = b""
        self._plan: MovePlan | None = None

    def pack(self, batch: Any) -> Parcel:
        """Return a parcel of a batch.

        Raises:
            TypeError: something in it cannot be pickled.
        """
        leaves: list[Tensor] = []

        def visit(leaf: Any) -> Any:
            if type(leaf) is not Tensor or obstacle(leaf) is not None:
                return leaf
            leaf = leaf.detach() if leaf.requires_grad else leaf
            leaves.append(leaf if leaf.is_cpu else leaf.cpu())
            return _Tensor

        form = _pickled((map_leaves(visit, batch), [(tuple(leaf.shape), leaf.dtype) for leaf in leaves]))
        if form == self._form:
            return Parcel(plan=self._plan, leaves=leaves)
        self._form, self._plan = form, MovePlan.of(leaves) if leaves else None
        return Parcel(form=form, plan=self._plan, leaves=leaves)


class Unpacker:
    """Take batches out of the rows of one rank, in order."""

    def __init__(self) -> None:
        self._form = b""
        self._structure: Any = None
        self._shared = True  # what stands in the structure may be part of several batches
        self._shapes: list[Any] = []
        self._plan: MovePlan | None = None

    def unpack(self, row: Tensor, head: Head) -> Any:
        """Return the batch in a row, with memory of its own."""
        if head.form:
            self._read_form(row[HEAD : HEAD + head.form].numpy().tobytes())
        elif not self._shared:
            self._structure, _ = pickle.loads(self._form)
        if self._plan is None:
            return map_leaves(lambda leaf: leaf, self._structure)
        start = _aligned(HEAD + head.form)
        rows = row[start : start + self._plan.row_bytes].unsqueeze(0)
        parts = zip(self._plan.unpack(rows, copy=True), self._shapes, strict=True)
        tensors = (part.view(shape) for part, shape in parts)
        return map_leaves(lambda leaf: next(tensors) if leaf is _Tensor else leaf, self._structure)

    def _read_form(self, form: bytes) -> None:
        self._form = form
        self._structure, forms = pickle.loads(form)
        self._shared = all(leaf is _Tensor or type(leaf) in _FIXED for leaf in flatten(self._structure)[0])
        self._shapes = [shape for shape, _ in forms]
        leaves = [torch.empty(shape, dtype=dtype, device="meta") for shape, dtype in forms]
        self._plan = MovePlan.of(leaves) if leaves else None


class RemoteTraceback(Exception):
    """The traceback of another rank's exception, as text; the cause of the exception here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n\nOn rank 0:\n{self.text}"


def exception_parcel(error: Exception) -> Parcel:
    """Return a parcel of an exception and its traceback, whose `Unpacker` gives the exception."""
    text = "".join(traceback.format_exception(error))
    try:
        form = pickle.dumps((_Raised(error, text), []))
        pickle.loads(form)  # an exception with a constructor of its own may not come back
    except Exception as problem:  # a user's class may fail in any way; the text says what happened
        stand_in = RuntimeError(f"{type(error).__name__}: {error} (it cannot be sent itself: {problem})")
        form = pickle.dumps((_Raised(stand_in, text), []))
    return Parcel(form=form)


class _Raised:
    """An exception and its traceback, to be raised."""

    def __init__(self, error: Exception, text: str) -> None:
        self.error = error
        self.text = text

    def __reduce__(self) -> tuple[Callable[[Exception, str], Exception], tuple[Exception, str]]:
        return _with_cause, (self.error, self.text)


def _with_cause(error: Exception, text: str) -> Exception:
    error.__cause__ = RemoteTraceback(text)
    return error


def _pickled(data: Any) -> bytes:
    try:
        return pickle.dumps(data)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise TypeError(
            f"A batch holds what cannot be sent to other ranks: {error}. Return plain data from the dataset "
            "or `collate_fn`, or let each rank read its own batches with dispatch_batches=False."
        ) from error


def _aligned(length: int) -> int:
    return -(-length // _ALIGNMENT) * _ALIGNMENT
