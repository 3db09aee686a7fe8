"""Save and load the state of a training run, each pair side by side. Called by the facade and by users.

`save_state` and `load_state` hold the order of things; every rank calls them. What a checkpoint consists
of is decided in checkpoint/plan.py, how a file is written in checkpoint/files.py.
"""

import dataclasses
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from accelerate.checkpoint import files, folders, naming, rng
from accelerate.checkpoint.model import load_weights, read_weights, save_model
from accelerate.checkpoint.plan import (
    Registry,
    placed_loaders,
    plan_custom_object,
    plan_objects,
    plan_random_states,
    stateful_loaders,
    write_plan,
)
from accelerate.devices.base import Device
from accelerate.errors import CheckpointError, MissingCheckpointFileError
from accelerate.options.project import ProjectConfiguration
from accelerate.runtime.current import Current, current

if TYPE_CHECKING:
    from accelerate.strategies.base import Owned, Strategy

__all__ = [
    "Registry",
    "load_accelerator_state",
    "load_custom_state",
    "load_state",
    "save_accelerator_state",
    "save_custom_state",
    "save_model",
    "save_state",
]

logger = logging.getLogger(__name__)

SaveHook = Callable[[list[Any], list[Any], str], None]
LoadHook = Callable[[list[Any], str], None]


# ---- the whole state of a run ------------------------------------------------------------------------------


def save_state(
    output_dir: str | os.PathLike[str] | None,
    registry: Registry,
    *,
    run: Current,
    strategy: "Strategy",
    project: ProjectConfiguration,
    wait_for_everyone: Callable[[], None],
    hooks: Iterable[SaveHook] = (),
    safe_serialization: bool = True,
) -> Path:
    """Write a checkpoint: all that training needs to go on. Every rank calls it.

    Counts `project.iteration` up. Under automatic naming, checkpoints beyond `project.total_limit` are
    removed once the new one is written.

    Args:
        output_dir: folder of the checkpoint, made if needed; ignored under automatic naming.
        registry: what is saved.
        run: the current run: who this rank is, and its kind of device.
        strategy: gives full weights, and may write models and optimizers in a way of its own.
        project: folders, automatic naming and limit, and whether each machine gets its own files.
        wait_for_everyone: barrier over all ranks.
        hooks: each called as hook(models, weights, folder) before files are written; a hook that empties
            `weights` writes the models itself.
        safe_serialization: weights as safetensors, else as pickles.

    Returns:
        The folder.

    Raises:
        TypeError: no `output_dir`, and automatic naming is off.
        ConfigurationError: the folder that automatic naming comes to exists, or there is no project folder.
        OSError: a file cannot be written.
    """
    folder = folders.to_write(output_dir, project)
    wait_for_everyone()  # all have checked before the first makes the folder
    folder.mkdir(parents=True, exist_ok=True)
    models = list(registry.models)
    weights = [strategy.state_dict(model) for model in models]
    owned = strategy.save(models, registry.optimizers, folder)
    for hook in tuple(hooks):  # one may remove itself
        hook(models, weights, str(folder))
    common = _without_owned(registry, owned)
    plan = plan_objects(common, [] if owned.models else weights, safe_serialization=safe_serialization)
    plan += [plan_custom_object(obj, index) for index, obj in enumerate(registry.custom_objects)]
    plan.append(plan_random_states(registry.step, run.kind, rank=run.world.rank))
    is_writer = run.world.is_local_main if project.save_on_each_node else run.world.is_main
    write_plan(plan, folder, is_writer=is_writer)
    wait_for_everyone()  # the new checkpoint is whole before an old one goes
    if is_writer and project.automatic_checkpoint_naming:
        folders.remove_oldest(folder, project.total_limit)
    project.iteration += 1
    return folder


