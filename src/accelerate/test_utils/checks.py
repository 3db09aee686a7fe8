"""Small assertions that tests of distributed code need. Called by users' tests and by the scripts."""

import contextlib
import io
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec

import torch

from accelerate.runtime.collectives import gather

__all__ = ["are_the_same_tensors", "assert_exception", "capture_call_output"]

P = ParamSpec("P")


def are_the_same_tensors(tensor: torch.Tensor) -> bool:
    """Return whether all processes hold the same values. Every process calls this; the tensor is sent.

    Args:
        tensor: of the same shape and dtype on every process.

    Example:
        >>> are_the_same_tensors(torch.ones(2))
        True
    """
    copies: torch.Tensor = gather(tensor[None])
    return all(bool(torch.equal(copy, copies[0])) for copy in copies)


@contextlib.contextmanager
def assert_exception(exception_class: type[BaseException], msg: str | None = None) -> Iterator[None]:
    """Fail unless the block raises, where neither pytest nor unittest is at hand (in a launched script).

    Args:
        exception_class: what is expected; a subclass will do.
        msg: text that the message must contain.

    Raises:
        AssertionError: the block raised nothing, something else, or with another message.

    Example:
        >>> with assert_exception(ValueError, "invalid literal"):
        ...     int("x")
    """
    try:
        yield
    except exception_class as error:
        if msg is not None and msg not in str(error):
            raise AssertionError(f"Expected message '{msg}' to be in exception but got '{error}'") from error
    except Exception as error:
        raise AssertionError(
            f"Expected exception of type {exception_class} but got {type(error)}: {error}"
        ) from error
    else:
        raise AssertionError(f"Expected exception of type {exception_class} but ran without issue.")


def capture_call_output(func: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> str:
    """Call a function and return what it printed to standard output.

    Example:
        >>> capture_call_output(print, "a", "b", sep="-")
        'a-b\\n'
    """
    with contextlib.redirect_stdout(io.StringIO()) as captured:
        func(*args, **kwargs)
    return captured.getvalue()
