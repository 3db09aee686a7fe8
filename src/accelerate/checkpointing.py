"""Save and load the state of a training run, each pair side by side. Called by the facade and by users.

`save_state` and `load_state` hold the order of things; every rank calls them. What a checkpoint consists
of is decided in checkpoint/plan.py and restore.py, how it becomes whole at once in checkpoint/commit.py.
"""

import dataclasses
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from accelerate.checkpoint import files, folders, naming, restore, window
from accelerate.checkpoint.agreement import Ranks
from accelerate.checkpoint.choice import choose
from accelerate.checkpoint.disk import Stamp
from accelerate.checkpoint.model import save_model
from accelerate.checkpoint.place import is_pinned
from accelerate.checkpoint.plan import (
    Registry,
    plan_custom_object,
    plan_gradients,
    plan_objects,
    plan_random_states,
    write_plan,
)
from accelerate.checkpoint.restore import Source
from accelerate.checkpoint.save import Save
from accelerate.checkpoint.space import explained
from accelerate.errors import CheckpointError
from accelerate.options.project import ProjectConfiguration
from accelerate.runtime.current import Current, current

if TYPE_CHECKING:
    from accelerate.strategies.base import Owned, Strategy

__all__ = [
    "Ranks",
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
    ranks: Ranks,
    hooks: Iterable[SaveHook] = (),
    safe_serialization: bool = True,
    **save_model_func_kwargs: Any,
) -> Path:
    """Write a checkpoint: all that training needs to go on. Every rank calls it.

    The checkpoint is there whole, or not at all: it is written beside its folder and takes the name when all
    of it is on the disk. Counts `project.iteration` up. Under automatic naming, checkpoints beyond
    `project.total_limit` are removed once the new one is there.

    Args:
        output_dir: folder of the checkpoint, made if needed; ignored under automatic naming.
        registry: what is saved.
        run: the current run: who this rank is, and its kind of device.
        strategy: gives full weights, and may write models and optimizers in a way of its own.
        project: folders, automatic naming and limit, and whether each machine gets its own files.
        ranks: how the ranks agree.
        hooks: each called as hook(models, weights, folder) before files are written, with the folder that is
            written to; a hook that empties `weights` writes the models itself.
        safe_serialization: weights as safetensors, else as pickles.
        save_model_func_kwargs: for a strategy that writes models itself.

    Returns:
        The folder.

    Raises:
        TypeError: no `output_dir`, and automatic naming is off.
        ConfigurationError: the folder that automatic naming comes to exists, or there is no project folder.
        CheckpointWriteError: the disk is full, or a file cannot be written; it is an OSError, too.
        CheckpointError: with several ranks, one has failed; all raise it, and it names rank and cause.
    """
    with ranks.step("while looking where to save", "Nothing was written.", arriving=True) as step:
        folder = folders.to_write(output_dir, project)
        step.value = (str(folder), is_pinned(folder))
    folder = _agreed_folder(step.answers, ranks, project)
    pinned = any(is_pinned for _, is_pinned in step.answers)
    with Save(folder, project, ranks, pinned=pinned) as save:
        with save.writing() as step:
            step.value = _write(
                save, registry, run, strategy, tuple(hooks), safe_serialization, save_model_func_kwargs
            )
        save.commit(step.answers, step=registry.step)
    if project.automatic_checkpoint_naming:
        save.rotate()
    project.iteration += 1
    return folder


def _agreed_folder(answers: list[Any], ranks: Ranks, project: ProjectConfiguration) -> Path:
    """Return the folder that rank 0 named, or with a folder on each machine the one of this rank."""
    named = [name for name, _ in answers]
    if project.save_on_each_node:
        return Path(named[ranks.rank])
    if len(set(named)) > 1 and ranks.rank == 0:
        warnings.warn(
            f"save_state: the ranks named different folders ({', '.join(dict.fromkeys(named))}). The "
            f"checkpoint goes to {named[0]}, the one of rank 0. Name the same on all: times in names differ.",
            stacklevel=4,
        )
    return Path(named[0])


def _write(
    save: Save,
    registry: Registry,
    run: Current,
    strategy: "Strategy",
    hooks: Iterable[SaveHook],
    safe_serialization: bool,
    kwargs: Mapping[str, Any],
) -> dict[str, Stamp]:
    """Write what is this rank's to write into the staging folder; return the files that were summed up."""
    models = list(registry.models)
    with explained(save.folder):
        owned = strategy.save(models, registry.optimizers, save.folder, **kwargs)
    weights = [] if owned.models else [strategy.state_dict(model) for model in models]
    for hook in hooks:
        hook(models, weights, str(save.folder))
    if registry.open_window and owned.models and not owned.gradients:
        raise CheckpointError(
            "save_state() inside an accumulation window: the engine that trains the model keeps its "
            "gradients to itself, so that they would be lost. Save after the optimizer's step, when "
            "`accelerator.sync_gradients` is true."
        )
    common = _without_owned(registry, owned)
    plan = plan_objects(common, weights, safe_serialization=safe_serialization)
    plan += [plan_custom_object(obj, index) for index, obj in enumerate(registry.custom_objects)]
    plan.append(plan_random_states(registry.step, run.kind, rank=run.world.rank))
    if not owned.gradients:
        modules = [strategy.unwrap(model) for model in registry.models]
        plan += plan_gradients(registry, modules, rank=run.world.rank)
    return write_plan(plan, save.folder, is_writer=save.leads, new=True)


