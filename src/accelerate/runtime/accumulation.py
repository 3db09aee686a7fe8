"""Gradient accumulation: which micro-batch ends with a synchronised optimizer step.

Ticked by `Accelerator.accumulate`, read by the optimizer and scheduler wrappers on every call, told by the
data loaders when they begin and end. `GradientState` is a public view of the one instance in this file.
"""

import weakref
from typing import Any

__all__ = ["Accumulation", "accumulation"]


class Accumulation:
    """The accumulation window of the current run.

    Class attributes are the values before anything was configured, so that an empty instance `__dict__`
    (the interface's "not initialised") reads as: no accumulation, every step synchronises.

    Attributes:
        sync_gradients: whether this micro-batch ends with a step; read on the hot path.
        plugin_kwargs: the fields of `GradientAccumulationPlugin` that were given.
    """

    sync_gradients: bool = True
    plugin_kwargs: dict[str, Any]
    _loaders: tuple["weakref.ReferenceType[Any]", ...] = ()

    def configure(self, plugin_kwargs: dict[str, Any]) -> None:
        """Take over the settings of a plugin; every Accelerator of this process shares them."""
        self.sync_gradients = True  # a loop that was left inside a window leaves nothing to the next one
        self.plugin_kwargs = plugin_kwargs

    def reset(self) -> None:
        """Forget everything, as in a fresh process."""
        self.__dict__.clear()

    @property
    def options(self) -> dict[str, Any]:
        """The fields that were given, or none."""
        options: dict[str, Any] = self.__dict__.get("plugin_kwargs", {})
        return options

    @property
    def num_steps(self) -> int:
        """Micro-batches per optimizer step."""
        # Read from the dictionary each time: loops that count themselves change it.
        options = self.__dict__.get("plugin_kwargs")
        return (options and options.get("num_steps")) or 1

    @property
    def sync_with_dataloader(self) -> bool:
        """Whether the last batch of a loader ends the window, full or not."""
        return bool(self.options.get("sync_with_dataloader", True))

    @property
    def adjust_scheduler(self) -> bool:
        """What the plugin says; a prepared scheduler advances with the optimizer's steps either way."""
        return bool(self.options.get("adjust_scheduler", False))

    @property
    def active_loader(self) -> Any:
        """The innermost prepared loader that is being iterated, or None."""
        return self._loaders[-1]() if self._loaders else None

    def add_loader(self, loader: Any) -> None:
        """Note that `loader` begins an epoch; it becomes the active one."""
        self._loaders = (*self._loaders, weakref.ref(loader))

    def remove_loader(self, loader: Any) -> None:
        """Note that `loader` ended or was left; the one outside it becomes active again."""
        self._loaders = tuple(ref for ref in self._loaders if ref() is not loader and ref() is not None)

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the batch in hand is the last one of the active loader; False outside any loop."""
        loader = self._loaders[-1]() if self._loaders else None
        return loader is not None and loader.end_of_dataloader

    @property
    def remainder(self) -> int:
        """Samples in the last global batch of the active loader; -1 when unknown or outside any loop."""
        loader = self.active_loader
        return -1 if loader is None else loader.remainder

    def tick(self, step: int) -> int:
        """Count one micro-batch and decide whether it synchronises.

        Args:
            step: micro-batches counted before this one.

        Returns:
            The new count: 0 after the last batch of a loader (which always synchronises, unless
            `sync_with_dataloader` is off), else `step + 1`.
        """
        if self._loaders and self.end_of_dataloader and self.sync_with_dataloader:
            self.sync_gradients = True
            return 0
        step += 1
        self.sync_gradients = step % self.num_steps == 0
        return step


accumulation = Accumulation()
