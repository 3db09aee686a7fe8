"""Weights and optimizer state of sharded models, whole or in parts. Called by strategies.

In parts: folders `pytorch_model_fsdp_<i>` and `optimizer_<i>` of torch.distributed.checkpoint, which any
number of ranks can read. Whole: `pytorch_model_fsdp.bin` and `optimizer.bin`, written by rank 0. Optimizer
state goes by the names of parameters in both. Every rank calls each function.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load as load_parts
from torch.distributed.checkpoint.state_dict_saver import save as save_parts
from torch.nn import Module
from torch.optim import Optimizer

from accelerate.errors import CheckpointError

__all__ = ["load", "load_model", "load_optimizer", "save", "save_model", "save_optimizer", "wrote"]

_MODEL, _OPTIMIZER = "pytorch_model_fsdp", "optimizer"


def wrote(folder: Path) -> bool:
    """Return whether `save` has written into `folder`."""
    return Path(folder, f"{_MODEL}_0").is_dir() or Path(folder, f"{_MODEL}.bin").is_file()


def save(models: Sequence[Module], optimizers: Sequence[Optimizer], folder: Path, *, whole: bool) -> None:
    """Write all weights and all optimizer state into `folder`.

    Args:
        models: as the user made them, sharded or not.
        optimizers: the user's own; each trains one of `models`.
        folder: exists.
        whole: gather them on rank 0, which writes a file for each.
    """
    owners = [_owner(optimizer, models) for optimizer in optimizers]
    for index, model in enumerate(models):
        save_model(model, folder, index, whole=whole)
    for index, (owner, optimizer) in enumerate(zip(owners, optimizers, strict=True)):
        save_optimizer(owner, optimizer, folder, index, whole=whole)


def load(models: Sequence[Module], optimizers: Sequence[Optimizer], folder: Path) -> None:
    """Read what `save` wrote, in whichever form, on any number of ranks.

    Raises:
        CheckpointError: a model or an optimizer is not in `folder`.
    """
    owners = [_owner(optimizer, models) for optimizer in optimizers]
    for index, model in enumerate(models):
        load_model(model, folder, index)
    for index, (owner, optimizer) in enumerate(zip(owners, optimizers, strict=True)):
        load_optimizer(owner, optimizer, folder, index)


def _owner(optimizer: Optimizer, models: Sequence[Module]) -> Module:
    trained = {id(each) for group in optimizer.param_groups for each in group["params"]}
    for model in models:
        if any(id(parameter) in trained for parameter in model.parameters()):
            return model
    raise CheckpointError(
        f"{type(optimizer).__name__} trains no parameter of a prepared model, so that its state has no "
        "names to be saved by. Prepare the model that it trains, too."
    )


def save_model(model: Module, folder: Path, index: int, *, whole: bool) -> None:
    """Write the weights of the prepared model number `index` into `folder`.

    Args:
        model: sharded; its names are the user's.
        folder: exists.
        index: number of the model.
        whole: gather them on rank 0, which writes one file.
    """
    weights = get_model_state_dict(model, options=_writing(whole))
    _write(weights, "model", folder, _MODEL, index, whole=whole)


def save_optimizer(model: Module, optimizer: Optimizer, folder: Path, index: int, *, whole: bool) -> None:
    """Write the state of the prepared optimizer number `index`, which trains `model`, into `folder`."""
    state = get_optimizer_state_dict(model, optimizer, options=_writing(whole))
    _write(state, "optimizer", folder, _OPTIMIZER, index, whole=whole)


def load_model(model: Module, folder: Path, index: int) -> None:
    """Read what `save_model` wrote, in whichever form, on any number of ranks.

    Raises:
        CheckpointError: `folder` has neither form.
    """
    parts = folder / f"{_MODEL}_{index}"
    if parts.is_dir():
        weights = {"model": get_model_state_dict(model)}
        _read(weights, parts)
        set_model_state_dict(model, weights["model"])
        return
    whole = _load_whole(folder, _MODEL, index)
    set_model_state_dict(model, whole, options=_reading())


def load_optimizer(model: Module, optimizer: Optimizer, folder: Path, index: int) -> None:
    """Read what `save_optimizer` wrote, in whichever form, on any number of ranks.

    Raises:
        CheckpointError: `folder` has neither form.
    """
    parts = folder / f"{_OPTIMIZER}_{index}"
    if parts.is_dir():
        state = {"optimizer": get_optimizer_state_dict(model, optimizer)}
        _read(state, parts)
        set_optimizer_state_dict(model, optimizer, state["optimizer"])
        return
    whole = _load_whole(folder, _OPTIMIZER, index)
    set_optimizer_state_dict(model, optimizer, whole, options=_reading())


def _writing(whole: bool) -> StateDictOptions:
    return StateDictOptions(full_state_dict=whole, cpu_offload=True)


def _reading() -> StateDictOptions:
    return StateDictOptions(full_state_dict=True, broadcast_from_rank0=_size() > 1)


def _size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def _file(folder: Path, name: str, index: int) -> Path:
    return folder / (f"{name}.bin" if index == 0 else f"{name}_{index}.bin")


def _write(state: Any, key: str, folder: Path, name: str, index: int, *, whole: bool) -> None:
    if not whole:
        with _alone_if_need_be():
            save_parts({key: state}, checkpoint_id=folder / f"{name}_{index}", no_dist=_size() == 1)
    elif _rank() == 0:
        torch.save(state, _file(folder, name, index))


def _read(state: dict[str, Any], parts: Path) -> None:
    with _alone_if_need_be():
        load_parts(state, checkpoint_id=parts, no_dist=_size() == 1)


@contextmanager
def _alone_if_need_be() -> Iterator[None]:
    """Keep torch from warning, in one process, that it saves or loads in one process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*single process.*", UserWarning)
        warnings.filterwarnings("ignore", ".*TypedStorage is deprecated.*", UserWarning)
        yield


def _load_whole(folder: Path, name: str, index: int) -> dict[str, Any]:
    path = _file(folder, name, index)
    if not path.is_file():
        raise CheckpointError(
            f"{folder} has neither the folder {name}_{index} nor the file {path.name}: it is no checkpoint "
            "of a sharded model. Load the checkpoint with the kind of training that wrote it."
        )
    if _rank() != 0:
        return {}
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state
