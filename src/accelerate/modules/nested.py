"""Pure functions over tensors in nested containers. Called by the collectives, loaders, precision and users.

[Note: nested containers]
A *container* is a list, a tuple (named tuples and torch's own result tuples included) or a mapping, of any
subclass, or a *record*: an instance of a dataclass that is no mapping. Everything else is a *leaf*, also a
set or a deque. A container is rebuilt by its own type; a record is copied without its constructor, and is
the same object when no field has changed. A field of a record that is None counts as absent, as in the
outputs of transformers; a record inside itself, as in a node that knows its parent, is a leaf. Functions
carry the ids of the records that they are inside of as `around`. Paths in error messages are written as one
would index: `['labels'][0].x`.
"""

import copy
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from functools import partial
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "TensorInformation",
    "find_device",
    "flatten",
    "honor_type",
    "is_namedtuple",
    "is_record",
    "is_tensor_information",
    "is_torch_tensor",
    "map_leaves",
    "named_items",
    "outline",
    "recursively_apply",
    "send_to_device",
    "walk",
    "with_fields",
    "with_leaves",
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

    Example:
        >>> honor_type((1, 2), [3, 4]), honor_type({"a": 1}, [("a", 5)])
        ((3, 4), {'a': 5})
    """
    if is_namedtuple(obj):
        return obj._make(generator)  # also right when __new__ takes other arguments than the fields
    if isinstance(obj, Mapping):
        return _honor_mapping(obj, dict(generator))
    return type(obj)(generator)


def _honor_mapping(obj: Mapping[Any, Any], values: dict[Any, Any]) -> Any:
    if isinstance(obj, dict) and hasattr(type(obj), "__dataclass_fields__"):
        return _honor_mapping_with_fields(obj, values)
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


def _honor_mapping_with_fields(obj: dict[Any, Any], values: dict[Any, Any]) -> Any:
    # Its constructor takes fields, which may be more than the items, or items; and it may refuse `update`.
    if obj.keys() != values.keys():
        return type(obj)(values)
    rebuilt = copy.copy(obj)
    for key, value in values.items():
        rebuilt[key] = value
        if isinstance(key, str) and key in type(obj).__dataclass_fields__:  # type: ignore[attr-defined]
            object.__setattr__(rebuilt, key, value)  # a frozen dataclass has no assignment
    return rebuilt


def is_record(data: Any, around: tuple[int, ...] = ()) -> bool:
    """Return whether `data` is an instance of a dataclass that counts as a container."""
    kind = type(data)
    return hasattr(kind, "__dataclass_fields__") and kind is not TensorInformation and id(data) not in around


def _fields(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass instance that have a value."""
    found = ((field.name, getattr(record, field.name, None)) for field in fields(record))
    return {name: value for name, value in found if value is not None}


def with_fields(record: Any, values: Mapping[str, Any]) -> Any:
    """Return a copy of a dataclass instance with other values; the instance itself if none is new."""
    if all(getattr(record, name) is value for name, value in values.items()):
        return record
    rebuilt = copy.copy(record)
    for name, value in values.items():
        object.__setattr__(rebuilt, name, value)  # a frozen one refuses its own way
    return rebuilt


