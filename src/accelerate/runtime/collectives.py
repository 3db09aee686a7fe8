"""Operations in which every process takes part, over nested containers of tensors; called by users and rooms.

Each asks the current run for its ranks, and starts it with detected values where nobody has; `RankGroup` does
the work. With one process nothing is sent.
"""

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from accelerate.errors import DistributedOperationException, NotInitializedError
from accelerate.runtime import process_group
from accelerate.runtime.current import current
from accelerate.runtime.rank_group import CannotPadNestedTensorWarning, RankGroup

__all__ = [
    "CannotPadNestedTensorWarning",
    "broadcast",
    "broadcast_object_list",
    "chained_operation",
    "current_ranks",
    "gather",
    "gather_object",
    "pad_across_processes",
    "reduce",
    "verify_operation",
    "wait_for_everyone",
]

P = ParamSpec("P")
Result = TypeVar("Result")


def current_ranks() -> RankGroup:
    """Return the ranks of the current run, which is started where nobody has.

    Raises:
        NotInitializedError: there are several, and their process group was ended.
    """
    run = current.ensure()
    if run.world.size > 1 and run.backend is not None and not process_group.is_started():
        raise NotInitializedError(
            "Nothing can be sent between processes: their group was ended, as `end_training()` does. Gather "
            "what you need before, or make another `Accelerator()`, on every process."
        )
    return RankGroup(size=run.world.size, rank=run.world.rank, device=run.device, debug=run.debug)


def wait_for_everyone() -> None:
    """Return when every process has called this; at once when there is no process group."""
    if process_group.is_started():
        current_ranks().barrier()


def gather(tensor: Any) -> Any:
    """Concatenate every tensor in nested containers over all processes, along dim 0.

    Called by every process, with tensors of the same shapes and dtypes. All tensors of one device travel in
    one collective, whatever their dtypes. With one process nothing is sent and `tensor` itself is returned.

    Args:
        tensor: a tensor, or nested lists, tuples and dictionaries of tensors.

    Returns:
        Containers of the same types, on every process; rows stand in the order of ranks, on the device of the
        input. A tensor without dims becomes a vector with one element a process (with one process it stays
        as it is). Gradients do not flow through.

    Raises:
        TypeError: with several processes, something is not a dense tensor; the message says where it stands.

    Example:
        >>> import torch
        >>> gather({"x": torch.tensor([1, 2])})  # with two processes: four elements
        {'x': tensor([1, 2])}
    """
    return current_ranks().gather(tensor)


def reduce(tensor: Any, reduction: str = "mean", scale: float = 1.0) -> Any:
    """Reduce every tensor in nested containers over all processes, element by element.

    Called by every process, with tensors of the same shapes and dtypes. All tensors of one dtype and device
    travel in one collective. The input is not changed.

    Args:
        tensor: a tensor, or nested lists, tuples and dictionaries of tensors.
        reduction: "mean", "sum", "max" or "min". The sum of bools is their "or".
        scale: only XLA devices know it; it has no effect on others.

    Returns:
        Containers of the same types with new tensors, on every process; with one process, clones. Where a
        tensor requires a gradient, it flows to this process's own part.

    Raises:
        ValueError: there is no such reduction.
        TypeError: something is not a dense tensor, or cannot be reduced in its dtype.
        RuntimeError: with several processes, the mean of integers is asked for.

    Example:
        >>> import torch
        >>> reduce([torch.tensor([1.0, 3.0])], "sum")  # with two processes: the sums
        [tensor([1., 3.])]
    """
    if scale != 1.0:
        warnings.warn(f"`reduce(..., {scale=})` has no effect on this device.", stacklevel=2)
    return current_ranks().reduce(tensor, reduction)


def broadcast(tensor: Any, from_process: int = 0) -> Any:
    """Fill every tensor in nested containers with the values of one process.

    Called by every process, with tensors of the same shapes and dtypes. All tensors of one device travel in
    one collective. The tensors of the other processes are changed in place. With one process nothing is done.

    Args:
        tensor: a tensor, or nested lists, tuples and dictionaries of tensors.
        from_process: whose values all get.

    Returns:
        The same tensors, in containers of the same types.

    Raises:
        TypeError: with several processes, something is not a dense tensor; the message says where it stands.
        ValueError: there is no such process.

    Example:
        >>> import torch
        >>> broadcast(torch.tensor([1, 2]))
        tensor([1, 2])
    """
    return current_ranks().broadcast(tensor, from_process)


