"""Change for a while whether loaders complete their last batches. Called by `join_uneven_inputs`."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from accelerate.data.loader import PreparedLoader

__all__ = ["even_batches"]


@contextmanager
def even_batches(loaders: Iterable[Any], value: bool | None) -> Iterator[None]:
    """Set `even_batches` of prepared loaders inside the block; passes that begin there follow it.

    Args:
        loaders: what `prepare` gave on several ranks. Those whose batches are not dealt out by this package
            cannot change, which is warned about.
        value: the setting; None leaves all as they are.
    """
    owners = [] if value is None else [_owner(loader) for loader in loaders]
    known = [owner for owner in owners if owner is not None]
    if len(known) < len(owners):
        warnings.warn(
            f"join_uneven_inputs(even_batches={value}) has no effect on {len(owners) - len(known)} of "
            f"{len(owners)} prepared loaders: their batches are not dealt out here.",
            stacklevel=5,
        )
    before = [owner.even_batches for owner in known]
    try:
        for owner in known:
            owner.even_batches = bool(value)
        yield
    finally:
        for owner, saved in zip(known, before, strict=True):
            owner.even_batches = saved


def _owner(loader: Any) -> Any:
    return loader.evens() if isinstance(loader, PreparedLoader) else None
