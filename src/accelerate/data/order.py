"""The samples of a pass in blocks, not one by one, where they stand in a list. Called by the samplers.

[Note: lists inside samplers] torch's samplers draw a permutation as a list and hand it on with `yield from`,
and many others return the iterator of a list or a range. Such a list can be seen from outside: what is this
rank's is cut out of it, and what was seen is left out by setting a position, however long it is. A plain
permutation is drawn here as torch draws it, and stays a tensor: only this rank's part becomes Python numbers.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils.data import RandomSampler

__all__ = ["Block", "OrderReader", "as_list", "samples_after"]

Block: TypeAlias = "Sequence[int] | Tensor"  # samples that come one after the other

_END: Any = object()
_LIST_ITERATOR: type = type(iter([]))
_RANGE_ITERATOR: type = type(iter(range(0)))
_AT_ONCE = 4096  # samples drawn together where they do not stand in a list


class OrderReader:
    """Read the samples of one pass in blocks. Nothing is drawn before it is asked for.

    Args:
        sampler: yields indices.
    """

    def __init__(self, sampler: Any) -> None:
        self._permutations = permutations(sampler)
        self._samples: Iterator[int] = iter(sampler if self._permutations is None else ())

    def more(self, wanted: int) -> "Block":
        """Return the samples that come next: all that stand together, else `wanted` of them at most.

        An empty sequence is the end.
        """
        if self._permutations is not None:
            return next(self._permutations, ())
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

    def after(self, count: int, keep: int = 0) -> tuple[list[int], "Block"]:
        """Leave out `count` samples.

        Returns:
            The first `keep` of those that were left out, and what was read beyond all of them.
        """
        kept: list[int] = []
        while count > 0:
            block = self.more(min(count, _AT_ONCE))
            kept += as_list(block[: min(keep - len(kept), count)])
            if len(block) >= count or not len(block):
                return kept, block[count:]
            count -= len(block)
        return kept, ()

    def __iter__(self) -> Iterator[int]:
        """Return an iterator over what was not read yet."""
        blocks = () if self._permutations is None else self._permutations
        return chain(chain.from_iterable(map(as_list, blocks)), self._samples)


def as_list(block: "Block") -> list[int]:
    """Return the samples of a block as Python numbers."""
    return block.tolist() if type(block) is Tensor else list(block)


def permutations(sampler: Any) -> Iterator[Tensor] | None:
    """Return an iterator over the only permutation that a sampler draws; None where it does otherwise.

    Nothing is drawn before it is asked for.
    """
    plain = isinstance(sampler, RandomSampler) and not sampler.replacement
    if not plain or sampler.num_samples != len(sampler.data_source):
        return None
    if type(sampler).__iter__ is RandomSampler.__iter__:
        return _drawn_as_torch_does(sampler)
    drawn: Iterator[Tensor] | None = getattr(sampler, "permutations", lambda: None)()
    return drawn


def _drawn_as_torch_does(sampler: "RandomSampler") -> Iterator[Tensor]:
    generator = sampler.generator
    if generator is None:
        seed = int(torch.empty((), dtype=torch.int64).random_().item())
        yield torch.randperm(sampler.num_samples, generator=torch.Generator().manual_seed(seed))
    else:
        yield torch.randperm(sampler.num_samples, generator=generator)
        # torch draws another one at the end, takes none of it, and leaves the generator behind it.
        torch.randperm(sampler.num_samples, generator=generator)


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


def samples_after(sampler: Iterable[int], count: int, keep: int = 0) -> Iterator[int]:
    """Return an iterator over what a sampler yields after its first `count` samples.

    Nothing is drawn before the first of them is asked for.

    Args:
        sampler: yields indices.
        count: how many samples are left out.
        keep: how many of those come nevertheless, before the others.
    """

    def rest() -> Iterator[int]:
        reader = OrderReader(sampler)
        kept, beyond = reader.after(count, keep)
        yield from chain(kept, as_list(beyond) if type(beyond) is Tensor else beyond, reader)

    return rest() if count else iter(sampler)
