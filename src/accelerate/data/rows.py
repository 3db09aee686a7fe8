"""The rows of a batch, one a sample: how many there are, some of them, those of several batches. Pure.

Called by the dispatcher, which cuts batches for the ranks.

[Note: rows] A tensor has its rows along dim 0. A list or tuple of plain things (texts, numbers, objects) has
one a sample, if it is as long as the tensors. Everything else belongs to the batch as a whole.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from accelerate.modules.nested import honor_type, is_namedtuple, is_record, named_items, with_fields

__all__ = ["Nothing", "join_rows", "num_rows", "shares_of", "slice_rows"]


class Nothing:
    """What a rank gets when there are no samples for it; the class stands for itself."""


def num_rows(batch: Any) -> int | None:
    """Return the number of rows that all parts of a batch have ([Note: rows]); None if they differ."""
    if type(batch) is dict:  # the commonest batches are worth a look before the general way
        tensors = batch.values()
        if all(type(tensor) is Tensor and tensor.layout is torch.strided for tensor in tensors):
            shapes = [tensor.shape for tensor in tensors]
            found = {shape[0] for shape in shapes if shape}
            return found.pop() if len(found) == 1 else None
    counts: set[int] = set()
    plain: set[int] = set()
    _count(batch, counts, plain)
    if not counts and len(plain) == 1:
        return plain.pop()
    return counts.pop() if len(counts) == 1 else None


def _count(data: Any, counts: set[int], plain: set[int]) -> None:
    if isinstance(data, Tensor):
        if data.is_nested or data.layout != torch.strided:
            counts.update((-1, -2))  # rows that nobody here can cut
        elif data.dim():
            counts.add(data.shape[0])
    elif isinstance(data, PackedSequence):
        counts.update((-1, -2))
    elif _is_plain(data):
        plain.add(len(data))
    else:
        for part in _parts(data):
            _count(part, counts, plain)


def _is_plain(data: Any) -> bool:
    if not isinstance(data, (list, tuple)) or is_namedtuple(data) or not data:
        return False
    return not any(isinstance(item, (Tensor, list, tuple, Mapping)) or is_record(item) for item in data)


def _parts(data: Any) -> Sequence[Any]:
    if isinstance(data, (list, tuple)):
        return data
    items = named_items(data)
    return () if items is None else list(items.values())


def slice_rows(batch: Any, rows: slice, total: int) -> Any:
    """Return some rows of a batch that has `total` of them."""

    def cut(data: Any) -> Any:
        if isinstance(data, Tensor):
            return data[rows] if data.dim() and data.shape[0] == total else data
        if _is_plain(data):
            return data[rows] if len(data) == total else data
        return _rebuilt(data, cut)

    return cut(batch)


def _rebuilt(data: Any, function: Callable[[Any], Any]) -> Any:
    """Return a container with `function(part)` in place of each part; anything else as it is."""
    if isinstance(data, (list, tuple)):
        return honor_type(data, (function(part) for part in data))
    if isinstance(data, Mapping):
        return honor_type(data, ((key, function(value)) for key, value in data.items()))
    if is_record(data):
        return with_fields(data, {key: function(value) for key, value in (named_items(data) or {}).items()})
    return data


def join_rows(batches: Sequence[Any]) -> Any:
    """Return one batch with the rows of several.

    Raises:
        TypeError: they are not alike.
        RuntimeError: tensors differ in more than their number of rows.
    """
    first = batches[0]
    if len(batches) == 1:
        return first
    if isinstance(first, Tensor):
        return torch.cat(list(batches)) if first.dim() else first
    if _is_plain(first):
        return type(first)(item for batch in batches for item in batch)
    parts = [_parts(batch) for batch in batches]
    if len({type(batch) for batch in batches}) > 1 or len({len(each) for each in parts}) > 1:
        raise TypeError("Batches of different structure cannot be joined.")
    joined = iter([join_rows(column) for column in zip(*parts, strict=True)])
    return _rebuilt(first, lambda _: next(joined))


def shares_of(
    batches: Sequence[Any],
    first: Sequence[Any],
    *,
    num_shares: int,
    size: int | None,
    complete: bool,
    split: bool,
    slice_fn: Callable[..., Any] | None,
) -> list[Any]:
    """Return what each share of a round gets.

    As many batches as shares go out whole. Fewer, or one that is to be split, are cut; where they cannot be
    cut, the first shares get whole batches.

    Args:
        batches: of this round, `num_shares` of them at most; one with `split`.
        first: the batches of the first round, from which short ones are completed.
        num_shares: how many are wanted.
        size: rows of a full batch, None where nobody can know.
        complete: fill up what is short, as the last round of a pass.
        split: the batch is one of all shares together.
        slice_fn: cuts batches in place of our own way, as
            `slice_fn(batch, slice, process_index=, num_processes=)`.

    Returns:
        The shares; `Nothing` where there are no samples for one.
    """
    if len(batches) == num_shares and not split and slice_fn is None:
        return _whole(batches, first, size if complete and num_shares > 1 else None)
    try:
        joined = join_rows(batches)
    except (TypeError, RuntimeError):
        if slice_fn is not None:
            raise
        joined = None
    rows = None if joined is None else num_rows(joined)
    if rows is None:
        rest = first if complete else [Nothing] * num_shares
        return [*batches, *_repeated(rest, num_shares - len(batches))]
    if complete or rows < num_shares <= len(batches):
        joined, rows = _completed(joined, rows, -(-rows // num_shares) * num_shares, first)
    return _cut(joined, rows, num_shares, slice_fn)


def _whole(batches: Sequence[Any], first: Sequence[Any], size: int | None) -> list[Any]:
    *others, last = batches
    rows = num_rows(last) if size else None
    # Several workers may each end with a short batch: fill between real rows could not be taken out again.
    if size and rows and rows < size and all(num_rows(batch) == size for batch in others):
        last, _ = _completed(last, rows, size, first)
    return [*others, last]


def _completed(batch: Any, rows: int, wanted: int, first: Sequence[Any]) -> tuple[Any, int]:
    """Return a batch with rows of the first round behind its own; as it is where they do not fit."""
    if rows == wanted:
        return batch, rows
    try:
        fill = join_rows(first)
        total = num_rows(fill)
        if not total:
            return batch, rows
        while rows < wanted:
            taken = min(total, wanted - rows)
            batch, rows = join_rows([batch, slice_rows(fill, slice(0, taken), total)]), rows + taken
    except (TypeError, RuntimeError):
        return batch, rows
    return batch, rows


def _cut(batch: Any, rows: int, num_shares: int, slice_fn: Callable[..., Any] | None) -> list[Any]:
    share = -(-rows // num_shares)
    shares = []
    for index in range(num_shares):
        part = slice(index * share, min(rows, (index + 1) * share))
        if part.start >= rows:
            shares.append(Nothing)
        elif slice_fn is not None:
            shares.append(slice_fn(batch, part, process_index=index, num_processes=num_shares))
        else:
            shares.append(slice_rows(batch, part, rows))
    return shares


def _repeated(items: Sequence[Any], count: int) -> list[Any]:
    return [items[index % len(items)] for index in range(count)]