def load_state(
    input_dir: str | os.PathLike[str] | None,
    registry: Registry,
    *,
    run: Current,
    strategy: "Strategy",
    project: ProjectConfiguration,
    ranks: Ranks,
    hooks: Iterable[LoadHook] = (),
    load_kwargs: Mapping[str, Any] | None = None,
    **load_model_func_kwargs: Any,
) -> dict[str, Any]:
    """Bring everything in `registry` into the state that a checkpoint holds. Every rank calls it.

    Files are compared with the checkpoint's manifest, and names checked, before anything is changed. Random
    states come last, so that loading does not use them up. What the checkpoint holds and nothing was loaded
    from is named in a warning. Loading a checkpoint of automatic naming sets `project.iteration` to the
    number after the highest that is there.

    Args:
        input_dir: the folder; the newest whole checkpoint of automatic naming when None or "latest".
        registry: what is loaded into.
        run: the current run: who this rank is, and its device.
        strategy: reads what it has written itself.
        project: folders and automatic naming.
        ranks: how the ranks agree.
        hooks: each called as hook(models, folder) before files are read; models that it takes out of the
            list are not loaded.
        load_kwargs: passed on to `torch.load` for all but weights and random states.
        load_model_func_kwargs: `map_location` (None, "cpu" or "on_device"); the rest (`strict`, `assign`)
            goes to each model's `load_state_dict`. `strict=True` also raises where there would be a warning:
            for damaged checkpoints, and for what was not restored.

    Returns:
        Attributes of the Accelerator to set: `step`, unless no random states were found; `open_window`,
        whether gradients of an accumulation window were restored; and what else was `counted` in it.

    Raises:
        ConfigurationError: no such folder, or none was named.
        TypeError: `map_location` is something else.
        MissingCheckpointFileError: the folder lacks a file for something in `registry`.
        CheckpointError: the number of registered objects differs, or a file is damaged or not safe to read;
            or another rank has failed.
    """
    several = run.world.size > 1
    location = restore.location_of(
        load_model_func_kwargs.pop("map_location", None), run.device, on_device=several
    )
    strict = load_model_func_kwargs.get("strict") is True
    chosen = choose(input_dir, project, ranks, strict=strict)
    source = Source(folder=chosen.folder, manifest=chosen.manifest)
    undefined = "The objects that were loaded into are in no defined state."
    with ranks.step("while loading", undefined) as step, restore.undisturbed(source):
        step.value = _load(
            source, registry, run, strategy, tuple(hooks), location, load_kwargs or {}, load_model_func_kwargs
        )
        restore.tell_unused(source, run.world.size, strict=strict)
    if project.automatic_checkpoint_naming and _is_numbered(chosen.folder, project):
        project.iteration = folders.following_number(project)
    return dict(step.value)


def _load(
    source: Source,
    registry: Registry,
    run: Current,
    strategy: "Strategy",
    hooks: Iterable[LoadHook],
    location: torch.device,
    load_kwargs: Mapping[str, Any],
    model_kwargs: Mapping[str, Any],
) -> dict[str, Any]:
    restore.require_custom_objects(source, len(registry.custom_objects))
    models = list(registry.models)
    for hook in hooks:
        hook(models, str(source.folder))
    owned = strategy.load(models, registry.optimizers, source.folder)
    common = _without_owned(dataclasses.replace(registry, models=models), owned)
    restore.require_files(source.folder, common)
    restore.load_objects(source, common, location, load_kwargs, model_kwargs)
    _note_others(source, len(registry.models), owned)
    weights_only = load_kwargs.get("weights_only", True)
    for index, obj in enumerate(registry.custom_objects):
        restore.load_custom_object(obj, source, index, weights_only=weights_only)
    modules = [strategy.unwrap(model) for model in registry.models]
    counted = restore.load_gradients(
        source, modules, registry.optimizers, rank=run.world.rank, world_size=run.world.size
    )
    is_open = owned.gradients or counted is not None
    if registry.open_window and not is_open:
        window.clear(modules, registry.optimizers)  # of the window that is given up
    return {
        "open_window": is_open,
        "counted": counted or {},
        **restore.load_random_states(source, run.world.rank, run.kind),
    }


def _note_others(source: Source, num_models: int, owned: "Owned") -> None:
    """Note what needs no more: models that a hook has loaded, and what the strategy has."""
    for index in range(num_models):
        source.used |= {naming.weights(index, safe_serialization=safe) for safe in (True, False)}
    kinds = {"models": owned.models, "optimizers": owned.optimizers, "schedulers": owned.schedulers}
    source.used |= {name for name in source.names() if naming.is_kind(name, **kinds)}


def _is_numbered(folder: Path, project: ProjectConfiguration) -> bool:
    return any(os.path.samefile(folder, path) for path in folders.numbered(project).values())


def _without_owned(registry: Registry, owned: "Owned") -> Registry:
    """Return what is left for the common part of a checkpoint."""
    return dataclasses.replace(
        registry,
        models=() if owned.models else registry.models,
        optimizers=() if owned.optimizers else registry.optimizers,
        schedulers=() if owned.schedulers else registry.schedulers,
    )


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
    location = restore.location_of(map_location, run.device, on_device=False)
    registry = Registry(
        models=models, optimizers=optimizers, schedulers=schedulers, loaders=dataloaders, scaler=scaler
    )
    restore.require_files(folder, registry)
    source = Source(folder=folder)
    restore.load_objects(source, registry, location, load_kwargs or {}, load_model_func_kwargs)
    return restore.load_random_states(source, process_index, run.kind)


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
    restore.load_custom_object(obj, Source(folder=Path(path)), index, weights_only=True)
