"""What a checkpoint gives back, part by part: the mirror of plan. Called by checkpointing on every rank.

What a part needs is checked before anything is loaded; what stays unused in the folder is named at the end.
"""

import logging
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from accelerate.checkpoint import files, manifest, naming, rng, window
from accelerate.checkpoint.manifest import MANIFEST, Manifest
from accelerate.checkpoint.model import load_model
from accelerate.checkpoint.place import journals, place_of
from accelerate.checkpoint.plan import Registry, placed_loaders, stateful_loaders
from accelerate.devices.base import Device
from accelerate.errors import CheckpointError, MismatchedCheckpointError, MissingCheckpointFileError

__all__ = [
    "Source",
    "load_custom_object",
    "load_gradients",
    "load_objects",
    "load_random_states",
    "location_of",
    "require_custom_objects",
    "require_files",
    "tell_unused",
    "undisturbed",
]

logger = logging.getLogger(__name__)


@dataclass
class Source:
    """A checkpoint that is being loaded, and what was taken from it.

    Attributes:
        folder: where it is; it is whole, as far as anything tells.
        manifest: what it consists of; None for a legacy folder.
        used: files that something was loaded from, or that are known not to be needed.
    """

    folder: Path
    manifest: Manifest | None = None
    used: set[str] = field(default_factory=set)

    def take(self, name: str) -> Path:
        """Return the path of a file, and note that it is used."""
        self.used.add(name)
        return self.folder / name

    def load(self, name: str, **kwargs: Any) -> Any:
        """Read a file that `torch.save` wrote; without a manifest its own checksums are compared."""
        path = self.take(name)
        if self.manifest is None:
            files.require_intact(path)
        return files.load(path, **kwargs)

    def names(self) -> list[str]:
        """Return the files of the checkpoint."""
        if self.manifest is not None:
            return sorted(name for name in self.manifest.files if (self.folder / name).exists())
        names = os.listdir(self.folder) if self.folder.is_dir() else []
        return sorted(name for name in names if name != MANIFEST and naming.is_checkpoint_file(name))

    def missing(self) -> list[str]:
        """Return the files that a save has put there, and that are gone."""
        files = self.manifest.files if self.manifest is not None else {}
        return sorted(set(files).difference(self.names()))

    def unused(self) -> list[str]:
        """Return the files whose kind is known, and that nothing was loaded from."""
        return [name for name in self.names() if naming.is_checkpoint_file(name) and name not in self.used]


@contextmanager
def undisturbed(source: Source) -> Iterator[None]:
    """Surround the loading of files that were checked, during which another run may save into their folder.

    Raises:
        CheckpointError: it did: what was loaded may be of two saves.
    """
    try:
        yield
    except Exception as error:
        if _is_replaced(source):
            raise _disturbed(source) from error
        raise
    if _is_replaced(source):
        raise _disturbed(source)


def _is_replaced(source: Source) -> bool:
    if source.manifest is None:
        return False
    if journals(place_of(source.folder)):  # asked first: a journal ends after the manifest has changed
        return True
    try:
        now = manifest.read(source.folder)
    except (CheckpointError, OSError):
        return True
    return now is None or now.generation != source.manifest.generation


def _disturbed(source: Source) -> CheckpointError:
    return CheckpointError(
        f"{source.folder} was removed or replaced by another save while it was being loaded: what was loaded "
        "may be of two saves. Load again."
    )


def location_of(map_location: Any, device: torch.device, *, on_device: bool) -> torch.device:
    """Return where tensors are read to.

    Args:
        map_location: what the user asked for: None, "cpu" or "on_device".
        device: of this rank.
        on_device: what None means.

    Raises:
        TypeError: it is something else.
    """
    if map_location is None:
        map_location = "on_device" if on_device else "cpu"
    if map_location not in ("cpu", "on_device"):
        raise TypeError(
            f"map_location={map_location!r}: please choose one of `None`, `'cpu'`, or `'on_device'`."
        )
    # The CPU has no index here: readers refuse "cpu:0", which is how torch names that of a rank.
    return torch.device("cpu") if map_location == "cpu" or device.type == "cpu" else device


# ---- checks ------------------------------------------------------------------------------------------------


