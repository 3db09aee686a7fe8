"""Change for a while whether loaders complete their last batches. Called by `join_uneven_inputs`."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from accelerate.data.rounds import BatchSamplerShard
from accelerate.data.samplers import index_sampler, without_skips

__all__ = ["even_batches"]


@contextmanager
def even_batches(loaders: Iterable[Any], value: bool | None) -> Iterator[None]:
    """Set `even_batches` of prepared loaders inside the block; passes that begin there follow it.

    Args:
        loaders: what `prepare` gave on several ranks. Those that do not deal out batches by a sampler of
            this package cannot change, which is warned about.
        value: the setting; None leaves all as they are.
    """
    samplers = [] if value is None else [without_skips(index_sampler(loader)) for loader in loaders]
    shards = [sampler for sampler in samplers if isinstance(sampler, BatchSamplerShard)]
    if len(shards) < len(samplers):
        warnings.warn(
            f"join_uneven_inputs(even_batches={value}) has no effect on {len(samplers) - len(shards)} of "
            f"{len(samplers)} prepared loaders: only those over map-style datasets that are not dispatched "
            "can change.",
            stacklevel=5,
        )
    before = [shard.even_batches for shard in shards]
    try:
        for shard in shards:
            shard.even_batches = bool(value)
        yield
    finally:
        for shard, saved in zip(shards, before, strict=True):
            shard.even_batches = saved
