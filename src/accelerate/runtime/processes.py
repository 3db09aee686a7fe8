"""What only some processes do, and in which order: methods shared by the states and the Accelerator.

They have no state of their own: which process this is, they read from the current run.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from accelerate.errors import NotInitializedError
from accelerate.runtime import collectives
from accelerate.runtime.current import Current, current
from accelerate.runtime.split import split

__all__ = ["NotInitializedValueError", "ProcessHelpers", "do_nothing"]


class NotInitializedValueError(NotInitializedError, ValueError):
    """No run was started; a ValueError too, which callers of the state classes catch."""


def do_nothing(*args: Any, **kwargs: Any) -> None:
    """Take anything, do nothing: what `on_main_process` puts in place of a function on other ranks."""
    return


class ProcessHelpers:
    """Methods that gate or order work by process of the current run."""

    def wait_for_everyone(self) -> None:
        """Return when every rank has called this."""
        collectives.wait_for_everyone()

    @contextmanager
    def split_between_processes(self, inputs: Any, apply_padding: bool = False) -> Iterator[Any]:
        """Give each rank its part of `inputs`, in order; the first ranks take one more if need be.

        Args:
            inputs: a list, tuple or other sequence, a tensor or array (along dim 0), a `datasets.Dataset`, or
                dicts of such, of one length; anything else, such as a string, goes to every rank whole.
            apply_padding: repeat the last item so that every rank gets equally many (for a later gather).

        Raises:
            ValueError: the parts of a dict differ in length.

        Example:
            >>> from accelerate.state import PartialState
            >>> with PartialState().split_between_processes(["a", "b", "c"]) as part:
            ...     part  # with two processes: ['a', 'b'] and ['c']
            ['a', 'b', 'c']
        """
        yield split(inputs, current.process_index, current.num_processes, apply_padding=apply_padding)

    @contextmanager
    def main_process_first(self) -> Iterator[None]:
        """Run the block on rank 0 before all others run it."""
        with self._first(current.is_main_process):
            yield

    @contextmanager
    def local_main_process_first(self) -> Iterator[None]:
        """Run the block on the first rank of each machine before the others there run it."""
        with self._first(current.is_local_main_process):
            yield

    @contextmanager
    def _first(self, is_first: bool) -> Iterator[None]:
        if not is_first:
            self.wait_for_everyone()
        try:
            yield
        finally:
            # After an exception, too: the others go on, and the launcher ends them when this rank dies.
            if is_first:
                self.wait_for_everyone()

    def on_main_process(self, function: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Decorate a function to run on rank 0 only; elsewhere it does nothing and gives None.

        Example:
            >>> from accelerate.state import PartialState
            >>> @PartialState().on_main_process
            ... def report(text):
            ...     print(text)
            >>> report("once")
            once
        """
        if function is None:
            return self.on_main_process
        return _only(function, _started().is_main_process)

    def on_local_main_process(self, function: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Decorate a function to run on the first rank of each machine only."""
        if function is None:
            return self.on_local_main_process
        return _only(function, _started().is_local_main_process)

    def on_last_process(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate a function to run on the highest rank only."""
        return _only(function, _started().is_last_process)

    def on_process(
        self, function: Callable[..., Any] | None = None, process_index: int | None = None
    ) -> Callable[..., Any]:
        """Decorate a function to run on rank `process_index` only; one process alone runs it in any case."""
        if function is None:
            return partial(self.on_process, process_index=process_index)
        run = _started()
        return _only(function, not run.use_distributed or run.process_index == process_index)

    def on_local_process(
        self, function: Callable[..., Any] | None = None, local_process_index: int | None = None
    ) -> Callable[..., Any]:
        """Decorate a function to run on rank `local_process_index` of each machine only.

        One process alone runs it in any case.
        """
        if function is None:
            return partial(self.on_local_process, local_process_index=local_process_index)
        run = _started()
        return _only(function, not run.use_distributed or run.local_process_index == local_process_index)

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print on the first rank of each machine only; starts the run when nobody has.

        Example:
            >>> from accelerate.state import PartialState
            >>> PartialState().print("once", "a machine")
            once a machine
        """
        if current.ensure().is_local_main_process:
            print(*args, **kwargs)


def _started() -> Current:
    if not current.started:
        raise NotInitializedValueError(
            "No run was started in this process: call `PartialState()` or `Accelerator()` first."
        )
    return current


def _only(function: Callable[..., Any], here: bool) -> Callable[..., Any]:
    return function if here else do_nothing
