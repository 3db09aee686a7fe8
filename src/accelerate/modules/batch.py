"""What loaders ask of a batch, a nested container of tensors: its size, structure, slices, joins. Pure.

Called by the loaders and users; see [Note: nested containers] in nested.py.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from accelerate.modules.nested import (
    TensorInformation,
    honor_type,
    is_record,
    is_tensor_information,
    named_items,
    recursively_apply,
    with_fields,
)

__all__ = [
    "concatenate",
    "find_batch_size",
    "get_data_structure",
    "get_shape",
    "ignorant_find_batch_size",
    "initialize_tensors",
    "listify",
    "slice_tensors",
]


def get_data_structure(data: Any) -> Any:
    """Return `data` with a `TensorInformation` in place of every tensor.

    Example:
        >>> get_data_structure([torch.ones(2, 3)])
        [TensorInformation(shape=torch.Size([2, 3]), dtype=torch.float32)]
    """
    return recursively_apply(lambda tensor: TensorInformation(tensor.shape, tensor.dtype), data)


def get_shape(data: Any) -> Any:
    """Return `data` with its shape, as a list of int, in place of every tensor.

    Example:
        >>> get_shape({"x": torch.ones(2, 3)})
        {'x': [2, 3]}
    """
    return recursively_apply(lambda tensor: list(tensor.shape), data)


def initialize_tensors(data_structure: Any) -> Any:
    """Return `data_structure` with an uninitialised CPU tensor in place of every `TensorInformation`.

    Example:
        >>> initialize_tensors(get_data_structure({"x": torch.ones(2, 3)}))["x"].shape
        torch.Size([2, 3])
    """
    return recursively_apply(
        lambda information: torch.empty(information.shape, dtype=information.dtype),
        data_structure,
        test_type=is_tensor_information,
    )


def find_batch_size(data: Any) -> int:
    """Return the size along dim 0 of the first tensor in nested containers.

    Raises:
        TypeError: the first leaf is not a tensor.
        ValueError: the first container met is empty.
        IndexError: the first tensor has no dims.

    Example:
        >>> find_batch_size({"x": [torch.ones(4, 3)]})
        4
    """
    first = data
    while (parts := _parts(first)) is not None:
        if not parts:
            raise ValueError(f"An empty {type(first).__name__} has no batch size.")
        first = next(iter(parts))
    if not isinstance(first, Tensor):
        raise TypeError(
            f"Only tensors have a batch size, but the first leaf is of type {type(first).__name__}."
        )
    if first.ndim == 0:
        raise IndexError("A tensor without dims has no batch size.")
    return first.shape[0]


def _parts(data: Any) -> Collection[Any] | None:
    """Return what a container holds, None for a leaf."""
    if isinstance(data, (list, tuple)):
        return data
    items = named_items(data)
    return None if items is None else items.values()


def ignorant_find_batch_size(data: Any) -> int | None:
    """Return `find_batch_size(data)`, or None where the first leaf is no tensor or there is none.

    Example:
        >>> ignorant_find_batch_size([torch.ones(4)]), ignorant_find_batch_size(["text"])
        (4, None)
    """
    try:
        return find_batch_size(data)
    except (TypeError, ValueError):
        return None


def listify(data: Any) -> Any:
    """Return `data` with nested lists of Python numbers in place of every tensor.

    Example:
        >>> listify({"x": torch.tensor([1, 2]), "name": "kept"})
        {'x': [1, 2], 'name': 'kept'}
    """
    return recursively_apply(lambda tensor: tensor.tolist(), data)


def slice_tensors(
    data: Any, tensor_slice: Any, process_index: int | None = None, num_processes: int | None = None
) -> Any:
    """Return `data` with `tensor[tensor_slice]` in place of every tensor.

    Args:
        data: nested containers; leaves that are no tensors are kept.
        tensor_slice: a slice or anything else that indexes a tensor.
        process_index: not used; other functions that divide a batch among ranks need it.
        num_processes: not used, likewise.

    Example:
        >>> slice_tensors({"x": torch.arange(4)}, slice(0, 2))
        {'x': tensor([0, 1])}
    """
    return recursively_apply(lambda tensor: tensor[tensor_slice], data)


def concatenate(data: Sequence[Any], dim: int = 0) -> Any:
    """Concatenate several nested containers of one structure, tensor by tensor.

    Args:
        data: a list or tuple of alike containers of tensors, or of tensors.
        dim: along which the tensors are joined.

    Returns:
        One container like `data[0]`.

    Raises:
        TypeError: a leaf is not a tensor.
        ValueError: `data` is empty.

    Example:
        >>> concatenate([{"x": torch.tensor([1])}, {"x": torch.tensor([2, 3])}])
        {'x': tensor([1, 2, 3])}
    """
    if not len(data):
        raise ValueError("`concatenate([])`: there is nothing to concatenate.")
    first = data[0]
    if isinstance(first, (list, tuple)):
        return honor_type(first, (concatenate([item[i] for item in data], dim) for i in range(len(first))))
    if isinstance(first, Mapping):
        return honor_type(first, ((key, concatenate([item[key] for item in data], dim)) for key in first))
    if is_record(first):
        joined = {
            name: concatenate([getattr(item, name) for item in data], dim)
            for name in named_items(first) or ()
        }
        return with_fields(first, joined)
    if not isinstance(first, Tensor):
        raise TypeError(f"`concatenate` joins tensors only, but was given {type(first).__name__}.")
    return torch.cat(list(data), dim=dim)
