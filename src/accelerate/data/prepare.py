"""From a user's loader to the loader of this rank, by one table of cases. Called by the Accelerator.

A user's loader is wrapped, not rebuilt. Where this rank reads only some of its batches, a shallow copy
of it gets another sampler, and keeps its class, its workers' settings and everything else.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from accelerate.data import stateful
from accelerate.data.adapter import DataLoaderAdapter
from accelerate.data.dispatch import DataLoaderDispatcher
from accelerate.data.loader import PreparedLoader
from accelerate.data.mesh import DataShares
from accelerate.data.progress import own_generator
from accelerate.data.rounds import BatchSamplerShard, is_counted
from accelerate.data.samplers import (
    SeedableRandomSampler,
    SkipBatchSampler,
    get_sampler,
    index_sampler,
    sampler_chain,
    with_sampler,
)
from accelerate.data.shard import DataLoaderShard
from accelerate.data.streams import IterableDatasetShard, own_part, with_dataset
from accelerate.errors import ConfigurationError
from accelerate.options.enums import RNGType
from accelerate.runtime.collectives import broadcast_object_list, current_ranks
from accelerate.runtime.current import current

__all__ = ["prepare_data_loader"]


@dataclass(frozen=True, kw_only=True)
class _Request:
    """A loader and what was asked for it, with all defaults filled in."""

    loader: "DataLoader[Any]"
    device: torch.device | None
    num_processes: int
    process_index: int
    split_batches: bool
    even_batches: bool
    dispatch_batches: bool
    rng_types: list[str | RNGType] | None
    slice_fn: Callable[..., Any] | None
    use_seedable_sampler: bool
    data_seed: int | None
    non_blocking: bool
    use_stateful_dataloader: bool
    torch_device_mesh: Any


def prepare_data_loader(
    dataloader: "DataLoader[Any]",
    device: torch.device | None = None,
    num_processes: int | None = None,
    process_index: int | None = None,
    split_batches: bool = False,
    put_on_device: bool = False,
    rng_types: list[str | RNGType] | None = None,
    dispatch_batches: bool | None = None,
    even_batches: bool = True,
    slice_fn_for_dispatch: Callable[..., Any] | None = None,
    use_seedable_sampler: bool = False,
    data_seed: int | None = None,
    non_blocking: bool = False,
    use_stateful_dataloader: bool = False,
    torch_device_mesh: Any = None,
) -> "DataLoader[Any]":
    """Return a loader that gives this rank its part of the batches of `dataloader`.

    Every rank calls this with a loader over the same dataset. The given loader is not changed, with one
    exception: with several ranks, a torch sampler that shuffles without a generator is given one, which
    follows that of rank 0 at the start of each pass. A `use_seedable_sampler` without `data_seed` takes the
    seed of rank 0 (a collective, where there are several ranks).

    Args:
        dataloader: a torch loader over a dataset of any kind. One that was prepared is returned as it is.
        device: where batches go, when `put_on_device` is set.
        num_processes: number of ranks that share the batches; those of the current run when None.
        process_index: this rank; that of the current run when None.
        split_batches: a batch of `dataloader` is one of all ranks together, and is cut into a share for each;
            otherwise each rank gets whole batches in turn.
        put_on_device: move batches to `device`.
        rng_types: random states that follow rank 0 at the start of each pass; the sampler's generator when
            None.
        dispatch_batches: rank 0 reads and sends each rank its batches; None means so for an
            `IterableDataset` whose batches go to `device`. False lets each rank read its part of a stream:
            its own shards where the dataset has `shard` and enough of them, else its share of every round.
        even_batches: complete the last batches with samples from the beginning, so that all ranks
            get equally many and equally large ones.
        slice_fn_for_dispatch: used by `dispatch_batches=True` only.
        use_seedable_sampler: shuffle by seed and epoch alone, alike on any number of ranks.
        data_seed: the seed of `use_seedable_sampler`; torch's own initial seed when None.
        non_blocking: let copies to the device overlap with the host (useful with pinned memory).
        use_stateful_dataloader: let torchdata's `StatefulDataLoader` read, and keep its state.
        torch_device_mesh: a mesh over all ranks; those that differ only in dims named "tp", "cp", "sp" or
            "pp" get the same batches. It decides in place of `num_processes` and `process_index`.

    Returns:
        A `DataLoaderShard`, which `isinstance` takes for a loader of the given loader's class.

    Raises:
        ConfigurationError: what was asked for is not available in this version, or contradicts itself, as
            `split_batches` with a batch size that the ranks cannot share equally.
    """
    if isinstance(dataloader, DataLoaderAdapter):
        return cast("DataLoader[Any]", dataloader)
    index, count = _place(process_index, num_processes, torch_device_mesh)
    request = _Request(
        loader=dataloader,
        device=device if put_on_device else None,
        num_processes=count,
        process_index=index,
        split_batches=split_batches,
        even_batches=even_batches,
        dispatch_batches=_dispatches(dataloader, dispatch_batches, put_on_device),
        rng_types=rng_types,
        slice_fn=slice_fn_for_dispatch,
        use_seedable_sampler=use_seedable_sampler,
        data_seed=data_seed,
        non_blocking=non_blocking,
        use_stateful_dataloader=use_stateful_dataloader,
        torch_device_mesh=torch_device_mesh,
    )
    if slice_fn_for_dispatch is not None and not request.dispatch_batches:
        warnings.warn("slice_fn_for_dispatch is used by dispatch_batches=True only; ignored.", stacklevel=2)
    build = next(build for applies, build in _CASES if applies(request))
    return cast("DataLoader[Any]", build(request))


def _dispatches(dataloader: Any, asked: bool | None, put_on_device: bool) -> bool:
    """Return whether rank 0 reads for all: streams are read so where nothing is said."""
    if asked and not put_on_device:
        raise ConfigurationError("Using `dispatch_batches=True` requires `put_on_device=True`.")
    if asked is None:
        return put_on_device and isinstance(getattr(dataloader, "dataset", None), IterableDataset)
    return asked


def _place(process_index: int | None, num_processes: int | None, mesh: Any) -> tuple[int, int]:
    """Return which share of the batches is this rank's, and the number of shares.

    A mesh knows better than the caller, who does not see which ranks share a model.
    """
    if mesh is not None:
        world = current.ensure().world
        shares = DataShares.of(mesh, world)
        return shares.of_ranks[world.rank], shares.count
    if process_index is None or num_processes is None:
        run = current.ensure()
        process_index = run.process_index if process_index is None else process_index
        num_processes = run.num_processes if num_processes is None else num_processes
    if not 0 <= process_index < num_processes:
        raise ConfigurationError(
            f"process_index={process_index}, num_processes={num_processes}: "
            "0 <= process_index < num_processes must hold."
        )
    return process_index, num_processes


def _is_of_run(request: _Request) -> bool:
    """Return whether the loader is shared by all ranks of the current run, and these are several."""
    several = request.num_processes > 1 and current.started and current.world.size > 1
    return several and (request.torch_device_mesh is not None or request.num_processes == current.world.size)


def _require_alike(request: _Request) -> None:
    """Raise on every rank if the ranks prepare loaders of different lengths. All ranks of the run call it."""
    sampler = index_sampler(request.loader)
    # Others may draw random numbers to tell their length, and these are not alike yet.
    mine = [_length(request.loader.dataset), _length(sampler) if is_counted(sampler) else -1]
    lengths = current_ranks().numbers_of_all("prepare_data_loader", mine)
    if any(each != lengths[0] for each in lengths):
        words = "; ".join(f"rank {rank}: {data}, {batches}" for rank, (data, batches) in enumerate(lengths))
        raise ConfigurationError(
            "Ranks prepare loaders that differ in length (samples and batches, -1 where it is unknown): "
            f"{words}. Each rank must load the same whole dataset, and gets its part of it by itself. A "
            "loader that has only this rank's part must not be prepared: move its batches to the device."
        )


def _length(sized: Any) -> int:
    try:
        return len(sized)
    except (TypeError, NotImplementedError):  # a stream, or a sampler that cannot tell
        return -1


# --- The table: (does this case apply, what the base loader of this rank is), first match wins ---------


def _refuse_other_kinds(request: _Request) -> NoReturn:
    raise ConfigurationError(
        f"prepare_data_loader({request.loader!r}): a torch.utils.data.DataLoader is needed. Put the data in "
        "a dataset and make a DataLoader of it."
    )


def _refuse_uneven_split(request: _Request) -> NoReturn:
    size = _batch_size(request.loader)
    if size is None:
        raise ConfigurationError(
            "split_batches=True needs a batch size to split, but neither the loader nor its batch sampler "
            f"{index_sampler(request.loader)!r} has a `batch_size`. Give one, or leave split_batches=False."
        )
    raise ConfigurationError(
        f"To use a `DataLoader` in `split_batches` mode, the batch size ({size}) needs to be a round "
        f"multiple of the number of processes ({request.num_processes})."
    )


def _refuse_sharded_twice(request: _Request) -> NoReturn:
    raise ConfigurationError(
        f"The loader's sampler {get_sampler(request.loader)!r} already gives each rank its part; sharding "
        "it again would leave out samples. Make the loader without it (with shuffle=True, if you like: all "
        "ranks then shuffle alike)."
    )


def _base(request: _Request) -> "DataLoader[Any]":
    """Return the user's loader, unless its order is to be seedable or torchdata is to keep its place."""
    if _is_of_run(request):
        _require_alike(request)
    loader = _seedable(request) if request.use_seedable_sampler else request.loader
    return stateful.as_stateful(loader) if request.use_stateful_dataloader else loader


