"""Which files a checkpoint consists of, as a value, and the step that writes them. Called by checkpointing.

Every rank computes the whole plan, since collecting a state may be a collective; `write_plan` then writes
those files that are this rank's to write.
"""

import logging
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accelerate.checkpoint import files, naming, rng, window
from accelerate.checkpoint.disk import Stamp
from accelerate.checkpoint.space import explained
from accelerate.devices.base import Device
from accelerate.errors import CheckpointError

__all__ = [
    "PlannedFile",
    "Registry",
    "placed_loaders",
    "plan_custom_object",
    "plan_gradients",
    "plan_objects",
    "plan_random_states",
    "stateful_loaders",
    "write_plan",
]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Registry:
    """What a checkpoint covers, by kind, in the order of preparation.

    Attributes:
        models: modules whose weights are saved.
        optimizers: objects with `state_dict` and `load_state_dict`, as are the next two.
        schedulers: learning rate schedulers.
        loaders: data loaders; prepared ones have a file with their place.
        custom_objects: what the user registered, in that order.
        scaler: gradient scaler, None when there is none.
        step: the Accelerator's counter.
        open_window: whether gradients are being accumulated, and not yet shared among ranks.
        counted: tensors that belong to that window, besides the gradients.
    """

    models: Sequence[Any] = ()
    optimizers: Sequence[Any] = ()
    schedulers: Sequence[Any] = ()
    loaders: Sequence[Any] = ()
    custom_objects: Sequence[Any] = ()
    scaler: Any = None
    step: int = 0
    open_window: bool = False
    counted: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PlannedFile:
    """One file of a checkpoint.

    Attributes:
        name: its name inside the folder.
        content: what it will hold.
        holds: what that is, in words, for messages.
        safe: safetensors, else a pickle of torch.save.
        every_rank: each rank writes one of its own; otherwise it is the main process's.
    """

    name: str
    content: Any = field(repr=False)
    holds: str
    safe: bool = False
    every_rank: bool = False


def plan_objects(
    registry: Registry, weights: Sequence[Any], *, safe_serialization: bool
) -> list[PlannedFile]:
    """Return the files that exist once: weights, optimizers, schedulers, loaders and the scaler.

    Called on every rank, since an object's `state_dict` may communicate.

    Args:
        registry: what is saved; its models are not asked, `weights` stands for them.
        weights: one state dict for each model whose weights are to be written.
        safe_serialization: weights as safetensors. All else is a pickle.
    """
    planned = [
        PlannedFile(
            name=naming.weights(index, safe_serialization=safe_serialization),
            content=state,
            holds="Model weights",
            safe=safe_serialization,
        )
        for index, state in enumerate(weights)
    ]
    for name, holds, objects in (
        (naming.optimizer, "Optimizer state", registry.optimizers),
        (naming.scheduler, "Scheduler state", registry.schedulers),
    ):
        planned += [
            PlannedFile(name=name(index), content=item.state_dict(), holds=holds)
            for index, item in enumerate(objects)
        ]
    planned += [
        PlannedFile(name=naming.loader(index), content=loader.state_dict(), holds="Data loader state")
        for index, loader in stateful_loaders(registry.loaders)
    ]
    if registry.scaler is not None:
        content = registry.scaler.state_dict()
        planned.append(PlannedFile(name=naming.scaler(), content=content, holds="Gradient scaler state"))
    return planned


def stateful_loaders(loaders: Iterable[Any]) -> list[tuple[int, Any]]:
    """Return those loaders whose place a checkpoint holds, each with its index among all."""

    def keeps_place(loader: Any) -> bool:
        return getattr(loader, "use_stateful_dataloader", False) or getattr(loader, "keeps_place", False)

    return [item for item in enumerate(loaders) if keeps_place(item[1])]


def placed_loaders(folder: Path, loaders: Iterable[Any]) -> list[tuple[int, Any]]:
    """Return those loaders whose place a folder holds, each with its index; say which of them start anew."""
    keeping = stateful_loaders(loaders)
    placed = [item for item in keeping if (folder / naming.loader(item[0])).is_file()]
    missing = [naming.loader(item[0]) for item in keeping if item not in placed]
    if missing:
        logger.warning(
            "%s lacks %s: these data loaders begin at the start of an epoch.", folder, ", ".join(missing)
        )
    return placed


def plan_random_states(step: int, device: Device, *, rank: int) -> PlannedFile:
    """Return the file with this rank's random states and the Accelerator's step."""
    return PlannedFile(
        name=naming.random_states(rank),
        content=rng.collect(step, device),
        holds="Random states",
        every_rank=True,
    )


def plan_gradients(registry: Registry, modules: Sequence[Any], *, rank: int) -> list[PlannedFile]:
    """Return the file with this rank's gradients, where an accumulation window is open.

    Args:
        registry: whose.
        modules: the user's modules behind its models.
        rank: this process.

    Raises:
        CheckpointError: a gradient cannot be stored.
    """
    if not registry.open_window:
        return []
    gradients = window.collect(modules, registry.optimizers, registry.counted)
    return [
        PlannedFile(
            name=naming.gradients(rank),
            content=gradients,
            holds="Gradients of the open accumulation window",
            safe=True,
            every_rank=True,
        )
    ]


def plan_custom_object(obj: Any, index: int) -> PlannedFile:
    """Return the file of the index-th registered object."""
    return PlannedFile(
        name=naming.custom_object(index), content=obj.state_dict(), holds=f"State of {type(obj).__name__}"
    )


def write_plan(
    plan: Iterable[PlannedFile], folder: Path, *, is_writer: bool, new: bool = False
) -> dict[str, Stamp]:
    """Write the files of a plan that are this rank's to write.

    Says at once, in a warning, when a file holds what loading will refuse.

    Args:
        plan: what to write.
        folder: where; it exists.
        is_writer: whether this rank also writes the files that exist once.
        new: the folder is a staging folder, where no file exists yet. Elsewhere each file appears whole or
            not at all.

    Returns:
        The files that were written, with `new`.

    Raises:
        CheckpointWriteError: the disk is full, or a file cannot be written.
    """
    stamps = {}
    mine = [file for file in plan if is_writer or file.every_rank]
    for file in mine:
        path = folder / file.name
        with explained(folder, lambda: sum(files.size_of(file.content) for file in mine)), _named(file):
            if new:
                stamps[file.name] = files.write_new(file.content, path, safe_serialization=file.safe)
            else:
                files.write_file(file.content, path, safe_serialization=file.safe)
        logger.info("%s saved in %s", file.holds, path)
        unsafe = [] if file.safe else files.unsafe_names(path)
        if unsafe:
            logger.warning(
                "%s in %s needs %s, and will load only once these are allowed with "
                "`torch.serialization.add_safe_globals([...])`, or with weights_only=False. A state_dict() "
                "of tensors, numbers, text and containers of them needs neither.",
                file.holds,
                path,
                ", ".join(unsafe),
            )
    return stamps


@contextmanager
def _named(file: PlannedFile) -> Iterator[None]:
    """Have what pickle does not take be called by its name."""
    try:
        yield
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        if file.safe:
            raise
        raise CheckpointError(
            f"{file.holds} cannot be saved as {file.name}: {error}. Let its `state_dict()` give tensors, "
            "numbers, text and containers of them."
        ) from error