def load_state(
    input_dir: str | os.PathLike[str] | None,
    registry: Registry,
    *,
    run: Current,
    strategy: "Strategy",
    project: ProjectConfiguration,
    hooks: Iterable[LoadHook] = (),
    load_kwargs: Mapping[str, Any] | None = None,
    **load_model_func_kwargs: Any,
) -> dict[str, Any]:
    """Bring everything in `registry` into the state that a checkpoint holds. Every rank calls it.

    Folder and file names are checked before anything is changed. Random states come last, so that loading
    does not use them up. Loading the newest checkpoint of automatic naming sets `project.iteration` to the
    number after it.

    Args:
        input_dir: the folder; the newest checkpoint of automatic naming when None.
        registry: what is loaded into.
        run: the current run: who this rank is, and its device.
        strategy: reads what it has written itself.
        project: folders and automatic naming.
        hooks: each called as hook(models, folder) before files are read; models that it takes out of the
            list are not loaded.
        load_kwargs: passed on to `torch.load` for all but weights and random states.
        load_model_func_kwargs: `map_location` (None, "cpu" or "on_device"); the rest (`strict`, `assign`)
            goes to each model's `load_state_dict`.

    Returns:
        Attributes of the Accelerator to set: `step`, unless no random states were found.

    Raises:
        ConfigurationError: no such folder, or none was named.
        TypeError: `map_location` is something else.
        MissingCheckpointFileError: the folder lacks a file for something in `registry`.
        CheckpointError: the number of registered objects differs, or a file is damaged or not safe to read.
    """
    folder = folders.to_read(input_dir, project)
    several = run.world.size > 1
    location = _location(load_model_func_kwargs.pop("map_location", None), run.device, on_device=several)
    _require_custom_objects(folder, len(registry.custom_objects))
    models = list(registry.models)
    for hook in tuple(hooks):  # one may remove itself
        hook(models, str(folder))
    owned = strategy.load(models, registry.optimizers, folder)
    common = _without_owned(dataclasses.replace(registry, models=models), owned)
    _require_files(folder, common)
    _load_objects(folder, common, location, load_kwargs or {}, load_model_func_kwargs)
    weights_only = (load_kwargs or {}).get("weights_only", True)
    for index, obj in enumerate(registry.custom_objects):
        _load_custom_object(obj, folder, index, weights_only=weights_only)
    number = naming.checkpoint_number(folder.name)
    if input_dir is None and number is not None:
        project.iteration = number + 1
    return _load_random_states(folder, run.world.rank, run.kind)


# ---- the common part, with the interface's signatures ------------------------------------------------------


def save_accelerator_state(
    output_dir: str,
    model_states: list[dict[str, Any]],
    optimizers: list[Any],
    schedulers: list[Any],
    dataloaders: list[Any],
    process_index: int,
    step: int,
    scaler: torch.amp.GradScaler | None = None,
    save_on_each_node: bool = False,
    safe_serialization: bool = True,
) -> Path:
    """Write weights, optimizers, schedulers, loaders, scaler and random states into a folder that exists.

    Every rank calls it; each writes its random states, the main process all else. Starts the run if there
    is none.

    Args:
        output_dir: the folder.
        model_states: a state dict for each model.
        optimizers: objects with `state_dict`, as are the next two.
        schedulers: learning rate schedulers.
        dataloaders: data loaders; prepared ones have a file with their place.
        process_index: rank whose random states these are.
        step: the Accelerator's counter, kept beside the random states.
        scaler: gradient scaler.
        save_on_each_node: let the main process of every machine write.
        safe_serialization: weights as safetensors, else as pickles.

    Returns:
        The folder.
    """
    registry = Registry(optimizers=optimizers, schedulers=schedulers, loaders=dataloaders, scaler=scaler)
    plan = plan_objects(registry, model_states, safe_serialization=safe_serialization)
    plan.append(plan_random_states(step, current.ensure().kind, rank=process_index))
    folder = Path(output_dir)
    write_plan(plan, folder, is_writer=files.is_writer(save_on_each_node))
    return folder


def load_accelerator_state(
    input_dir: str,
    models: list[Any],
    optimizers: list[Any],
    schedulers: list[Any],
    dataloaders: list[Any],
    process_index: int,
    scaler: torch.amp.GradScaler | None = None,
    map_location: str | None = None,
    load_kwargs: dict[str, Any] | None = None,
    **load_model_func_kwargs: Any,
) -> dict[str, Any]:
    """Load what `save_accelerator_state` wrote. Every rank calls it. Starts the run if there is none.

    Args:
        input_dir: the folder.
        models: modules, changed in place.
        optimizers: objects with `load_state_dict`, as are the next two.
        schedulers: learning rate schedulers.
        dataloaders: data loaders.
        process_index: rank whose random states to load.
        scaler: gradient scaler.
        map_location: None or "cpu", or "on_device" to read onto this rank's device.
        load_kwargs: passed on to `torch.load` for all but weights and random states.
        load_model_func_kwargs: passed on to each model's `load_state_dict`.

    Returns:
        Attributes of the Accelerator to set: `step`, unless no random states were found.

    Raises:
        TypeError: `map_location` is something else.
        MissingCheckpointFileError: the folder lacks a file for one of the objects.
        CheckpointError: a file is damaged or not safe to read.
    """
    run, folder = current.ensure(), Path(input_dir)
    location = _location(map_location, run.device, on_device=False)
    registry = Registry(
        models=models, optimizers=optimizers, schedulers=schedulers, loaders=dataloaders, scaler=scaler
    )
    _require_files(folder, registry)
    _load_objects(folder, registry, location, load_kwargs or {}, load_model_func_kwargs)
    return _load_random_states(folder, process_index, run.kind)


