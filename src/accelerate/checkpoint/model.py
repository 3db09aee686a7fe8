"""Weights of one model: into a folder for others to use, and from a file into the model.

Called by the facade (`save_model`) and by checkpointing.
"""

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import split_torch_state_dict_into_shards

from accelerate.checkpoint import files, naming, tensors
from accelerate.checkpoint.shared import covered_names, with_shared_names
from accelerate.errors import CheckpointError, ConfigurationError, MismatchedCheckpointError

__all__ = ["ShardPlan", "load_model", "load_weights", "plan_shards", "read_weights", "save_model"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ShardPlan:
    """Which tensor goes to which file.

    Attributes:
        shards: file name -> names of its tensors, in the order of the state dict.
        index: file name and text of the index; None when there is only one shard.
        format: how the files are named.
    """

    shards: Mapping[str, list[str]]
    index: tuple[str, str] | None
    format: naming.WeightsFormat

    def is_stale(self, name: str) -> bool:
        """Return whether a file of this name is left from an earlier, differently sharded save."""
        if name == self.format.index:
            return self.index is None
        return self.format.is_shard(name) and name not in self.shards


def plan_shards(state_dict: Mapping[str, Any], max_shard_size: int | str, *, safe: bool) -> ShardPlan:
    """Return how a state dict is shared out over files of at most `max_shard_size`.

    Args:
        state_dict: names and tensors (values of other kinds only for pickles).
        max_shard_size: bytes, or text such as "10GB". A tensor that is bigger gets a shard of its own.
        safe: safetensors, else pickles of torch.save.
    """
    names = naming.weights_format(safe)
    split = split_torch_state_dict_into_shards(
        {name: value for name, value in state_dict.items() if isinstance(value, torch.Tensor)},
        filename_pattern=names.shard_pattern,
        max_shard_size=max_shard_size,
    )
    shards = {file_name: list(of_file) for file_name, of_file in split.filename_to_tensors.items()}
    # What a module keeps besides tensors (`get_extra_state`) goes with the first shard.
    first = next(iter(shards), names.single)
    shards[first] = shards.get(first, []) + [
        name for name in state_dict if name not in split.tensor_to_filename
    ]
    index = None
    if len(shards) > 1:
        weight_map = {name: file_name for file_name, of_file in shards.items() for name in of_file}
        content = {"metadata": split.metadata, "weight_map": weight_map}
        index = (names.index, json.dumps(content, indent=2, sort_keys=True) + "\n")
    return ShardPlan(shards=shards, index=index, format=names)


def save_model(
    state_dict: Mapping[str, Any] | None,
    save_directory: str | os.PathLike[str],
    max_shard_size: int | str = "10GB",
    safe_serialization: bool = True,
    *,
    save_on_each_node: bool = False,
) -> None:
    """Write the weights of a model into a folder, in files that other libraries load.

    Creates the folder. May be called on every rank; only the main process writes. Shards of an earlier
    save that this one does not replace are removed once the new files are whole.

    Args:
        state_dict: full weights; may be None on ranks that do not write.
        save_directory: the folder.
        max_shard_size: bytes, or text such as "10GB": files of at most this size, and an index beside them
            when one is not enough.
        safe_serialization: write safetensors, in which tied tensors are kept under their first name;
            pickles of torch.save otherwise.
        save_on_each_node: let the main process of every machine write.

    Raises:
        ConfigurationError: `save_directory` is a file.
        RuntimeError: a parameter is on the meta device.
    """
    folder = Path(save_directory)
    if folder.exists() and not folder.is_dir():
        raise ConfigurationError(
            f"save_model(save_directory={str(folder)!r}): the path should be a directory, not a file. Pass "
            "the folder that the weights go into."
        )
    if any(isinstance(value, torch.Tensor) and value.is_meta for value in (state_dict or {}).values()):
        raise CheckpointError("You can't save the model since some parameters are on the meta device.")
    if state_dict is None or not files.is_writer(save_on_each_node):
        return
    tensors = files.storable_tensors(dict(state_dict)) if safe_serialization else dict(state_dict)
    plan = plan_shards(tensors, max_shard_size, safe=safe_serialization)
    folder.mkdir(parents=True, exist_ok=True)
    _write_shards(plan, tensors, folder)
    _remove_stale(plan, folder)


def _write_shards(plan: ShardPlan, tensors: Mapping[str, Any], folder: Path) -> None:
    for file_name, names in plan.shards.items():
        shard = {name: tensors[name] for name in names}
        files.write_file(shard, folder / file_name, safe_serialization=plan.format.safe)
    if plan.index is None:
        logger.info("Model weights saved in %s", folder / plan.format.single)
    else:
        # Last, so that an index never names a shard that is not there.
        name, text = plan.index
        files.write_bytes(text.encode(), folder / name)
        logger.info(
            "Model weights saved in %d shards; which tensor is where: %s", len(plan.shards), folder / name
        )


def _remove_stale(plan: ShardPlan, folder: Path) -> None:
    found = sorted(path.name for path in folder.iterdir())
    for name in found:
        if plan.is_stale(name):
            (folder / name).unlink()
    if plan.index is not None and plan.format.single in found:
        logger.warning(
            "%s holds %s of an earlier save beside the new shards, and many readers prefer it: remove it if "
            "it is not meant.",
            folder,
            plan.format.single,
        )


def load_model(
    model: torch.nn.Module, folder: Path, index: int, device: str | torch.device = "cpu", **kwargs: Any
) -> None:
    """Load the weights of the index-th model of a checkpoint into `model`, which is changed in place.

    Where the file fits and nothing in the model takes part in loading, its bytes are read straight into the
    tensors of the model.

    Args:
        model: the user's module, or what it is wrapped in.
        folder: of the checkpoint.
        index: of the model.
        device: where tensors are read to otherwise.
        kwargs: passed on to `model.load_state_dict` (`strict`, `assign`).

    Raises:
        MissingCheckpointFileError: there is no file.
        CheckpointError: the file is damaged, not safe to read, or of another model.
    """
    safe = folder / naming.weights(index, safe_serialization=True)
    if safe.exists() and set(kwargs) <= {"strict"} and _takes_no_part(model):
        live = model.state_dict()
        written = {name: tensor for name, tensor in live.items() if name not in covered_names(live)}
        if tensors.read_into(safe, written):
            return
    state = read_weights(folder, index, device)
    try:
        load_weights(model, state, **kwargs)
    except RuntimeError as error:
        name = naming.weights(index, safe_serialization=safe.exists())
        raise MismatchedCheckpointError(f"{folder / name} does not fit the model: {error}") from error


def _takes_no_part(model: torch.nn.Module) -> bool:
    """Return whether loading does nothing but copy, in `model` and all modules inside."""
    plain = torch.nn.Module
    if type(model).load_state_dict is not plain.load_state_dict:
        return False
    return all(
        (type(module)._load_from_state_dict is plain._load_from_state_dict or _is_torchs(type(module)))
        and type(module).state_dict is plain.state_dict
        and not module._load_state_dict_pre_hooks
        and not module._load_state_dict_post_hooks
        and not module._state_dict_hooks
        and not module._state_dict_pre_hooks
        for module in model.modules()
    )


def _is_torchs(kind: type[torch.nn.Module]) -> bool:
    # What torch's own modules do there concerns files of older versions, whose names differ.
    return kind._load_from_state_dict.__module__.startswith("torch.nn.modules.")


def read_weights(folder: Path, index: int, device: str | torch.device = "cpu") -> dict[str, Any]:
    """Read the weights of the index-th model of a checkpoint: safetensors if there are any, else a pickle.

    Raises:
        MissingCheckpointFileError: there are neither.
        CheckpointError: the file is damaged, or not safe to read.
    """
    safe = folder / naming.weights(index, safe_serialization=True)
    if safe.exists():
        return files.read_safetensors(safe, device)
    state: dict[str, Any] = files.load(folder / naming.weights(index, safe_serialization=False), device)
    return state


def load_weights(model: torch.nn.Module, state: Mapping[str, Any], **kwargs: Any) -> Any:
    """Load weights into a model; names that were left out because they share memory come back with it.

    Args:
        model: changed in place.
        state: what `read_weights` gave.
        kwargs: passed on to `model.load_state_dict` (`strict`, `assign`).

    Returns:
        What `model.load_state_dict` returns.
    """
    in_place = not kwargs.get("assign", False)
    return model.load_state_dict(with_shared_names(state, model.state_dict(), in_place=in_place), **kwargs)
