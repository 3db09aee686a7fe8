"""Take up a pass in the middle: leave out the batches that were seen. Called by users and the Accelerator."""

import operator
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar, cast

from torch.utils.data import DataLoader, IterableDataset

from accelerate.data.adapter import DataLoaderAdapter, DataLoaderStateMixin
from accelerate.data.loader import PreparedLoader
from accelerate.data.samplers import without_first
from accelerate.data.streams import iterate_stream_from
from accelerate.errors import ConfigurationError

__all__ = ["SkipDataLoader", "skip_first_batches"]

Loader = TypeVar("Loader")

_END = object()


def skip_first_batches(dataloader: Loader, num_batches: int = 0) -> Loader:
    """Return a loader for the rest of a pass: `dataloader` without its first `num_batches` batches.

    For a dataset that is read by index, batches that are left out are neither loaded nor collated. The order
    is that of a whole pass that starts with the same random state (or the same seed and epoch, with
    `use_seedable_sampler`), and so is the end: a short last batch, the fill of several ranks and what
    `gather_for_metrics` cuts off again. `dataloader` itself is not changed, and its own passes begin at the
    beginning; but a pass over the rest that is read to the end counts as one of its passes, so that its next
    one has the next epoch. Nothing is sent; with several ranks, all of them leave out equally many.

    Args:
        dataloader: a prepared loader, a torch loader, or anything that can be iterated.
        num_batches: how many batches of this process were seen.

    Returns:
        A loader of the same kind: a prepared one for a prepared one, a torch loader of the same class for a
        torch loader, and for anything else, and torch loaders over an `IterableDataset`, a `SkipDataLoader`,
        which reads the first samples of a stream, or the first batches of anything else, and drops them.

    Raises:
        ConfigurationError: `num_batches` is negative (a ValueError).
        TypeError: `dataloader` cannot be iterated, or `num_batches` is no integer.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> loader = DataLoader(range(10), batch_size=3)
        >>> [batch.tolist() for batch in skip_first_batches(loader, 2)]
        [[6, 7, 8], [9]]
    """
    num_batches = operator.index(num_batches)
    if num_batches < 0:
        raise ConfigurationError(f"skip_first_batches(..., {num_batches=}): it must be 0 or more.")
    return cast("Loader", _rest_of(dataloader, num_batches))


def _rest_of(loader: Any, num_batches: int) -> Any:
    if isinstance(loader, SkipDataLoader):
        return SkipDataLoader.wrap(loader.base_dataloader, loader.skip_batches + num_batches)
    if isinstance(loader, PreparedLoader):
        return loader.without_first(num_batches)
    if _reads_by_index(loader):
        return without_first(loader, num_batches)
    return SkipDataLoader.wrap(loader, num_batches)


def _reads_by_index(loader: Any) -> bool:
    return isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)


class SkipDataLoader(DataLoaderAdapter, DataLoaderStateMixin):
    """Leave out the first batches of a loader in each pass; the accumulation window knows its end.

    Args:
        dataset: as for `torch.utils.data.DataLoader`.
        skip_batches: how many batches are left out.
        use_stateful_dataloader: hold torchdata's `StatefulDataLoader`.
        kwargs: as for `torch.utils.data.DataLoader`.

    Raises:
        MissingPackageError: `use_stateful_dataloader=True` without torchdata.
        TypeError: a keyword that `DataLoader` does not know.
    """

    skip_batches: int
    _pass: int = 0  # the pass that owns the place in the accumulation window

    def __init__(
        self, dataset: Any, skip_batches: int = 0, use_stateful_dataloader: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(dataset, use_stateful_dataloader=use_stateful_dataloader, **kwargs)
        self.skip_batches = skip_batches

    @classmethod
    def wrap(cls, batches: Iterable[Any], skip_batches: int) -> "SkipDataLoader":
        """Return a loader around anything that can be iterated.

        Raises:
            TypeError: it cannot.
        """
        if not isinstance(batches, Iterable) and not hasattr(batches, "__getitem__"):
            raise TypeError(f"skip_first_batches({batches!r}, …): a loader, or another iterable, is needed.")
        skipping = cls.__new__(cls)
        skipping.base_dataloader = cast("DataLoader[Any]", batches)
        skipping.skip_batches = skip_batches
        return skipping

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        base = type(self.__dict__.get("base_dataloader"))
        return base if issubclass(base, DataLoader) else type(self)

    def __len__(self) -> int:
        """Return the number of batches that are left."""
        return max(0, len(self.base_dataloader) - self.skip_batches)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches that are left; until the pass ends, this is the active loader."""
        self._pass = this_pass = self._pass + 1
        self.begin()
        try:
            batches = self._rest()
            batch = next(batches, _END)
            while batch is not _END:
                upcoming = next(batches, _END)
                self.end_of_dataloader = upcoming is _END
                yield batch
                batch = upcoming
        finally:
            if self._pass == this_pass:  # otherwise a later pass over this loader is on
                self.end()

    def _rest(self) -> Iterator[Any]:
        if _reads_by_index(self.base_dataloader):
            return iter(without_first(self.base_dataloader, self.skip_batches))
        if isinstance(self.base_dataloader, DataLoader):
            return iterate_stream_from(self.base_dataloader, self.skip_batches)
        return islice(self.base_dataloader, self.skip_batches, None)
