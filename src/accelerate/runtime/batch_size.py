"""Find a batch size that fits into memory. Called by users, on all ranks; how these agree: `attempts`."""

import functools
import inspect
import logging
import traceback
from collections.abc import Callable
from typing import Any, TypeVar, overload

from accelerate.runtime.attempts import Series
from accelerate.runtime.memory import clear_device_cache
from accelerate.runtime.out_of_memory import should_reduce_batch_size

__all__ = ["find_executable_batch_size"]

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_SHRINK = 0.9


@overload
def find_executable_batch_size(
    function: None = None,
    starting_batch_size: int = 128,
    reduce_batch_size_fn: Callable[[], int] | None = None,
    *,
    agree: bool = True,
    keep_global_batch: bool = False,
) -> Callable[[Callable[..., Result]], Callable[..., Result]]: ...


@overload
def find_executable_batch_size(
    function: Callable[..., Result],
    starting_batch_size: int = 128,
    reduce_batch_size_fn: Callable[[], int] | None = None,
    *,
    agree: bool = True,
    keep_global_batch: bool = False,
) -> Callable[..., Result]: ...


def find_executable_batch_size(
    function: Callable[..., Any] | None = None,
    starting_batch_size: int = 128,
    reduce_batch_size_fn: Callable[[], int] | None = None,
    *,
    agree: bool = True,
    keep_global_batch: bool = False,
) -> Any:
    """Call a function again with smaller batches until it does not run out of memory.

    What the function makes (models, optimizers, loaders) it has to make inside, anew for each batch size;
    with an Accelerator from outside it first calls `accelerator.free_memory()`. The size that fitted is where
    later calls begin. Called by every rank: if one of them runs out of memory, all go on with the same
    smaller batch. For that the process group is made anew; models prepared before cannot be used again.

    Args:
        function: called with the batch size ahead of its own arguments. A decorator when None.
        starting_batch_size: the first to try, samples per batch.
        reduce_batch_size_fn: returns the next size to try; 0.9 times the last one, rounded down, when None.
        agree: whether the ranks try the same sizes. Say no for a function that ranks call on their own.
        keep_global_batch: try divisors of `starting_batch_size` only, and also give the function, behind the
            batch size, the number of batches that make `starting_batch_size` together, as its gradient
            accumulation steps.

    Returns:
        The function without its first argument (two with `keep_global_batch`), or a decorator.

    Raises:
        TypeError: the batch size was passed by the caller, or the function does not take it.
        RuntimeError: no batch size is left to try.

    Example:
        >>> @find_executable_batch_size(starting_batch_size=16)
        ... def train(batch_size):
        ...     if batch_size > 10:
        ...         raise RuntimeError("CUDA out of memory.")
        ...     return batch_size
        >>> train()
        10
    """
    if function is None:
        return functools.partial(
            find_executable_batch_size,
            starting_batch_size=starting_batch_size,
            reduce_batch_size_fn=reduce_batch_size_fn,
            agree=agree,
            keep_global_batch=keep_global_batch,
        )
    sizes = _Sizes(starting_batch_size, reduce_batch_size_fn, divisors=keep_global_batch)
    num_given = 2 if keep_global_batch else 1

    @functools.wraps(function)
    def search(*args: Any, **kwargs: Any) -> Any:
        _check_call(function, args, kwargs, num_given)
        return _search(function, args, kwargs, sizes, agree=agree)

    return search


class _Sizes:
    """The batch sizes to try, from large to small; the one that fitted is kept."""

    def __init__(self, start: int, reduce: Callable[[], int] | None, *, divisors: bool) -> None:
        self._start = start
        self._reduce = reduce
        self._divisors = divisors
        self.size = start

    def arguments(self) -> tuple[int, ...]:
        """Return what the function is given."""
        return (self.size, self._start // self.size) if self._divisors else (self.size,)

    def shrink(self) -> None:
        """Go to the next smaller size; 0 at the end."""
        size = int(self.size * _SHRINK) if self._reduce is None else self._reduce()
        while self._divisors and size > 0 and self._start % size:
            size -= 1
        self.size = size


def _search(
    function: Callable[..., Any], args: Any, kwargs: dict[str, Any], sizes: _Sizes, *, agree: bool
) -> Any:
    clear_device_cache(garbage_collection=True)
    series = Series(function.__qualname__, alone=not agree)
    said = ""
    while sizes.size > 0:
        attempt = series.begin()
        try:
            result = function(*sizes.arguments(), *args, **kwargs)
        except Exception as error:
            if not attempt.failed(out_of_memory=should_reduce_batch_size(error)):
                raise
            said = str(error)
            _clear(error)
        else:
            if attempt.succeeded():
                return result
            said = "another rank ran out of memory"
            del result
        clear_device_cache(garbage_collection=True)
        if not attempt.give_up():
            raise RuntimeError(
                f"`{function.__qualname__}` ran out of memory with batch size {sizes.size} ({said}), and "
                "cannot be called again: another rank has failed, or has gone on without this one."
            )
        tried = sizes.size
        sizes.shrink()
        logger.info("Batch size %d does not fit (%s): trying %d.", tried, said, sizes.size)
    raise RuntimeError(
        "No executable batch size found, reached zero."
        + (f" The last attempt ended with: {said}" if said else "")
    )


def _clear(error: BaseException | None) -> None:
    """Drop what the failed call left in its frames: models, batches and gradients."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


def _check_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], num_given: int
) -> None:
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return
    positional = [
        parameter.name
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    name = getattr(function, "__name__", repr(function))
    given = " and ".join(("the batch size", "the accumulation steps")[:num_given])
    if len(positional) < num_given:
        raise TypeError(
            f"`{name}` has to take {given} as its first positional arguments: {_call(name, positional, {})}."
        )
    if len(args) + num_given > len(positional):
        named = dict(zip(positional[num_given:], args[1:], strict=False))
        raise TypeError(
            f"Batch size was passed into `{name}` as the first argument when called. Remove this as the "
            f"decorator already does so: `{_call(name, [], {**named, **kwargs})}`"
        )


def _call(name: str, args: list[str], kwargs: dict[str, Any]) -> str:
    return f"{name}({', '.join([*args, *(f'{key}={value!r}' for key, value in kwargs.items())])})"
