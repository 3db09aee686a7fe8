"""Weights that are fetched by name from memory or from files. Called by hooks, for each forward pass."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from accelerate.offload.storage import load_offloaded_weight, read_index, read_safetensors_weight

__all__ = ["OffloadedWeightsLoader", "PrefixedDataset", "extract_submodules_state_dict"]


class PrefixedDataset(Mapping[str, Any]):
    """The part of a mapping whose names begin with a prefix, asked for without it.

    Names come from `iter` whole, and `len` is that of the mapping behind.

    Args:
        dataset: the mapping behind; what changes in it shows here.
        prefix: what is put before each name that is asked for.

    Example:
        >>> PrefixedDataset({"layer.bias": 1, "head": 2}, "layer.")["bias"]
        1
    """

    def __init__(self, dataset: Mapping[str, Any], prefix: str) -> None:
        self.dataset = dataset
        self.prefix = prefix

    def __getitem__(self, key: str) -> Any:
        return self.dataset[f"{self.prefix}{key}"]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.dataset if name.startswith(self.prefix))

    def __len__(self) -> int:
        return len(self.dataset)


class OffloadedWeightsLoader(Mapping[str, Tensor]):
    """Tensors by name, from a state dict where it has them, else from an offload folder or a checkpoint.

    The index is read at each access, so that entries may be changed.

    Args:
        state_dict: tensors that are in memory.
        save_folder: an offload folder.
        index: entries of that folder, or pointers into safetensors files; without it the one of the folder.
        device: where tensors of safetensors files go; None for the CPU.

    Raises:
        ValueError: there is neither of the first three.
        MissingCheckpointFileError: the folder has no index.
    """

    def __init__(
        self,
        state_dict: Mapping[str, Tensor] | None = None,
        save_folder: str | os.PathLike[str] | None = None,
        index: Mapping[str, Any] | None = None,
        device: Any = None,
    ) -> None:
        if state_dict is None and save_folder is None and index is None:
            raise ValueError(
                "Need either a `state_dict`, a `save_folder` or an `index` containing offloaded weights."
            )
        self.state_dict: Mapping[str, Tensor] = {} if state_dict is None else state_dict
        self.save_folder = save_folder
        if index is None:
            index = {} if save_folder is None else read_index(save_folder)
        self.index: Mapping[str, Any] = index
        self.all_keys = [*self.state_dict, *(name for name in self.index if name not in self.state_dict)]
        self.device = device
        self._mapped: dict[str, tuple[Any, Tensor]] = {}  # what each was mapped from, and the tensor

    def __getitem__(self, key: str) -> Tensor:
        if key in self.state_dict:
            return self.state_dict[key]
        info = self.index[key]
        file = info.get("safetensors_file")
        if file is None and self.save_folder is None:
            raise KeyError(f"{key}: its index entry names no safetensors file, and there is no `save_folder`")
        path = os.path.join(self.save_folder or "", f"{key}.dat") if file is None else file
        source = _identity(path, info)
        known = self._mapped.get(key)
        if known is not None and known[0] == source:
            return known[1]
        if file is None:
            tensor = load_offloaded_weight(path, info)
        else:
            tensor = read_safetensors_weight(
                file, info.get("weight_name", key), self.device, info.get("dtype")
            )
        # A mapping again would cost a page fault for every page at every forward pass. Copies are not kept.
        if not tensor.untyped_storage().resizable():
            self._mapped[key] = source, tensor
        return tensor

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_mapped": {}}

    def __iter__(self) -> Iterator[str]:
        return iter(self.all_keys)

    def __len__(self) -> int:
        return len(self.all_keys)


def _identity(path: str | os.PathLike[str], info: Mapping[str, Any]) -> Any:
    """Return what changes when another tensor would be read: the entry, or the file behind it."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None  # the reader says what is missing
    return dict(info), os.fspath(path), found.st_mtime_ns, found.st_size, found.st_ino


def extract_submodules_state_dict(
    state_dict: Mapping[str, Tensor], submodule_names: list[str]
) -> dict[str, Tensor]:
    """Return the entries of a state dict that are, or are inside, one of some modules.

    Args:
        state_dict: names and tensors.
        submodule_names: dotted names.

    Example:
        >>> extract_submodules_state_dict({"a.x": 1, "ab.x": 2}, ["a"])
        {'a.x': 1}
    """
    return {
        key: value
        for name in submodule_names
        for key, value in state_dict.items()
        if key == name or key.startswith(f"{name}.")
    }
