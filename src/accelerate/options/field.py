"""Declare an option once: `option()` for the class that owns it, `options()` for all that derive from it.

Called by every module of `options/` to declare, and by the environment codec, the parsers, the
configuration file, the questionnaire and the docs to list what was declared.
"""

import dataclasses
import sys
import typing
from collections.abc import Callable, Sequence
from typing import Any

from accelerate.errors import ConfigurationError

__all__ = ["UNSET", "OptionInfo", "Unset", "option", "options"]

_METADATA_KEY = "accelerate.option"


class Unset:
    """The type of `UNSET`: there is no such value (unlike None, which is a value)."""

    def __repr__(self) -> str:
        return "UNSET"

    def __bool__(self) -> bool:
        return False


UNSET = Unset()


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptionInfo:
    """All that is known of one option; every surface of the option is derived from this.

    Attributes:
        name: field name in its class.
        type: the type of its values; a text when the annotation cannot be resolved without torch.
        default: what the constructor takes when nothing is passed; `UNSET` for a required option.
        fallback: what a field left at None becomes when its variable is unset too; `UNSET` for no change.
        env: environment variable, or None.
        flags: command-line spellings, the long one first; empty when it has none.
        key: key in the configuration file, or None.
        question: what the questionnaire asks, or None.
        help: one line for `--help` and the docs.
        choices: the values that are allowed, or None for any.
        group: heading in `--help`, or None.
        nargs: number of command-line values as argparse counts them, or None for one.
        values: allowed values, where the parser takes any and they are checked with all else; None for any.
        parse: how the command line reads its text, where the type does not say; a bool then takes a value.
        repeats: may be given several times, and collects.
        off_flags: spellings that switch a bool off again.
    """

    name: str
    type: Any
    default: Any = UNSET
    fallback: Any = UNSET
    env: str | None = None
    flags: tuple[str, ...] = ()
    key: str | None = None
    question: str | None = None
    help: str = ""
    choices: tuple[Any, ...] | None = None
    group: str | None = None
    nargs: int | str | None = None
    values: tuple[Any, ...] | None = None
    parse: Callable[[str], Any] | None = None
    repeats: bool = False
    off_flags: tuple[str, ...] = ()


def option(
    default: Any = UNSET,
    *,
    default_factory: Callable[[], Any] | None = None,
    fallback: Any = UNSET,
    env: str | None = None,
    flag: str | Sequence[str] | None = None,
    key: str | None = None,
    question: str | None = None,
    help: str = "",
    choices: Sequence[Any] | None = None,
    type: Any = None,
    group: str | None = None,
    nargs: int | str | None = None,
    values: Sequence[Any] | None = None,
    parse: Callable[[str], Any] | None = None,
    repeats: bool = False,
    off_flag: str | None = None,
    **field_arguments: Any,
) -> Any:
    """Declare one option of a dataclass; it stays an ordinary dataclass field.

    Args:
        default: value when nothing is passed; left out (and no `default_factory`) it is required.
        default_factory: makes the default, for values that must not be shared.
        fallback: what `codec.fill_from_environ` gives a field that is None and whose variable is unset.
        env: environment variable that carries it.
        flag: command-line spelling(s), for instance `"--num_processes"` or `("-m", "--module")`.
        key: key in the configuration file.
        question: text of the questionnaire.
        help: one line for `--help` and the docs.
        choices: the values that are allowed.
        type: type of its values, where the annotation says something else or needs torch to resolve.
        group: heading in `--help`.
        nargs: number of command-line values, as argparse counts them.
        values: the values that are allowed, where the parser itself is to take any.
        parse: how the command line reads its text.
        repeats: whether it may be given several times.
        off_flag: spelling that switches it off.
        field_arguments: passed on to `dataclasses.field` (`repr`, `compare`, `kw_only` ...).

    Raises:
        ConfigurationError: both `default` and `default_factory` are given.
    """
    info = OptionInfo(
        name="",
        type=type,
        fallback=fallback,
        env=env,
        flags=(flag,) if isinstance(flag, str) else tuple(flag or ()),
        key=key,
        question=question,
        help=help,
        choices=None if choices is None else tuple(choices),
        group=group,
        nargs=nargs,
        values=None if values is None else tuple(values),
        parse=parse,
        repeats=repeats,
        off_flags=() if off_flag is None else (off_flag,),
    )
    if default is not UNSET and default_factory is not None:
        raise ConfigurationError(f"option(default={default!r}, default_factory=...): give one of the two")
    if default is not UNSET:
        field_arguments["default"] = default
    if default_factory is not None:
        field_arguments["default_factory"] = default_factory
    return dataclasses.field(metadata={_METADATA_KEY: info}, **field_arguments)


def options(cls: type) -> tuple[OptionInfo, ...]:
    """Return every option of a dataclass in the order of its fields.

    A field that was declared without `option()` is listed too, with its name, type and default only.

    Raises:
        TypeError: `cls` is not a dataclass.

    Example:
        >>> @dataclasses.dataclass
        ... class Settings:
        ...     threads: int = option(1, flag="--threads", help="How many.")
        >>> [(info.name, info.flags, info.default) for info in options(Settings)]
        [('threads', ('--threads',), 1)]
    """
    return tuple(_info(cls, field) for field in dataclasses.fields(cls) if field.init)


def _info(cls: type, field: "dataclasses.Field[Any]") -> OptionInfo:
    info: OptionInfo = field.metadata.get(_METADATA_KEY) or OptionInfo(name="", type=None)
    default: Any = UNSET
    if field.default is not dataclasses.MISSING:
        default = field.default
    elif field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    resolved = info.type if info.type is not None else _resolve(cls, field)
    return dataclasses.replace(info, name=field.name, type=resolved, default=default)


def _resolve(cls: type, field: "dataclasses.Field[Any]") -> Any:
    """Return the annotation as a type where its names can be found, else as the text it was written as."""
    if not isinstance(field.type, str):
        return field.type
    owner = next(base for base in cls.__mro__ if field.name in vars(base).get("__annotations__", {}))
    carrier = type("_", (), {"__annotations__": {field.name: field.type}})
    try:
        return typing.get_type_hints(carrier, vars(sys.modules[owner.__module__]))[field.name]
    except NameError:
        return field.type
