"""Options <-> the text of environment variables. Called by plugins when constructed, and by the launcher.

Reading forgives case (`bf16`, `BF16`), writing is canonical, and what is written is read back equal.
The text of a type: bool true/false (read as any flag: yes, on, 1 ...), int and float as Python writes
them, an enum its value, a sequence its items joined by commas; None is an unset variable.
"""

import enum
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union

from accelerate.compat import env
from accelerate.errors import ConfigurationError, EnvironmentVariableError
from accelerate.options.field import UNSET, OptionInfo, options

__all__ = ["decode", "encode", "fill_from_environ", "from_environ", "to_environ"]


def from_environ(cls: type, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return constructor arguments for `cls` from the variables that are set, and only those.

    Args:
        cls: a dataclass whose fields were declared with `option(env=...)`.
        environ: where to read; the environment of this process when None.

    Raises:
        EnvironmentVariableError: a text cannot be read; the message names variable, text and what is allowed.

    Example:
        >>> import dataclasses
        >>> from accelerate.options.field import option
        >>> @dataclasses.dataclass
        ... class Settings:
        ...     threads: int = option(1, env="MY_THREADS")
        >>> from_environ(Settings, {"MY_THREADS": "4"}), to_environ(Settings(threads=4))
        ({'threads': 4}, {'MY_THREADS': '4'})
    """
    source = env.snapshot() if environ is None else environ
    return {
        info.name: decode(info, source[info.env])
        for info in options(cls)
        if info.env is not None and info.env in source
    }


def to_environ(value: Any) -> dict[str, str]:
    """Return variable -> text for each option of `value` that has a variable and is not None.

    Raises:
        ConfigurationError: an option holds what no text can carry back, such as a comma inside a list.
    """
    return {
        info.env: encode(info, held)
        for info in options(type(value))
        if info.env is not None and (held := getattr(value, info.name)) is not None
    }


def fill_from_environ(value: Any, environ: Mapping[str, str] | None = None) -> None:
    """Give each option of `value` that is None what its variable says, or else its declared fallback.

    For `__post_init__` of the public plugins: what was passed wins over the environment.

    Raises:
        EnvironmentVariableError: as `from_environ`, and only for variables of options that are None.
    """
    source = env.snapshot() if environ is None else environ
    for info in options(type(value)):
        if getattr(value, info.name) is not None:
            continue
        if info.env is not None and info.env in source:
            setattr(value, info.name, decode(info, source[info.env]))
        elif info.fallback is not UNSET:
            setattr(value, info.name, info.fallback)


def decode(info: OptionInfo, text: str) -> Any:
    """Return the value that `text` stands for in the variable of this option.

    Raises:
        EnvironmentVariableError: the text cannot be read as the option's type, or is no allowed choice.
    """
    try:
        return _allowed(info, _read(info.type, text))
    except ValueError as error:
        # The cause is left out: its words are in the message, and a user needs no trace of the codec.
        raise EnvironmentVariableError(f"{info.env}={text!r} in the environment: {error}") from None


def encode(info: OptionInfo, value: Any) -> str:
    """Return the text that stands for `value` in the variable of this option.

    Raises:
        ConfigurationError: no text can carry this value back.
    """
    try:
        return _write(info.type, value)
    except ValueError as error:
        raise ConfigurationError(f"{info.name}={value!r} cannot be written to {info.env}: {error}") from None


def _allowed(info: OptionInfo, value: Any) -> Any:
    if info.choices is None or value is None:
        return value
    if isinstance(value, list | tuple):
        return type(value)(_choose(info.choices, item) for item in value)
    return _choose(info.choices, value)


def _choose(choices: Sequence[Any], value: Any) -> Any:
    """Return the choice that `value` is, or that a text spells, if need be in another case."""
    if value in choices:
        return value
    spelled = str(value).strip().lower()
    for choice in choices:
        if str(choice).lower() == spelled:
            return choice if isinstance(value, str) else value
    raise ValueError(f"use one of {', '.join(str(choice) for choice in choices)}")


def _read_bool(text: str) -> bool:
    try:
        return bool(env.str_to_bool(text))
    except ValueError:
        raise ValueError("use a truth value: yes/no, true/false, on/off, y/n, t/f or 1/0") from None


def _read_int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("use an integer") from None


def _read_float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("use a number") from None


_SCALARS: dict[type, Callable[[str], Any]] = {
    bool: _read_bool,
    int: _read_int,
    float: _read_float,
    str: str,
}


def _read(kind: Any, text: str) -> Any:
    """Return `text` read as a value of type `kind`; ValueError says what is allowed."""
    origin = typing.get_origin(kind)
    if kind in _SCALARS:
        return _SCALARS[kind](text)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(_choose([member.value for member in kind], text))
    if origin is Literal:
        return _choose(typing.get_args(kind), text)
    if origin in (Union, types.UnionType):
        return _read_union(typing.get_args(kind), text)
    if origin in (list, tuple):
        return _read_items(kind, text)
    raise ValueError(f"a value of type {kind} has no text")


def _read_union(members: tuple[Any, ...], text: str) -> Any:
    # A str takes any text, so it is asked last; only where there is none can "None" mean None.
    concrete = sorted((m for m in members if m is not types.NoneType), key=lambda m: m is str)
    if types.NoneType in members and str not in concrete and text.strip().lower() == "none":
        return None
    allowed = []
    for member in concrete:
        try:
            return _read(member, text)
        except ValueError as error:
            allowed.append(str(error))
    raise ValueError("; or ".join(allowed))


def _read_items(kind: Any, text: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    items = [item.strip() for item in text.split(",")] if text.strip() else []
    if origin is tuple and arguments[-1] is not Ellipsis:
        if len(items) != len(arguments):
            raise ValueError(f"use {len(arguments)} values separated by commas")
        return tuple(_read(member, item) for member, item in zip(arguments, items, strict=True))
    return origin(_read(arguments[0], item) for item in items)


def _write(kind: Any, value: Any) -> str:
    if isinstance(value, list | tuple):
        return _write_items(value)
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and "\0" in value:
        raise ValueError("a variable cannot hold a NUL character")
    if isinstance(value, int | float | str):
        return str(value)
    raise ValueError(f"a value of type {type(value).__name__} has no text (the option is {kind})")


def _write_items(items: Sequence[Any]) -> str:
    texts = [_write(type(item), item) for item in items]
    for text in texts:
        if "," in text or text != text.strip() or not text:
            raise ValueError(f"item {text!r} is empty, has a comma in it or a blank at an end")
    return ",".join(texts)
