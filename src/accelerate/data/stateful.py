"""torchdata's StatefulDataLoader as base of a prepared loader. Called by the adapters and prepare.py.

Its own state travels as the user knows it, beside one entry of ours.
"""

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from accelerate.compat.probes import is_torchdata_stateful_dataloader_available
from accelerate.errors import ConfigurationError, MissingPackageError

__all__ = ["as_stateful", "combined", "is_stateful", "loader_class", "recorded", "separated", "state_of"]

_KEY = "accelerate"  # our entry in torchdata's state
_FINISHED = "_iterator_finished"  # is in every state of torchdata
_END: Any = object()

# Constructor arguments that a loader keeps under their own names.
_KEPT = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "persistent_workers",
    "in_order",
)


def loader_class() -> Any:
    """Return torchdata's class.

    Raises:
        MissingPackageError: torchdata is not installed, or too old.
    """
    if not is_torchdata_stateful_dataloader_available():
        raise MissingPackageError(
            "use_stateful_dataloader=True needs torchdata 0.8.0 or later: run `pip install torchdata`, or "
            "leave it out. Prepared loaders keep their place without it, too."
        )
    from torchdata.stateful_dataloader import StatefulDataLoader  # type: ignore[import-not-found,import-untyped,unused-ignore]

    return StatefulDataLoader


def is_stateful(loader: Any) -> bool:
    """Return whether this is an instance of torchdata's class."""
    return is_torchdata_stateful_dataloader_available() and isinstance(loader, loader_class())


def as_stateful(loader: "DataLoader[Any]") -> "DataLoader[Any]":
    """Return torchdata's loader with the dataset, samplers and options of a torch loader, or that itself.

    Raises:
        MissingPackageError: torchdata is not installed, or too old.
        ConfigurationError: the loader is of a class of the user's own, whose `__iter__` would be lost.
    """
    kind: Any = loader_class()
    if is_stateful(loader):
        return loader
    if type(loader) is not DataLoader:
        raise ConfigurationError(
            f"use_stateful_dataloader=True cannot take a {type(loader).__name__}: only torch's own "
            "DataLoader can be made again as torchdata's. Derive the class from StatefulDataLoader."
        )
    options = {name: getattr(loader, name) for name in _KEPT if hasattr(loader, name)}
    if loader.num_workers:
        options["prefetch_factor"] = loader.prefetch_factor
    if isinstance(loader.dataset, IterableDataset):
        options.update(batch_size=loader.batch_size, drop_last=loader.drop_last)
    elif loader.batch_sampler is not None:
        options["batch_sampler"] = loader.batch_sampler
    else:
        options.update(batch_size=None, sampler=loader.sampler)
    made: DataLoader[Any] = kind(loader.dataset, **options)
    return made


def state_of(owner: Any) -> dict[str, Any]:
    """Return torchdata's state of a prepared loader, as far as it has been read."""
    state: dict[str, Any] = owner.base_dataloader.state_dict()
    return state


def recorded(owner: Any, batches: Iterator[Any]) -> Iterator[Any]:
    """Yield batches to who reads one ahead; `owner.dl_state_dict` is the state behind the one before."""
    batch = next(batches, _END)
    while batch is not _END:
        yield batch
        owner.dl_state_dict = state_of(owner)
        batch = next(batches, _END)


def combined(owner: Any, place: dict[str, Any]) -> dict[str, Any]:
    """Return torchdata's state of a prepared loader with our `place` in it."""
    in_pass = place["batches"] and owner.dl_state_dict is not None
    state = owner.dl_state_dict if in_pass else owner.base_dataloader.state_dict()
    return {**state, _KEY: place}


def separated(
    state: dict[str, Any], place: dict[str, Any]
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return our part and torchdata's part of a state; None for what it does not have.

    A state of torchdata alone, such as one of the interface, tells how many batches were seen; the rest of
    our part is then as in `place`, where the loader stands now.
    """
    theirs = {name: value for name, value in state.items() if name != _KEY}
    if _FINISHED not in theirs:
        return (state if "version" in state else None), None
    seen = theirs.get("_num_yielded", theirs.get("_snapshot", {}).get("_snapshot_step", 0))
    unknown = {**place, "batches": 0 if theirs[_FINISHED] else seen, "unit": None, "order": {}}
    return state.get(_KEY, unknown), theirs
