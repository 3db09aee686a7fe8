"""A value from a configuration file as the type of its option. Called by options/config_file.py."""

import types
import typing
from collections.abc import Sequence
from typing import Any

from accelerate.compat.env import str_to_bool
from accelerate.options.field import OptionInfo

__all__ = ["allowed", "convert", "is_absent"]


def is_absent(value: Any) -> bool:
    """Return whether a key says nothing: null, or an empty list, section or text."""
    return value is None or (isinstance(value, str | list | dict) and not value)


def convert(info: OptionInfo, value: Any) -> Any:
    """Return a value of a file as the option has it.

    YAML reads words as other things than a text: `no` is false, `2` a number, `[A, B]` a list.

    Raises:
        ValueError: it cannot be that; the message says what is allowed.
    """
    return allowed(info, _READERS[_kind(info)](info, value))


def allowed(info: OptionInfo, value: Any) -> Any:
    """Return `value` if the option allows it, a text in the spelling of the option.

    Raises:
        ValueError: it does not; the message lists what is allowed.
    """
    choices = info.values or info.choices
    if choices is None or value is None or value in choices:
        return value
    for choice in choices:
        if isinstance(choice, str) and choice.lower() == str(value).lower():
            return choice
    raise ValueError(f"use one of {', '.join(str(choice) for choice in choices)}")


def _kind(info: OptionInfo) -> Any:
    if info.repeats or info.name == "fp8_override_linear_precision":
        return tuple
    kind = info.type
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        (kind,) = (member for member in typing.get_args(kind) if member is not types.NoneType)
    return kind


def _read_bool(info: OptionInfo, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    try:
        return bool(str_to_bool(str(value)))
    except ValueError:
        raise ValueError("use true or false") from None


def _read_int(info: OptionInfo, value: Any) -> int:
    try:
        if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
            raise ValueError
        return int(value)
    except (TypeError, ValueError):
        raise ValueError("use a whole number") from None


def _read_float(info: OptionInfo, value: Any) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    except (TypeError, ValueError):
        raise ValueError("use a number") from None


def _read_text(info: OptionInfo, value: Any) -> str:
    if isinstance(value, bool):
        no_is_a_word = "no" in (info.values or info.choices or ())
        return "no" if no_is_a_word and not value else str(value).lower()
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    if isinstance(value, dict):
        raise ValueError("use a text, not a section")
    return str(value)


def _read_texts(info: OptionInfo, value: Any) -> tuple[str, ...]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(str(item) for item in value)
    return tuple(item.strip() for item in str(value).split(","))


_READERS: dict[Any, Any] = {
    bool: _read_bool,
    int: _read_int,
    float: _read_float,
    str: _read_text,
    tuple: _read_texts,
}
