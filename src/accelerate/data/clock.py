"""How long a loop waits for its data. Made by `Accelerator.step_clock`; each rank has its own."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from accelerate.runtime.collectives import gather_object

__all__ = ["StepClock", "StepTimes"]

Batch = TypeVar("Batch")


@dataclass(frozen=True)
class StepTimes:
    """What a clock has measured.

    Attributes:
        steps: number of batches that were asked for and used.
        seconds: of all steps, from asking for a batch to asking for the next one.
        waiting: seconds of these until the batch was there.
    """

    steps: int = 0
    seconds: float = 0.0
    waiting: float = 0.0

    @property
    def share(self) -> float:
        """Part of the time that was spent waiting for data, from 0 to 1."""
        return self.waiting / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        """Return this in words."""
        if not self.steps:
            return "no steps"
        each = self.seconds / self.steps
        return f"{self.steps} steps of {each * 1e3:.1f} ms, {self.share:.0%} of it waiting for data"


class StepClock(Generic[Batch]):
    """Iterate a loader and note how long its batches let the loop wait.

    Steps of all passes add up. An accelerator works on while the script asks for data, so that what is
    measured is whether the script waits, not whether the device does.

    Args:
        loader: any iterable, such as a prepared loader.

    Example:
        >>> clock = StepClock([1, 2, 3])
        >>> for number in clock:
        ...     pass
        >>> clock.times.steps
        3
    """

    def __init__(self, loader: Iterable[Batch]) -> None:
        self.loader = loader
        self.reset()

    def reset(self) -> None:
        """Begin to count anew."""
        self._steps, self._seconds, self._waiting = 0, 0.0, 0.0

    def __iter__(self) -> Iterator[Batch]:
        """Yield what the loader does."""
        now = time.perf_counter
        batches = iter(self.loader)
        asked = now()
        for batch in batches:
            waiting = now() - asked
            try:
                yield batch
            finally:  # a step that is left by `break` counts
                done = now()
                self._steps += 1
                self._waiting += waiting
                self._seconds += done - asked
            asked = done

    def __len__(self) -> int:
        """Return the length of the loader."""
        return len(self.loader)  # type: ignore[arg-type]

    @property
    def times(self) -> StepTimes:
        """What this rank has measured so far."""
        return StepTimes(self._steps, self._seconds, self._waiting)

    def times_of_ranks(self) -> list[StepTimes]:
        """Return what each rank has measured, in rank order. Every rank calls it."""
        found: list[Any] = gather_object([self.times])
        return found

    def __str__(self) -> str:
        """Return what this rank has measured, in words."""
        return str(self.times)
