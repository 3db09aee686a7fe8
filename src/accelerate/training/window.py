"""The block of one micro-batch: counts it on entry and keeps gradients local unless it ends the window.

Made by `Accelerator.accumulate`, entered by every rank for every micro-batch.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ContextDecorator, ExitStack
from types import TracebackType
from typing import Any

from torch.nn import Module

__all__ = ["AccumulationWindow"]


class AccumulationWindow(ContextDecorator):
    """A context for one micro-batch.

    Args:
        begin: counts the micro-batch, given the models; returns whether its gradients are synchronised.
        no_sync: gives the context that keeps one model's gradients local.
        models: the models trained in this block.
    """

    __slots__ = ("_begin", "_models", "_no_sync", "_stack")

    def __init__(
        self,
        begin: Callable[[Sequence[Module]], bool],
        no_sync: Callable[[Module], AbstractContextManager[Any]],
        models: Sequence[Module],
    ) -> None:
        self._begin = begin
        self._no_sync = no_sync
        self._models = models
        self._stack: ExitStack | None = None

    def __enter__(self) -> None:
        if self._begin(self._models):
            return
        with ExitStack() as stack:  # if one cannot be entered, those before it are left again
            for model in self._models:
                stack.enter_context(self._no_sync(model))
            self._stack = stack.pop_all()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stack is not None:
            stack, self._stack = self._stack, None
            stack.__exit__(kind, error, trace)