def _dispatched(request: _Request) -> PreparedLoader:
    return DataLoaderDispatcher.wrap(
        _base(request),
        device=request.device,
        split_batches=request.split_batches,
        even_batches=request.even_batches,
        slice_fn=request.slice_fn,
        torch_device_mesh=request.torch_device_mesh,
        drop_last=request.loader.drop_last,
        non_blocking=request.non_blocking,
        given=request.loader,
    )


def _all_batches(request: _Request) -> PreparedLoader:
    return _shard(request, _base(request))


def _own_batches(request: _Request) -> PreparedLoader:
    """Deal what the loader's index sampler yields: batches, or single items where it has no batch sampler."""
    loader = _base(request)
    sampler = BatchSamplerShard(
        index_sampler(loader),
        num_processes=request.num_processes,
        process_index=request.process_index,
        split_batches=request.split_batches,
        even_batches=request.even_batches,
    )
    return _shard(request, with_sampler(loader, sampler))


def _own_part(request: _Request) -> PreparedLoader:
    """Read those shards of a stream that are this rank's, or where there are too few, its shares."""
    loader = _base(request)
    part = own_part(loader.dataset, request.num_processes, request.process_index)
    if part is None or request.split_batches:
        dealt = IterableDatasetShard(
            loader.dataset,
            batch_size=loader.batch_size or 1,
            drop_last=loader.drop_last,
            num_processes=request.num_processes,
            process_index=request.process_index,
            split_batches=request.split_batches,
        )
        dealt.even_batches = request.even_batches
        share = None if loader.batch_size is None else dealt.share
        return _shard(request, with_dataset(loader, dealt, batch_size=share))
    shard = _shard(request, with_dataset(loader, part))
    shard.take_part(request.num_processes, together=request.even_batches and _is_of_run(request))
    return shard