def _required(registry: Registry) -> list[tuple[str, ...]]:
    """Return the names of the files that loading reads; of names in one tuple, one is enough."""
    required = [
        tuple(naming.weights(index, safe_serialization=safe) for safe in (True, False))
        for index in range(len(registry.models))
    ]
    required += [(naming.optimizer(index),) for index in range(len(registry.optimizers))]
    required += [(naming.scheduler(index),) for index in range(len(registry.schedulers))]
    # Without torchdata a loader's place is a good addition, which other checkpoints do not have.
    stateful = [
        item
        for item in stateful_loaders(registry.loaders)
        if getattr(item[1], "use_stateful_dataloader", False)
    ]
    required += [(naming.loader(index),) for index, _ in stateful]
    return required + ([(naming.scaler(),)] if registry.scaler is not None else [])


def require_files(folder: Path, registry: Registry) -> None:
    """Check that the folder has a file for everything in `registry`.

    Raises:
        MissingCheckpointFileError: it has not.
    """
    found = set(os.listdir(folder)) if folder.is_dir() else set()
    missing = [" or ".join(names) for names in _required(registry) if not found.intersection(names)]
    if missing:
        raise MissingCheckpointFileError(
            f"{folder} lacks {', '.join(missing)}; it holds {', '.join(sorted(found)) or 'nothing'}. "
            "Nothing was loaded. Prepare the same models, optimizers, schedulers and loaders as at the save."
        )


def require_custom_objects(source: Source, num_registered: int) -> None:
    """Check that as many objects are registered as were saved.

    Raises:
        CheckpointError: it is another number.
    """
    names = [name for name in source.names() if naming.custom_object_index(name) is not None]
    if len(names) != num_registered:
        raise CheckpointError(
            f"Number of custom checkpoints in folder {source.folder} does not match the number of registered "
            f"objects: found {len(names)} ({', '.join(names) or 'none'}), registered "
            f"{num_registered}. Nothing was loaded. Call `register_for_checkpointing` with the objects that "
            "were registered at the save, in the same order, or move the files away and load them with "
            "`load_custom_state`."
        )


# ---- parts -------------------------------------------------------------------------------------------------


def load_objects(
    source: Source,
    registry: Registry,
    location: torch.device,
    load_kwargs: Mapping[str, Any],
    model_kwargs: Mapping[str, Any],
) -> None:
    """Load models, optimizers, schedulers, loaders and the scaler."""
    for index, model in enumerate(registry.models):
        pickled = source.folder / naming.weights(index, safe_serialization=False)
        if source.manifest is None and pickled.exists():
            files.require_intact(pickled)
        load_model(model, source.folder, index, location, **model_kwargs)
        source.used |= {naming.weights(index, safe_serialization=safe) for safe in (True, False)}
    kwargs = {"map_location": location, **load_kwargs}
    if source.manifest is not None:  # and its files are whole
        for optimizer in registry.optimizers:
            _make_room(optimizer)
    for name, objects in (
        (naming.optimizer, enumerate(registry.optimizers)),
        (naming.scheduler, enumerate(registry.schedulers)),
        (naming.loader, placed_loaders(source.folder, registry.loaders)),
    ):
        for index, obj in objects:
            _load_object(obj, source, name(index), **kwargs)
    if registry.scaler is not None:
        _load_object(registry.scaler, source, naming.scaler(), **kwargs)


def _load_object(obj: Any, source: Source, name: str, **kwargs: Any) -> None:
    state = source.load(name, **kwargs)
    try:
        obj.load_state_dict(state)
    except CheckpointError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError) as error:  # what torch's objects raise
        reason = f"{type(error).__name__}: {error}"
        raise MismatchedCheckpointError(
            f"{source.folder / name} does not fit the {_called(obj)}: {reason}"
        ) from error


def _called(obj: Any) -> str:
    inner = getattr(obj, "optimizer", getattr(obj, "scheduler", obj))
    return type(inner).__name__


def _make_room(optimizer: Any) -> None:
    """Let go of the state of an optimizer before another one is read, so that both are never in memory."""
    inner = getattr(optimizer, "optimizer", optimizer)
    if not isinstance(inner, torch.optim.Optimizer):
        return
    replaces = type(inner).load_state_dict is torch.optim.Optimizer.load_state_dict
    if replaces and not inner._optimizer_load_state_dict_pre_hooks:
        inner.state.clear()


