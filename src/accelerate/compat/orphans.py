"""Small helpers of the interface that nothing inside uses. Reached by users through `accelerate.utils`."""

from collections.abc import MutableMapping
from typing import Any

__all__ = ["convert_bytes", "get_pretty_name", "merge_dicts", "recursive_getattr"]


def convert_bytes(size: float) -> str:
    """Return a number of bytes as people read it, in steps of 1024.

    Args:
        size: number of bytes.

    Example:
        >>> convert_bytes(2_500_000)
        '2.38 MB'
    """
    if abs(size) < 1024:
        return f"{round(size, 2)} bytes"
    for unit in ("KB", "MB", "GB", "TB"):
        size /= 1024
        if abs(size) < 1024:
            return f"{round(size, 2)} {unit}"
    return f"{round(size / 1024, 2)} PB"


def get_pretty_name(obj: object) -> str:
    """Return the name of a class or function, or the name of the class of any other object.

    Example:
        >>> get_pretty_name(dict), get_pretty_name({})
        ('dict', 'dict')
    """
    for name in ("__qualname__", "__name__"):
        if hasattr(obj, name):
            return str(getattr(obj, name))
    return type(obj).__qualname__


def merge_dicts(source: MutableMapping[Any, Any], destination: MutableMapping[Any, Any]) -> Any:
    """Write a nested dictionary over another, in place, and return it.

    Where both hold a dictionary the two are merged; anywhere else the source wins.

    Args:
        source: what is written.
        destination: what it is written over; changed.

    Example:
        >>> merge_dicts({"a": {"x": 1}}, {"a": {"y": 2}})
        {'a': {'y': 2, 'x': 1}}
    """
    for key, value in source.items():
        if isinstance(value, MutableMapping):
            below = destination.get(key)
            destination[key] = merge_dicts(value, below if isinstance(below, MutableMapping) else {})
        else:
            destination[key] = value
    return destination


def recursive_getattr(obj: object, attr: str) -> Any:
    """Return an attribute of an attribute, by its dotted path.

    Args:
        obj: where the path starts.
        attr: names joined by dots.

    Raises:
        AttributeError: one of them is missing.

    Example:
        >>> import collections
        >>> recursive_getattr(collections, "abc.Mapping.__name__")
        'Mapping'
    """
    for name in attr.split("."):
        obj = getattr(obj, name)
    return obj