def save_custom_state(obj: Any, path: str, index: int = 0, save_on_each_node: bool = False) -> None:
    """Write the state of one object into a folder, as `custom_checkpoint_<index>.pkl`.

    Args:
        obj: has `state_dict`. Tensors, numbers, text and containers of them load again without questions.
        path: the folder.
        index: number in the file's name.
        save_on_each_node: let the main process of every machine write.
    """
    write_plan([plan_custom_object(obj, index)], Path(path), is_writer=files.is_writer(save_on_each_node))


def load_custom_state(obj: Any, path: str, index: int = 0) -> None:
    """Load what `save_custom_state` wrote into an object with `load_state_dict`.

    Raises:
        MissingCheckpointFileError: there is no such file.
        UnsafeCheckpointError: the file needs a class that is not known to be safe; allow it with
            `torch.serialization.add_safe_globals`.
    """
    _load_custom_object(obj, Path(path), index, weights_only=True)


# ---- loading, part by part ---------------------------------------------------------------------------------


def _without_owned(registry: Registry, owned: "Owned") -> Registry:
    """Return what is left for the common part of a checkpoint."""
    return dataclasses.replace(
        registry,
        models=() if owned.models else registry.models,
        optimizers=() if owned.optimizers else registry.optimizers,
        schedulers=() if owned.schedulers else registry.schedulers,
    )


def _location(map_location: Any, device: torch.device, *, on_device: bool) -> torch.device:
    if map_location is None:
        map_location = "on_device" if on_device else "cpu"
    if map_location not in ("cpu", "on_device"):
        raise TypeError(
            f"map_location={map_location!r}: please choose one of `None`, `'cpu'`, or `'on_device'`."
        )
    # The CPU has no index here: readers refuse "cpu:0", which is how torch names that of a rank.
    return torch.device("cpu") if map_location == "cpu" or device.type == "cpu" else device


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


def _require_files(folder: Path, registry: Registry) -> None:
    found = set(os.listdir(folder)) if folder.is_dir() else set()
    missing = [" or ".join(names) for names in _required(registry) if not found.intersection(names)]
    if missing:
        raise MissingCheckpointFileError(
            f"{folder} lacks {', '.join(missing)}; it holds {', '.join(sorted(found)) or 'nothing'}. "
            "Nothing was loaded. Prepare the same models, optimizers, schedulers and loaders as at the save."
        )


def _require_custom_objects(folder: Path, num_registered: int) -> None:
    names = [name for name in os.listdir(folder) if naming.custom_object_index(name) is not None]
    if len(names) != num_registered:
        raise CheckpointError(
            f"Number of custom checkpoints in folder {folder} does not match the number of registered "
            f"objects: found {len(names)} ({', '.join(sorted(names)) or 'none'}), registered "
            f"{num_registered}. Nothing was loaded. Call `register_for_checkpointing` with the objects that "
            "were registered at the save, in the same order, or move the files away and load them with "
            "`load_custom_state`."
        )


def _load_objects(
    folder: Path,
    registry: Registry,
    location: torch.device,
    load_kwargs: Mapping[str, Any],
    model_kwargs: Mapping[str, Any],
) -> None:
    for index, model in enumerate(registry.models):
        load_weights(model, read_weights(folder, index, location), **model_kwargs)
    kwargs = {"map_location": location, **load_kwargs}
    for name, objects in (
        (naming.optimizer, enumerate(registry.optimizers)),
        (naming.scheduler, enumerate(registry.schedulers)),
        (naming.loader, placed_loaders(folder, registry.loaders)),
    ):
        for index, obj in objects:
            obj.load_state_dict(files.load(folder / name(index), **kwargs))
    if registry.scaler is not None:
        registry.scaler.load_state_dict(files.load(folder / naming.scaler(), **kwargs))


def _load_custom_object(obj: Any, folder: Path, index: int, *, weights_only: bool) -> None:
    path = folder / naming.custom_object(index)
    logger.info("Loading the state of %s from %s", type(obj).__name__, path)
    obj.load_state_dict(files.load(path, map_location="cpu", weights_only=weights_only))


def _load_random_states(folder: Path, rank: int, device: Device) -> dict[str, Any]:
    """Restore this rank's generators; return the step, from another rank's file if this one has none."""
    own = folder / naming.random_states(rank)
    try:
        states = files.load(own, map_location="cpu")
    except CheckpointError as error:
        warnings.warn(
            f"Random states of rank {rank} not restored: {error} The run goes on with other random numbers "
            "than the one that was saved.",
            stacklevel=3,
        )
        return _step_of_any_rank(folder)
    rng.restore(states, device, source=str(own))
    return {rng.STEP: states[rng.STEP]} if rng.STEP in states else {}


def _step_of_any_rank(folder: Path) -> dict[str, Any]:
    for name in sorted(os.listdir(folder)):
        if naming.random_states_rank(name) is not None:
            try:
                return {rng.STEP: files.load(folder / name, map_location="cpu")[rng.STEP]}
            except (CheckpointError, LookupError, TypeError):
                continue  # this rank's own file has been warned about; another one may still tell the step
    return {}