def _shard(request: _Request, base: "DataLoader[Any]") -> DataLoaderShard:
    generator = _shared_generator(base) if request.num_processes > 1 else None
    return DataLoaderShard.wrap(
        base,
        device=request.device,
        rng_types=_states_to_share(request.rng_types, generator),
        synchronized_generator=generator,
        drop_last=request.loader.drop_last,
        non_blocking=request.non_blocking,
        given=request.loader,
    )


_CASES: tuple[tuple[Callable[[_Request], bool], Callable[[_Request], PreparedLoader]], ...] = (
    (lambda request: not isinstance(request.loader, DataLoader), _refuse_other_kinds),
    (lambda request: request.split_batches and not _splits_evenly(request), _refuse_uneven_split),
    (lambda request: request.num_processes > 1 and _is_sharded(request.loader), _refuse_sharded_twice),
    (lambda request: request.dispatch_batches, _dispatched),
    (lambda request: request.num_processes == 1, _all_batches),
    (lambda request: isinstance(request.loader.dataset, IterableDataset), _own_part),
    (lambda request: True, _own_batches),
)


def _batch_size(loader: "DataLoader[Any]") -> int | None:
    return loader.batch_size or getattr(index_sampler(loader), "batch_size", None)


def _splits_evenly(request: _Request) -> bool:
    size = _batch_size(request.loader)
    return size is not None and size % request.num_processes == 0


