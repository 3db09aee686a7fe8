"""The one door to the process environment: nothing else reads or writes `os.environ`.

Parsing follows the interface: a *flag* is y/yes/t/true/on/1 or n/no/f/false/off/0 in any case, and
anything else is an error; *is_true* asks for the literal text "true" and never raises.
"""

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from accelerate.errors import EnvironmentVariableError

__all__ = [
    "clear_environment",
    "get",
    "get_flag",
    "get_int",
    "get_int_from_env",
    "is_true",
    "parse_choice_from_env",
    "parse_flag_from_env",
    "patch_environment",
    "purge_accelerate_environment",
    "put",
    "remove",
    "snapshot",
    "str_to_bool",
]

_TRUE = frozenset({"y", "yes", "t", "true", "on", "1"})
_FALSE = frozenset({"n", "no", "f", "false", "off", "0"})

Decorated = TypeVar("Decorated")
Default = TypeVar("Default")


def snapshot() -> dict[str, str]:
    """Return a copy of the whole environment, for pure functions that take a mapping."""
    return dict(os.environ)


def get(name: str, default: str | None = None) -> str | None:
    """Return the text of variable `name`, or `default` when it is unset."""
    return os.environ.get(name, default)


def put(values: Mapping[str, object]) -> None:
    """Write each value, as text, into this process's environment (children inherit it)."""
    os.environ.update({name: str(value) for name, value in values.items()})


def remove(names: Iterable[str]) -> None:
    """Unset each named variable; names that are not set are passed over."""
    for name in names:
        os.environ.pop(name, None)


def str_to_bool(value: str, to_bool: bool = False) -> int | bool:
    """Read a yes/no text.

    Args:
        value: y, yes, t, true, on, 1 or n, no, f, false, off, 0, in any case.
        to_bool: return True/False rather than 1/0.

    Raises:
        EnvironmentVariableError: any other text (a ValueError).

    Example:
        >>> str_to_bool("Yes"), str_to_bool("off"), str_to_bool("1", to_bool=True)
        (1, 0, True)
    """
    text = value.strip().lower()
    if text not in _TRUE and text not in _FALSE:
        raise EnvironmentVariableError(
            f"invalid truth value {value!r}: use one of yes/no, true/false, on/off, y/n, t/f, 1/0"
        )
    answer = text in _TRUE
    return answer if to_bool else int(answer)


def parse_flag_from_env(key: str, default: bool = False) -> bool:
    """Return variable `key` read as a flag, or `default` when it is unset.

    Raises:
        EnvironmentVariableError: the text is no truth value; the message names the variable.

    Example:
        >>> with patch_environment(my_flag="on"):
        ...     parse_flag_from_env("MY_FLAG")
        True
        >>> parse_flag_from_env("MY_FLAG", default=False)
        False
    """
    text = os.environ.get(key)
    if text is None:
        return default
    try:
        return bool(str_to_bool(text))
    except EnvironmentVariableError as error:
        raise EnvironmentVariableError(f"{key}={text!r} in the environment: {error}") from None


def is_true(name: str) -> bool:
    """Return whether variable `name` holds the literal text "true", in any case."""
    return os.environ.get(name, "").lower() == "true"


def get_int_from_env(env_keys: Iterable[str], default: Default) -> int | Default:
    """Return the first of the named variables that holds an integer >= 0, or `default`.

    Variables that are unset or blank are passed over.

    Raises:
        EnvironmentVariableError: one of them, met on the way, is not an integer.

    Example:
        >>> with patch_environment(my_rank=3):
        ...     get_int_from_env(["OTHER_RANK", "MY_RANK"], default=0)
        3
    """
    for name in env_keys:
        text = os.environ.get(name, "").strip()
        if not text:
            continue
        try:
            value = int(text)
        except ValueError:
            raise EnvironmentVariableError(f"{name}={text!r} in the environment is not an integer") from None
        if value >= 0:
            return value
    return default