def load_custom_object(obj: Any, source: Source, index: int, *, weights_only: bool) -> None:
    """Load the index-th registered object."""
    name = naming.custom_object(index)
    logger.info("Loading the state of %s from %s", type(obj).__name__, source.folder / name)
    obj.load_state_dict(source.load(name, map_location="cpu", weights_only=weights_only))


def load_gradients(
    source: Source, modules: Sequence[Any], optimizers: Sequence[Any], *, rank: int, world_size: int
) -> dict[str, torch.Tensor] | None:
    """Bring the gradients of an open accumulation window back.

    Args:
        source: the checkpoint.
        modules: the user's modules.
        optimizers: the prepared optimizers.
        rank: this process.
        world_size: number of ranks now.

    Returns:
        What else was counted in the window; None where none was open when the checkpoint was written.

    Raises:
        CheckpointError: what was counted has no meaning for this number of ranks.
    """
    names = {of_rank: name for name in source.names() if (of_rank := naming.gradients_rank(name)) is not None}
    if not names:
        return None
    if len(names) == world_size and rank in names:
        gradients = files.read_safetensors(source.folder / names[rank])
    else:
        gradients = window.mean([files.read_safetensors(source.folder / name) for name in names.values()])
    gradients, counted = window.split(gradients)
    if counted and len(names) != world_size:
        raise CheckpointError(
            f"{source.folder} was saved on {len(names)} ranks inside an accumulation window of "
            f"`backward(loss, num_items=...)`, and cannot go on on {world_size}: save after the optimizer's "
            "step."
        )
    left = window.restore(gradients, modules, optimizers)
    source.used |= set(names.values())
    if left:
        warnings.warn(
            f"Gradients of the open accumulation window not restored from {source.folder}: no parameter of "
            f"that shape is prepared for {', '.join(left)}.",
            stacklevel=3,
        )
    return counted


def load_random_states(source: Source, rank: int, device: Device) -> dict[str, Any]:
    """Restore this rank's generators; return the step, from another rank's file if this one has none."""
    of_ranks = {
        of_rank: name for name in source.names() if (of_rank := naming.random_states_rank(name)) is not None
    }
    own = source.folder / naming.random_states(rank)
    try:
        states = source.load(own.name, map_location="cpu")
    except CheckpointError as error:
        warnings.warn(
            f"Random states of rank {rank} not restored: {error} The run goes on with other random numbers "
            "than the one that was saved.",
            stacklevel=3,
        )
        return _step_of_any_rank(source.folder, of_ranks.values())
    rng.restore(states, device, source=str(own))
    return {rng.STEP: states[rng.STEP]} if rng.STEP in states else {}


def _step_of_any_rank(folder: Path, names: Iterable[str]) -> dict[str, Any]:
    for name in sorted(names):
        try:
            return {rng.STEP: files.load(folder / name, map_location="cpu")[rng.STEP]}
        except (CheckpointError, LookupError, TypeError):
            continue  # this rank's own file has been warned about; another one may still tell the step
    return {}


def tell_unused(source: Source, world_size: int, *, strict: bool) -> None:
    """Name in a warning what a checkpoint holds, or should hold, and nothing was loaded from.

    Args:
        source: the checkpoint, after loading.
        world_size: number of ranks now, each of which has taken its own random states.
        strict: raise instead.

    Raises:
        CheckpointError: with `strict`, something was not restored.
    """
    source.used |= {naming.random_states(rank) for rank in range(world_size)}
    generators = [
        str(rank) for name in source.unused() if (rank := naming.random_states_rank(name)) is not None
    ]
    unused = [name for name in source.unused() if naming.random_states_rank(name) is None]
    messages = []
    if generators:
        messages.append(
            f"Random states of rank {', '.join(generators)} not restored from {source.folder}: there are "
            f"{world_size} rank(s) now, and were more when it was saved."
        )
    if unused:
        messages.append(
            f"Not restored from {source.folder}: {', '.join(unused)}. The checkpoint holds them, and nothing "
            f"that they belong to was prepared or registered on these {world_size} rank(s)."
        )
    if source.missing():
        messages.append(
            f"Not restored from {source.folder}: {', '.join(source.missing())}. Somebody has removed them "
            "from the checkpoint."
        )
    if messages and strict:
        raise CheckpointError(" ".join(messages))
    for message in messages:
        warnings.warn(message, stacklevel=4)
