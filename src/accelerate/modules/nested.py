"""Pure functions over tensors in nested containers. Called by the collectives, loaders, precision and users.

[Note: nested containers]
A *container* is a list, a tuple (named tuples and torch's own result tuples included) or a mapping, of any
subclass. Everything else is a *leaf*, also a dataclass, a set or a deque. A container is rebuilt by its
own type. Paths in error messages are written as one would index: `['labels'][0].x`.
"""

import copy
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "TensorInformation",
    "concatenate",
    "find_batch_size",
    "find_device",
    "flatten",
    "get_data_structure",
    "get_shape",
    "honor_type",
    "ignorant_find_batch_size",
    "initialize_tensors",
    "is_namedtuple",
    "is_tensor_information",
    "is_torch_tensor",
    "listify",
    "map_leaves",
    "recursively_apply",
    "send_to_device",
    "slice_tensors",
    "walk",
]


@dataclass(frozen=True)
class TensorInformation:
    """Shape and dtype of a tensor, without its data."""

    shape: torch.Size
    dtype: torch.dtype


def is_torch_tensor(tensor: Any) -> bool:
    """Return whether `tensor` is a `torch.Tensor`, of any subclass."""
    return isinstance(tensor, Tensor)


def is_tensor_information(tensor_info: Any) -> bool:
    """Return whether `tensor_info` is a `TensorInformation`."""
    return isinstance(tensor_info, TensorInformation)


def is_namedtuple(data: Any) -> bool:
    """Return whether `data` is an instance (not the class) of a named tuple."""
    return isinstance(data, tuple) and hasattr(data, "_fields") and hasattr(data, "_make")


def honor_type(obj: Any, generator: Iterable[Any]) -> Any:
    """Build a container of the type of `obj` from the items that `generator` gives.

    Args:
        obj: a list, tuple, named tuple or mapping, of any subclass.
        generator: items for a sequence, (key, value) pairs for a mapping.

    Returns:
        A new container; attributes and default factories of `obj` are kept where its constructor takes
        nothing but the items, or where it can be copied.
    """
    if is_namedtuple(obj):
        return obj._make(generator)  # also right when __new__ takes other arguments than the fields
    if isinstance(obj, Mapping):
        return _honor_mapping(obj, dict(generator))
    return type(obj)(generator)


def _honor_mapping(obj: Mapping[Any, Any], values: dict[Any, Any]) -> Any:
    try:
        return type(obj)(values)  # type: ignore[call-arg]
    except TypeError:
        # A constructor of its own (a defaultdict wants its factory first). A copy is safe only for types
        # that are known to copy their items too: others would share them, and the input would be changed.
        if not isinstance(obj, (dict, UserDict)):
            raise
    rebuilt = copy.copy(obj)
    rebuilt.update(values)
    return rebuilt