# The short names that the package itself uses; the others are those of the interface.
get_flag = parse_flag_from_env
get_int = get_int_from_env


def parse_choice_from_env(key: str, default: str = "no") -> str:
    """Return the text of variable `key`, or `default` when it is unset.

    Example:
        >>> with patch_environment(my_precision="bf16"):
        ...     parse_choice_from_env("MY_PRECISION")
        'bf16'
        >>> parse_choice_from_env("MY_PRECISION")
        'no'
    """
    return os.environ.get(key, default)


@contextmanager
def patch_environment(**kwargs: object) -> Iterator[None]:
    """Set variables for the length of a block and put the old values back, also after an exception.

    Args:
        kwargs: variable names (written in upper case) and values (written as text).

    Example:
        >>> with patch_environment(my_variable=2):
        ...     get("MY_VARIABLE")
        '2'
        >>> get("MY_VARIABLE") is None
        True
    """
    values = {name.upper(): str(value) for name, value in kwargs.items()}
    saved = {name: os.environ[name] for name in values if name in os.environ}
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            os.environ.pop(name, None)
        os.environ.update(saved)


@contextmanager
def clear_environment() -> Iterator[None]:
    """Empty the environment for the length of a block; what it held comes back, what the block set goes.

    Example:
        >>> with patch_environment(my_variable=2):
        ...     with clear_environment():
        ...         inside = snapshot()
        ...     get("MY_VARIABLE"), inside
        ('2', {})
    """
    saved = dict(os.environ)
    os.environ.clear()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(saved)


def purge_accelerate_environment(func_or_cls: Decorated) -> Decorated:
    """Decorate a function, or every test of a class, to leave no ACCELERATE_* variable behind.

    Variables with that prefix which the call adds are removed and those that it changes are put back, also
    when the call raises. Coroutine functions are supported. Tests that subclasses add are decorated too.
    What `setUp` of a `unittest.TestCase` sets is there in its test, and goes after `tearDown`.

    Example:
        >>> @purge_accelerate_environment
        ... def test_something():
        ...     put({"ACCELERATE_MY_VARIABLE": 1})
        >>> test_something()
        >>> get("ACCELERATE_MY_VARIABLE") is None
        True
    """
    if inspect.isclass(func_or_cls):
        _purge_tests(func_or_cls)
        return func_or_cls
    return _purged(func_or_cls)  # type: ignore[arg-type, return-value]


def _purge_tests(cls: Any) -> None:
    for name in dir(cls):
        _purge_attribute(cls, name)
    own = vars(cls).get("__init_subclass__")

    def __init_subclass__(subclass: Any, /, **kwargs: Any) -> None:
        if own is None:
            super(cls, subclass).__init_subclass__(**kwargs)
        else:
            own.__func__(subclass, **kwargs)
        for name in vars(subclass).copy():
            _purge_attribute(subclass, name)

    cls.__init_subclass__ = classmethod(__init_subclass__)


def _purge_attribute(cls: type, name: str) -> None:
    attribute = inspect.getattr_static(cls, name)
    # `run` of a unittest.TestCase spans setUp, test and tearDown.
    is_test = name.startswith("test") or (name == "run" and hasattr(cls, "setUp"))
    if is_test and inspect.isfunction(attribute):
        setattr(cls, name, _purged(attribute))


def _purged(function: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapper_async(*args: Any, **kwargs: Any) -> Any:
            with _restored("ACCELERATE_"):
                return await function(*args, **kwargs)

        return wrapper_async

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with _restored("ACCELERATE_"):
            return function(*args, **kwargs)

    return wrapper


@contextmanager
def _restored(prefix: str) -> Iterator[None]:
    saved = {name: value for name, value in os.environ.items() if name.startswith(prefix)}
    try:
        yield
    finally:
        remove([name for name in os.environ if name.startswith(prefix)])
        os.environ.update(saved)