def pad_across_processes(tensor: Any, dim: int = 0, pad_index: float = 0, pad_first: bool = False) -> Any:
    """Lengthen every tensor in nested containers to the largest size over all processes, along one dim.

    Called by every process, with as many tensors; only their sizes are exchanged, in one collective.

    Args:
        tensor: a tensor, or nested lists, tuples and dictionaries of tensors.
        dim: along which sizes may differ; a tensor without this dim is left as it is.
        pad_index: the value to fill in; a bool tensor gets True for any but 0.
        pad_first: fill in before the data instead of after it.

    Returns:
        Containers of the same types; a tensor that is long enough is the same object. Gradients flow through.
        A tensor of `torch.nested` is left as it is, with a `CannotPadNestedTensorWarning`.

    Raises:
        TypeError: something is not a tensor; the message says where it stands.
        ValueError: a tensor's dtype cannot hold `pad_index`.

    Example:
        >>> import torch
        >>> pad_across_processes(torch.tensor([1, 2]))  # where another process has three: [1, 2, 0]
        tensor([1, 2])
    """
    return current_ranks().pad_across_processes(tensor, dim, pad_index, pad_first)


def gather_object(object: Any) -> Any:
    """Collect Python objects that can be pickled from all processes.

    Called by every process.

    Args:
        object: this process's object or list of objects.

    Returns:
        On every process: where each one gave a list or tuple, one list of all their items in the order of
        ranks; else a list with the object of each process. With one process, `object` itself.

    Example:
        >>> gather_object(["text", 1])  # with two processes: four items
        ['text', 1]
    """
    return current_ranks().gather_object(object)


def broadcast_object_list(object_list: list[Any], from_process: int = 0) -> list[Any]:
    """Replace the items of a list of Python objects that can be pickled by those of one process.

    Called by every process. The list of the other processes is changed in place, also in length. With one
    process nothing is done.

    Args:
        object_list: the list to send, or to fill.
        from_process: whose items all get.

    Returns:
        `object_list` itself.

    Raises:
        TypeError: with several processes, `object_list` is not a list.
        ValueError: there is no such process.

    Example:
        >>> broadcast_object_list(["text", 1])
        ['text', 1]
    """
    return current_ranks().broadcast_object_list(object_list, from_process)


def verify_operation(function: Callable[P, Result]) -> Callable[P, Result]:
    """Decorate a function of nested tensors so that debug mode compares its first argument between processes.

    The collectives of this package compare by themselves; this is for functions that communicate in other
    ways. Outside of debug mode (`ACCELERATE_DEBUG_MODE`) and with one process it changes nothing.

    Args:
        function: takes nested tensors as its first argument or as `tensor=`.

    Returns:
        A function that raises a `DistributedOperationException` on every process where structure, shapes or
        dtypes differ.

    Example:
        >>> import torch
        >>> @verify_operation
        ... def exchange(tensor):
        ...     return tensor
        >>> exchange(torch.ones(2))
        tensor([1., 1.])
    """

    @wraps(function)
    def verified(*args: P.args, **kwargs: P.kwargs) -> Result:
        ranks = current_ranks()
        if ranks.debug and ranks.size > 1:
            tensor = kwargs["tensor"] if "tensor" in kwargs else args[0]
            ranks.compare(_dotted_name(function), tensor)
        return function(*args, **kwargs)

    return verified


def chained_operation(function: Callable[P, Result]) -> Callable[P, Result]:
    """Decorate a function that calls collectives so that their disagreement names it as well.

    Returns:
        A function that raises a `DistributedOperationException` from the one that a collective raised.

    Example:
        >>> import torch
        >>> @chained_operation
        ... def mean_loss(loss):
        ...     return reduce(loss, "mean")
        >>> mean_loss(torch.tensor(2.0))
        tensor(2.)
    """

    @wraps(function)
    def chained(*args: P.args, **kwargs: P.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except DistributedOperationException as error:
            raise type(error)(
                f"`{_dotted_name(function)}` called a collective that failed: {error}"
            ) from error

    return chained


def _dotted_name(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
