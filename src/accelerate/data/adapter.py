"""What every loader of this room is made of: a torch loader inside, and a place in the accumulation window.

Bases of the other loaders. `DataLoaderAdapter` holds a torch loader without rebuilding it, so that a user's
subclass keeps its `__iter__`; `DataLoaderStateMixin` tells the window where a pass begins and ends.
"""

import sys
from typing import Any

from torch.utils.data import DataLoader

from accelerate.data import stateful
from accelerate.errors import ConfigurationError
from accelerate.runtime.accumulation import accumulation
from accelerate.state import GradientState, gradient_state

__all__ = ["ALL_ROWS", "DataLoaderAdapter", "DataLoaderStateMixin"]

ALL_ROWS = sys.maxsize  # as a number of rows: however many there are


class DataLoaderStateMixin:
    """What the accumulation window asks of a loader that is being iterated.

    Attributes:
        end_of_dataloader: whether the batch in hand is the last of this pass.
        remainder: real samples in the last global batch, 0 when it is full, -1 when nobody can know or
            when the last batch is dropped.
        real_rows: how many rows of the batch in hand count on this rank, where ranks may have different
            numbers; None where `remainder` says all. It is a number on all ranks or on none.
    """

    end_of_dataloader: bool = False
    remainder: int = -1
    real_rows: int | None = None

    @property
    def gradient_state(self) -> GradientState:
        """The public view of the accumulation window that this loader reports to."""
        return gradient_state()

    def reset(self) -> None:
        """Forget where the last pass stood."""
        self.end_of_dataloader = False
        self.remainder = -1
        self.real_rows = None  # the last pass may have been an uneven one

    def begin(self) -> None:
        """Start a pass: from now on this is the active loader."""
        self.reset()
        self.remainder = self._known_remainder()
        accumulation.remove_loader(self)  # a pass that was not ended is given up
        accumulation.add_loader(self)

    def end(self) -> None:
        """End a pass: the loader outside of this one, if any, is active again."""
        accumulation.remove_loader(self)

    def _known_remainder(self) -> int:
        return -1


class DataLoaderAdapter:
    """Stand in for a torch loader: everything that is not defined here is asked of `base_dataloader`.

    `isinstance` takes it for an instance of the base loader's class; only `type()` sees the difference.

    Args:
        dataset: as for `torch.utils.data.DataLoader`, like all that follows.
        use_stateful_dataloader: hold torchdata's `StatefulDataLoader`, whose state is saved with it.
        batch_sampler: as for `torch.utils.data.DataLoader`.
        kwargs: as for `torch.utils.data.DataLoader`.

    Raises:
        MissingPackageError: `use_stateful_dataloader=True` without torchdata.
        TypeError: a keyword that `DataLoader` does not know.
    """

    base_dataloader: "DataLoader[Any]"
    use_stateful_dataloader: bool = False
    dl_state_dict: dict[str, Any] | None = None  # of torchdata's loader

    def __init__(
        self,
        dataset: Any,
        use_stateful_dataloader: bool = False,
        batch_sampler: Any = None,
        **kwargs: Any,
    ) -> None:
        kind = stateful.loader_class() if use_stateful_dataloader else DataLoader
        self.use_stateful_dataloader = use_stateful_dataloader
        self.base_dataloader = kind(dataset, batch_sampler=batch_sampler, **kwargs)

    def __getattr__(self, name: str) -> Any:
        # Not yet set while copy and pickle make an instance; and what they ask is not for its base.
        if name == "base_dataloader" or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.base_dataloader, name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.__dict__.get("base_dataloader", self))

    def __len__(self) -> int:
        """Return the number of batches of a pass on this rank."""
        return len(self.base_dataloader)

    @property
    def keeps_place(self) -> bool:
        """Whether `state_dict` tells where this loader stands, so that checkpoints hold it."""
        return self.use_stateful_dataloader

    def state_dict(self) -> dict[str, Any]:
        """Return where the base loader stands, which only torchdata's loader knows.

        Raises:
            ConfigurationError: the base loader is another one.
        """
        self._require_stateful("state_dict()")
        state: dict[str, Any] = self.base_dataloader.state_dict()  # type: ignore[attr-defined]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Bring the base loader where `state_dict` was taken; its next pass begins there.

        Raises:
            ConfigurationError: the base loader is none that can, which only torchdata's is.
        """
        self._require_stateful("load_state_dict(...)")
        self.base_dataloader.load_state_dict(state_dict)  # type: ignore[attr-defined]

    def adjust_state_dict_for_prefetch(self) -> None:
        """Bring `dl_state_dict`, if the base is torchdata's loader, to where that stands now."""
        if self.use_stateful_dataloader:
            self.dl_state_dict = self.base_dataloader.state_dict()  # type: ignore[attr-defined]

    def _require_stateful(self, call: str) -> None:
        if not self.use_stateful_dataloader:
            raise ConfigurationError(
                f"{call}: this {type(self).__name__} keeps no place, since its base is a "
                f"{type(self.base_dataloader).__name__}. Prepare the loader, or set "
                "use_stateful_dataloader=True."
            )

    def __reduce__(self) -> tuple[Any, ...]:
        # The default asks `__class__`, and would make an empty torch loader.
        return _restore, (type(self), self.__dict__.copy())


def _restore(kind: type[DataLoaderAdapter], state: dict[str, Any]) -> DataLoaderAdapter:
    loader = kind.__new__(kind)
    loader.__dict__.update(state)
    return loader