def _is_sharded(loader: "DataLoader[Any]") -> bool:
    samplers = sampler_chain(loader)
    return any(isinstance(each, DistributedSampler) and each.num_replicas > 1 for each in samplers)


# --- Samplers and generators ---------------------------------------------------------------------------


def _seedable(request: _Request) -> "DataLoader[Any]":
    """Return the loader with its plain random sampler replaced by one that knows only seed and epoch."""
    loader = request.loader
    old = get_sampler(loader)
    if not isinstance(old, RandomSampler) or type(old).__iter__ is not RandomSampler.__iter__:
        return loader
    new = SeedableRandomSampler(
        old.data_source,
        replacement=old.replacement,
        num_samples=old.num_samples,
        data_seed=_agreed_seed(request),
    )
    return with_sampler(loader, _reordered(index_sampler(loader), old, new))


def _reordered(link: Any, old: Any, new: Any) -> Any:
    """Return a chain of samplers with `new` in the place of `old`, the innermost one."""
    if link is old:
        return new
    if type(link) is BatchSampler:
        return BatchSampler(new, link.batch_size, link.drop_last)
    if type(link) is SkipBatchSampler:
        return SkipBatchSampler(_reordered(link.batch_sampler, old, new), link.skip_batches)
    # A user's batch sampler may be held elsewhere, to be told epochs: it must stay the one in use.
    owner = link
    while (inner := getattr(owner, "batch_sampler", None)) is not None:
        owner = inner
    owner.sampler = new
    return link


def _agreed_seed(request: _Request) -> int | None:
    """Return the seed of the order, the same on every rank."""
    if request.data_seed is not None or request.num_processes == 1:
        return request.data_seed
    seeds: list[int] = [torch.initial_seed()]
    broadcast_object_list(seeds)
    return seeds[0]


def _shared_generator(loader: "DataLoader[Any]") -> torch.Generator | None:
    """Return the generator from which the order is drawn, given to torch's own samplers if they have none."""
    sampler = get_sampler(loader)
    if isinstance(sampler, SeedableRandomSampler):
        return None
    own = isinstance(sampler, RandomSampler | SubsetRandomSampler | WeightedRandomSampler)
    if own and sampler.generator is None:
        seed = int(torch.empty((), dtype=torch.int64).random_().item())
        sampler.generator = torch.Generator().manual_seed(seed)
    return own_generator(loader)


def _states_to_share(
    rng_types: list[str | RNGType] | None, generator: torch.Generator | None
) -> list[str | RNGType]:
    asked: list[str | RNGType] = ["generator"] if rng_types is None else list(rng_types)
    if generator is None:
        return [kind for kind in asked if kind not in ("generator", RNGType.GENERATOR)]
    return asked
