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

from accelerate.data.adapter import DataLoaderAdapter
from accelerate.data.rounds import BatchSamplerShard
from accelerate.data.samplers import (
    SeedableRandomSampler,
    SkipBatchSampler,
    get_sampler,
    index_sampler,
    sampler_chain,
    with_sampler,
)
from accelerate.data.shard import DataLoaderShard
from accelerate.errors import ConfigurationError
from accelerate.options.enums import RNGType
from accelerate.runtime.collectives import broadcast_object_list
from accelerate.runtime.current import current

__all__ = ["prepare_data_loader"]


@dataclass(frozen=True, kw_only=True)
class _Request:
    """A loader and what was asked for it, with all defaults filled in."""

    loader: "DataLoader[Any]"
    num_processes: int
    process_index: int
    split_batches: bool
    even_batches: bool
    dispatch_batches: bool | None
    use_seedable_sampler: bool
    data_seed: int | None
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
        dataloader: a torch loader over a dataset that is read by index. One that was prepared is returned as
            it is.
        device: where batches go, when `put_on_device` is set.
        num_processes: number of ranks that share the batches; those of the current run when None.
        process_index: this rank; that of the current run when None.
        split_batches: a batch of `dataloader` is one of all ranks together, and is cut into a share for each;
            otherwise each rank gets whole batches in turn.
        put_on_device: move batches to `device`.
        rng_types: random states that follow rank 0 at the start of each pass; the sampler's generator when
            None.
        dispatch_batches: True is not available in this version.
        even_batches: complete the last batches with samples from the beginning, so that all ranks
            get equally many and equally large ones.
        slice_fn_for_dispatch: used by `dispatch_batches=True` only.
        use_seedable_sampler: shuffle by seed and epoch alone, alike on any number of ranks.
        data_seed: the seed of `use_seedable_sampler`; torch's own initial seed when None.
        non_blocking: let copies to the device overlap with the host (useful with pinned memory).
        use_stateful_dataloader: True is not available in this version.
        torch_device_mesh: a device mesh is not available in this version.

    Returns:
        A `DataLoaderShard`, which `isinstance` takes for a loader of the given loader's class.

    Raises:
        ConfigurationError: what was asked for is not available in this version, or contradicts itself, as
            `split_batches` with a batch size that the ranks cannot share equally.
    """
    if isinstance(dataloader, DataLoaderAdapter):
        return cast("DataLoader[Any]", dataloader)
    if slice_fn_for_dispatch is not None and not dispatch_batches:
        warnings.warn("slice_fn_for_dispatch is used by dispatch_batches=True only; ignored.", stacklevel=2)
    rank, size = _place(process_index, num_processes)
    request = _Request(
        loader=dataloader,
        num_processes=size,
        process_index=rank,
        split_batches=split_batches,
        even_batches=even_batches,
        dispatch_batches=dispatch_batches,
        use_seedable_sampler=use_seedable_sampler,
        data_seed=data_seed,
        use_stateful_dataloader=use_stateful_dataloader,
        torch_device_mesh=torch_device_mesh,
    )
    base = next(build for applies, build in _CASES if applies(request))(request)
    generator = _shared_generator(base) if size > 1 else None
    prepared = DataLoaderShard.wrap(
        base,
        device=device if put_on_device else None,
        rng_types=_states_to_share(rng_types, generator),
        synchronized_generator=generator,
        drop_last=dataloader.drop_last,
        non_blocking=non_blocking,
        given=dataloader,
    )
    return cast("DataLoader[Any]", prepared)


def _place(process_index: int | None, num_processes: int | None) -> tuple[int, int]:
    """Return rank and number of ranks, those of the current run where they were not given."""
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


# --- The table: (does this case apply, what the base loader of this rank is), first match wins ---------


def _not_available(asked: str, instead: str) -> Callable[[_Request], NoReturn]:
    def refuse(request: _Request) -> NoReturn:
        raise ConfigurationError(f"{asked} is not available in this version. {instead}")

    return refuse


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


def _all_batches(request: _Request) -> "DataLoader[Any]":
    """Return the user's loader itself, unless its order is to be seedable."""
    return _seedable(request) if request.use_seedable_sampler else request.loader


def _own_batches(request: _Request) -> "DataLoader[Any]":
    """Deal what the loader's index sampler yields: batches, or single items where it has no batch sampler."""
    loader = _all_batches(request)
    sampler = BatchSamplerShard(
        index_sampler(loader),
        num_processes=request.num_processes,
        process_index=request.process_index,
        split_batches=request.split_batches,
        even_batches=request.even_batches,
    )
    return with_sampler(loader, sampler)


_CASES: tuple[tuple[Callable[[_Request], bool], Callable[[_Request], "DataLoader[Any]"]], ...] = (
    (lambda request: not isinstance(request.loader, DataLoader), _refuse_other_kinds),
    (
        lambda request: request.torch_device_mesh is not None,
        _not_available("torch_device_mesh", "Leave it at None: each rank then reads its own batches."),
    ),
    (
        lambda request: request.use_stateful_dataloader,
        _not_available("use_stateful_dataloader=True", "Leave it at False."),
    ),
    (
        lambda request: isinstance(request.loader.dataset, IterableDataset),
        _not_available("Loading from an IterableDataset", "Use a dataset with __getitem__ and __len__."),
    ),
    (
        lambda request: bool(request.dispatch_batches),
        _not_available("dispatch_batches=True", "Leave it at None: each rank then reads its own batches."),
    ),
    (lambda request: request.split_batches and not _splits_evenly(request), _refuse_uneven_split),
    (lambda request: request.num_processes == 1, _all_batches),
    (lambda request: _is_sharded(request.loader), _refuse_sharded_twice),
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
    for each in reversed(sampler_chain(loader)):  # a batch sampler may have one, too
        generator = getattr(each, "generator", None)
        if isinstance(generator, torch.Generator):
            return generator
    return None


def _states_to_share(
    rng_types: list[str | RNGType] | None, generator: torch.Generator | None
) -> list[str | RNGType]:
    asked: list[str | RNGType] = ["generator"] if rng_types is None else list(rng_types)
    if generator is None:
        return [kind for kind in asked if kind not in ("generator", RNGType.GENERATOR)]
    return asked
