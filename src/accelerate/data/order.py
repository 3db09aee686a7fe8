"""The samples of a pass in blocks, not one by one, where they stand in a list. Called by the samplers.

[Note: lists inside samplers] torch's samplers draw a permutation as a list and hand it on with `yield from`,
and many others return the iterator of a list or a range. Such a list can be seen from outside: what is this
rank's is cut out of it, and what was seen is left out by setting a position, however long it is.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

__all__ = ["OrderReader", "samples_after"]

_END: Any = object()
_LIST_ITERATOR: type = type(iter([]))
_RANGE_ITERATOR: type = type(iter(range(0)))
_AT_ONCE = 4096  # samples drawn together where they do not stand in a list


class OrderReader:
    """Read the samples of one pass in blocks. Nothing is drawn before it is asked for.

    Args:
        sampler: yields indices.
    """

    def __init__(self, sampler: Iterable[int]) -> None:
        self._samples = iter(sampler)

    def more(self, wanted: int) -> Sequence[int]:
        """Return the samples that come next: all that stand in one list, else `wanted` of them at most.

        An empty sequence is the end.
        """
        source: Any = self._samples
        if type(source) is _RANGE_ITERATOR or type(source) is _LIST_ITERATOR:
            self._samples = iter(())
            return _rest_of(source)
        first = next(source, _END)  # a generator starts to hand on a list with its first item only
        if first is _END:
            return ()
        inner: Any = getattr(source, "gi_yieldfrom", None)
        if type(inner) is not _LIST_ITERATOR:
            return [first, *islice(source, wanted - 1)]
        return _taken(inner)

    def after(self, count: int, keep: int = 0) -> tuple[list[int], Sequence[int]]:
        """Leave out `count` samples.

        Returns:
            The first `keep` of those that were left out, and what was read beyond all of them.
        """
        kept: list[int] = []
        while count > 0:
            block = self.more(min(count, _AT_ONCE))
            kept += block[: min(keep - len(kept), count)]
            if len(block) >= count or not block:
                return kept, block[count:]
            count -= len(block)
        return kept, ()

    def __iter__(self) -> Iterator[int]:
        """Return what was not read yet."""
        return self._samples


def _rest_of(source: Any, back: int = 0) -> Sequence[int]:
    """Return what the iterator of a list or a range has not given yet, and the last `back` that it has."""
    _, (items, *_), *position = source.__reduce__()
    start = (position[0] or 0) - back if position else 0
    rest: Sequence[int] = items[start:] if start else items
    return rest


def _taken(source: Any) -> Sequence[int]:
    """Return what the iterator of a list gave last and has not given yet, and move it behind the list."""
    block = _rest_of(source, back=1)
    source.__setstate__(sys.maxsize)
    return block


def samples_after(sampler: Iterable[int], count: int) -> Iterator[int]:
    """Return an iterator over what a sampler yields after its first `count` samples.

    Nothing is drawn before the first of them is asked for.
    """

    def rest() -> Iterator[int]:
        reader = OrderReader(sampler)
        _, beyond = reader.after(count)
        yield from chain(beyond, reader)

    return rest() if count else iter(sampler)