def map_leaves(function: Callable[[Any], Any], data: Any) -> Any:
    """Return `data` with `function(leaf)` in place of every leaf; containers are rebuilt by their type."""
    kind = type(data)
    if kind is Tensor:
        return function(data)
    # The plain types first: an isinstance check against Mapping costs more than the rest of the visit.
    if kind is list:
        return [map_leaves(function, item) for item in data]
    if kind is tuple:
        return tuple([map_leaves(function, item) for item in data])
    if kind is dict:
        return {key: map_leaves(function, value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return honor_type(data, (map_leaves(function, item) for item in data))
    if isinstance(data, Mapping):
        return honor_type(data, ((key, map_leaves(function, value)) for key, value in data.items()))
    return function(data)


def flatten(data: Any) -> tuple[list[Any], Callable[[Iterable[Any]], Any]]:
    """Take all leaves out of `data`.

    Returns:
        The leaves in order (tensors and all others), and a function that takes as many new leaves and
        returns them in containers like those of `data`.
    """
    leaves: list[Any] = []
    map_leaves(leaves.append, data)

    def rebuild(new_leaves: Iterable[Any]) -> Any:
        remaining = iter(new_leaves)
        return map_leaves(lambda _: next(remaining), data)

    return leaves, rebuild


def walk(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Give (path, leaf) for every leaf of `data`, in the order of `flatten`; a bare leaf has the path ""."""
    if is_namedtuple(data):
        for name, item in zip(data._fields, data, strict=True):
            yield from walk(item, f"{path}.{name}")
    elif isinstance(data, (list, tuple)):
        for index, item in enumerate(data):
            yield from walk(item, f"{path}[{index}]")
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from walk(value, f"{path}[{key!r}]")
    else:
        yield path, data


def recursively_apply(
    func: Callable[..., Any],
    data: Any,
    *args: Any,
    test_type: Callable[[Any], bool] = is_torch_tensor,
    error_on_other_type: bool = False,
    **kwargs: Any,
) -> Any:
    """Apply `func(leaf, *args, **kwargs)` to every leaf of nested containers that `test_type` accepts.

    Args:
        func: gets one leaf.
        data: nested lists, tuples, named tuples and mappings.
        args: passed on to `func`.
        test_type: which leaves are meant; tensors by default.
        error_on_other_type: refuse other leaves, which are otherwise kept as they are.
        kwargs: passed on to `func`.

    Returns:
        The results in new containers of the same types.

    Raises:
        TypeError: a leaf of another type was found and `error_on_other_type` is set.
    """

    def apply(leaf: Any) -> Any:
        if test_type(leaf):
            return func(leaf, *args, **kwargs)
        if error_on_other_type:
            path = next((path for path, other in walk(data) if other is leaf), "")
            raise TypeError(
                f"`{_name(func)}` was given {describe(path, leaf)}. Nested lists, tuples and dictionaries "
                f"may hold only what `{_name(test_type)}` accepts here."
            )
        return leaf

    return map_leaves(apply, data)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", repr(function))


def describe(path: str, leaf: Any) -> str:
    """Return words for an error message: the type of `leaf` and where it stands."""
    kind = type(leaf).__name__
    return f"{kind} at {path}" if path else f"an object of type {kind}"


@dataclass(frozen=True, kw_only=True)
class _Move:
    """Where `send_to_device` moves leaves, and how."""

    device: torch.device
    non_blocking: bool
    skip_keys: frozenset[Any]


def send_to_device(
    tensor: Any,
    device: torch.device | str | int,
    non_blocking: bool = False,
    skip_keys: str | list[str] | None = None,
) -> Any:
    """Move every tensor in nested containers to `device`.

    Args:
        tensor: nested containers; besides tensors, whatever has a method `to` is moved by it.
        device: where to.
        non_blocking: do not wait for copies from pinned memory; an object whose `to` does not know this
            argument is moved without it.
        skip_keys: keys of mappings, at any depth, whose values stay where they are.

    Returns:
        New containers of the same types; a tensor that is on `device` already is the same object.
    """
    target = torch.device(device)
    if target.type == "cpu":
        target = torch.device("cpu")  # a CPU tensor never reports an index, so that cpu:0 would never match
    skip = frozenset([skip_keys] if isinstance(skip_keys, str) else skip_keys or ())
    return _move(tensor, _Move(device=target, non_blocking=non_blocking, skip_keys=skip))


def _move(data: Any, how: _Move) -> Any:
    # Called for every leaf of every batch: the plain types come first.
    kind = type(data)
    if kind is Tensor:
        return data if data.device == how.device else data.to(how.device, non_blocking=how.non_blocking)
    if kind is dict:
        skip = how.skip_keys
        return {key: value if key in skip else _move(value, how) for key, value in data.items()}
    if kind is list:
        return [_move(item, how) for item in data]
    if kind is tuple:
        return tuple([_move(item, how) for item in data])
    return _move_other(data, how)


def _move_other(data: Any, how: _Move) -> Any:
    # A class has `to` as a plain function, and a named tuple may have a field of that name.
    if callable(getattr(data, "to", None)) and not isinstance(data, type):
        try:
            return data.to(how.device, non_blocking=how.non_blocking)
        except TypeError:
            return data.to(how.device)
    if isinstance(data, (list, tuple)):
        return honor_type(data, (_move(item, how) for item in data))
    if isinstance(data, Mapping):
        skip = how.skip_keys
        return honor_type(data, ((k, v if k in skip else _move(v, how)) for k, v in data.items()))
    return data


def get_data_structure(data: Any) -> Any:
    """Return `data` with a `TensorInformation` in place of every tensor."""
    return recursively_apply(lambda tensor: TensorInformation(tensor.shape, tensor.dtype), data)


def get_shape(data: Any) -> Any:
    """Return `data` with its shape, as a list of int, in place of every tensor."""
    return recursively_apply(lambda tensor: list(tensor.shape), data)


def initialize_tensors(data_structure: Any) -> Any:
    """Return `data_structure` with an uninitialised CPU tensor in place of every `TensorInformation`."""
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
    """
    first = data
    while isinstance(first, (list, tuple, Mapping)):
        if not first:
            raise ValueError(f"An empty {type(first).__name__} has no batch size.")
        first = next(iter(first.values() if isinstance(first, Mapping) else first))
    if not isinstance(first, Tensor):
        raise TypeError(
            f"Only tensors have a batch size, but the first leaf is of type {type(first).__name__}."
        )
    if first.ndim == 0:
        raise IndexError("A tensor without dims has no batch size.")
    return first.shape[0]


def ignorant_find_batch_size(data: Any) -> int | None:
    """Return `find_batch_size(data)`, or None where the first leaf is no tensor or there is none."""
    try:
        return find_batch_size(data)
    except (TypeError, ValueError):
        return None


def listify(data: Any) -> Any:
    """Return `data` with nested lists of Python numbers in place of every tensor."""
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
    """
    if not len(data):
        raise ValueError("`concatenate([])`: there is nothing to concatenate.")
    first = data[0]
    if isinstance(first, (list, tuple)):
        return honor_type(first, (concatenate([item[i] for item in data], dim) for i in range(len(first))))
    if isinstance(first, Mapping):
        return honor_type(first, ((key, concatenate([item[key] for item in data], dim)) for key in first))
    if not isinstance(first, Tensor):
        raise TypeError(f"`concatenate` joins tensors only, but was given {type(first).__name__}.")
    return torch.cat(list(data), dim=dim)


def _tensors(data: Any) -> Iterator[Tensor]:
    return (leaf for _, leaf in walk(data) if isinstance(leaf, Tensor))


def find_device(data: Any) -> torch.device | None:
    """Return the device of the first tensor in nested containers, or None when there is no tensor."""
    first = next(_tensors(data), None)
    return None if first is None else first.device