def map_leaves(function: Callable[[Any], Any], data: Any, around: tuple[int, ...] = ()) -> Any:
    """Return `data` with `function(leaf)` in place of every leaf; containers are rebuilt by their type."""
    kind = type(data)
    if kind is Tensor:
        return function(data)
    # The plain types first: an isinstance check against Mapping costs more than the rest of the visit.
    if kind is list:
        return [map_leaves(function, item, around) for item in data]
    if kind is tuple:
        return tuple([map_leaves(function, item, around) for item in data])
    if kind is dict:
        return {key: map_leaves(function, value, around) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return honor_type(data, (map_leaves(function, item, around) for item in data))
    if isinstance(data, Mapping):
        return honor_type(data, ((key, map_leaves(function, value, around)) for key, value in data.items()))
    if is_record(data, around):
        around = (*around, id(data))
        return with_fields(data, {k: map_leaves(function, v, around) for k, v in _fields(data).items()})
    return function(data)


def outline(function: Callable[[Any], Any], data: Any, around: tuple[int, ...] = ()) -> Any:
    """Return `function(leaf)` for every leaf in plain lists and dictionaries, which show the structure only.

    Lists and tuples of any class become lists; mappings, named tuples and records become dictionaries from
    keys to parts. A key that may not look alike in other processes stands there by the name of its type.
    """
    kind = type(data)
    if kind is Tensor:
        return function(data)
    # Called for every collective: the plain types first, and no call for a tensor's visit.
    if kind is list or kind is tuple:
        return [function(item) if type(item) is Tensor else outline(function, item, around) for item in data]
    if isinstance(data, (list, tuple)) and not is_namedtuple(data):
        return [outline(function, item, around) for item in data]
    items = named_items(data, around)
    if items is None:
        return function(data)
    if is_record(data):
        around = (*around, id(data))
    return {
        key if type(key) is str else _portable(key): outline(function, value, around)
        for key, value in items.items()
    }


def named_items(data: Any, around: tuple[int, ...] = ()) -> Mapping[Any, Any] | None:
    """Return the parts of a mapping, named tuple or record by key or field, None for anything else."""
    if isinstance(data, Mapping):
        return data
    if is_namedtuple(data):
        return dict(zip(data._fields, data, strict=True))
    return _fields(data) if is_record(data, around) else None


def _portable(key: Any) -> Any:
    if type(key) in (str, int, float, bool, bytes, type(None)):
        return key
    if isinstance(key, Enum):
        return str(key)
    if isinstance(key, tuple):
        return tuple([_portable(item) for item in key])
    return type(key).__qualname__


def flatten(data: Any) -> tuple[list[Any], Callable[[Iterable[Any]], Any]]:
    """Take all leaves out of `data`.

    Returns:
        The leaves in order (tensors and all others), and a function that takes as many new leaves and
        returns them in containers like those of `data`.
    """
    leaves: list[Any] = []

    def collect(leaf: Any) -> Any:
        leaves.append(leaf)
        return leaf  # so that records are not copied

    map_leaves(collect, data)

    return leaves, partial(with_leaves, data)


def with_leaves(data: Any, new_leaves: Iterable[Any]) -> Any:
    """Return containers like those of `data` with as many other leaves, in the order of `flatten`."""
    remaining = iter(new_leaves)
    return map_leaves(lambda _: next(remaining), data)


def walk(data: Any, path: str = "", around: tuple[int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Give (path, leaf) for every leaf of `data`, in the order of `flatten`; a bare leaf has the path ""."""
    if is_namedtuple(data):
        for name, item in zip(data._fields, data, strict=True):
            yield from walk(item, f"{path}.{name}", around)
    elif isinstance(data, (list, tuple)):
        for index, item in enumerate(data):
            yield from walk(item, f"{path}[{index}]", around)
    elif isinstance(data, Mapping):
        for key, value in data.items():
            yield from walk(value, f"{path}[{key!r}]", around)
    elif is_record(data, around):
        around = (*around, id(data))
        for name, value in _fields(data).items():
            yield from walk(value, f"{path}.{name}", around)
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
        data: nested lists, tuples, named tuples, mappings and dataclasses.
        args: passed on to `func`.
        test_type: which leaves are meant; tensors by default.
        error_on_other_type: refuse other leaves, which are otherwise kept as they are.
        kwargs: passed on to `func`.

    Returns:
        The results in new containers of the same types.

    Raises:
        TypeError: a leaf of another type was found and `error_on_other_type` is set.

    Example:
        >>> recursively_apply(torch.sum, {"x": torch.ones(3), "name": "kept"})
        {'x': tensor(3.), 'name': 'kept'}
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
        skip_keys: keys of mappings and names of dataclass fields, at any depth, whose values stay where they
            are.

    Returns:
        New containers of the same types; a tensor that is on `device` already is the same object.

    Example:
        >>> batch = {"x": torch.ones(2), "names": ["a", "b"]}
        >>> send_to_device(batch, "meta")["x"].device.type
        'meta'
    """
    skip = (
        _NOTHING if skip_keys is None else frozenset([skip_keys] if isinstance(skip_keys, str) else skip_keys)
    )
    return _move(tensor, _target(device), non_blocking, skip, ())


_NOTHING: frozenset[Any] = frozenset()


_CPU = torch.device("cpu")


def _target(device: torch.device | str | int) -> torch.device:
    target = device if type(device) is torch.device else torch.device(device)
    # A CPU tensor never reports an index, so that cpu:0 would never match.
    return _CPU if target.type == "cpu" else target


def _move(
    data: Any, device: torch.device, non_blocking: bool, skip: frozenset[Any], around: tuple[int, ...]
) -> Any:
    # Called for every batch, mostly a dictionary of tensors: plain types come first, and no call for a tensor
    # that is there already.
    kind = type(data)
    if kind is Tensor:
        return data if data.device == device else data.to(device, non_blocking=non_blocking)
    if kind is dict:
        return {
            key: value
            if (type(value) is Tensor and value.device == device) or key in skip
            else _move(value, device, non_blocking, skip, around)
            for key, value in data.items()
        }
    if kind is list or kind is tuple:
        moved = [
            item
            if type(item) is Tensor and item.device == device
            else _move(item, device, non_blocking, skip, around)
            for item in data
        ]
        return moved if kind is list else tuple(moved)
    return _move_other(data, device, non_blocking, skip, around)


def _move_other(
    data: Any, device: torch.device, non_blocking: bool, skip: frozenset[Any], around: tuple[int, ...]
) -> Any:
    # A class has `to` as a plain function, and a named tuple may have a field of that name.
    if callable(getattr(data, "to", None)) and not isinstance(data, type):
        try:
            return data.to(device, non_blocking=non_blocking)
        except TypeError:
            return data.to(device)
    if isinstance(data, (list, tuple)):
        return honor_type(data, (_move(item, device, non_blocking, skip, around) for item in data))
    if isinstance(data, Mapping):
        moved = _move(dict(data), device, non_blocking, skip, around)
        return honor_type(data, moved.items())
    if is_record(data, around):
        return with_fields(data, _move(_fields(data), device, non_blocking, skip, (*around, id(data))))
    return data


def _tensors(data: Any) -> Iterator[Tensor]:
    return (leaf for _, leaf in walk(data) if isinstance(leaf, Tensor))


def find_device(data: Any) -> torch.device | None:
    """Return the device of the first tensor in nested containers, or None when there is no tensor.

    Example:
        >>> find_device({"name": "no tensor", "x": [torch.ones(2)]}), find_device([])
        (device(type='cpu'), None)
    """
    first = next(_tensors(data), None)
    return None if first is None else first.device
