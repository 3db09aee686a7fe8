"""ProfileKwargs: what `torch.profiler` records. Read by `Accelerator.profile`."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from accelerate.errors import ConfigurationError
from accelerate.options.field import option
from accelerate.options.handlers import KwargsHandler

if TYPE_CHECKING:
    from torch import profiler

__all__ = ["ProfileKwargs", "ProfilerActivity"]

ProfilerActivity = Literal["cpu", "xpu", "mtia", "cuda", "hpu"]

_ACTIVITIES = ("cpu", "cuda", "xpu", "mtia", "hpu")
_NEEDED_STEPS = ("wait", "warmup", "active")


@dataclasses.dataclass
class ProfileKwargs(KwargsHandler):
    """Choose arguments of `torch.profiler.profile`, and where its trace is written.

    Args:
        activities: names of what is recorded, such as `["cpu", "cuda"]`; None means all that there is.
        schedule_option: arguments of `torch.profiler.schedule`: `wait`, `warmup` and `active` steps, and
            `repeat`, `skip_first`; the loop then calls `profiler.step()`. None records everything.
        on_trace_ready: called with the profiler when a recorded cycle ends.
        record_shapes: record the shapes of inputs.
        profile_memory: record what is allocated and freed.
        with_stack: record files and lines.
        with_flops: estimate the operations of matrix products and convolutions.
        with_modules: record which module called.
        output_trace_dir: folder for `profile_<rank>.json`, a trace for chrome://tracing; None writes none.

    Example:
        >>> from accelerate.utils import ProfileKwargs
        >>> ProfileKwargs(activities=["cpu"], record_shapes=True).to_kwargs()
        {'activities': ['cpu'], 'record_shapes': True}
    """

    activities: list[ProfilerActivity] | None = option(None, help="what is recorded")
    schedule_option: dict[str, int] | None = option(None, help="arguments of torch.profiler.schedule")
    on_trace_ready: Callable[..., Any] | None = option(None, help="called when a recorded cycle ends")
    record_shapes: bool = option(False, help="record the shapes of inputs")
    profile_memory: bool = option(False, help="record what is allocated and freed")
    with_stack: bool = option(False, help="record files and lines")
    with_flops: bool = option(False, help="estimate operations")
    with_modules: bool = option(False, help="record which module called")
    output_trace_dir: str | None = option(None, help="folder for the traces")

    def build(self) -> "profiler.profile":
        """Return a profiler that is not started yet; use it in a `with` statement.

        Raises:
            ConfigurationError: an activity is not known, here or anywhere, or the schedule has no sense.
        """
        from torch import profiler

        return profiler.profile(
            activities=None if self.activities is None else [_activity(name) for name in self._names()],
            schedule=None if self.schedule_option is None else profiler.schedule(**self._steps()),
            on_trace_ready=self.on_trace_ready,
            record_shapes=self.record_shapes,
            profile_memory=self.profile_memory,
            with_stack=self.with_stack,
            with_flops=self.with_flops,
            with_modules=self.with_modules,
        )

    def _names(self) -> list[ProfilerActivity]:
        if not isinstance(self.activities, list | tuple) or not self.activities:
            raise ConfigurationError(
                f"ProfileKwargs(activities={self.activities!r}): pass a list of one or more of "
                f"{', '.join(_ACTIVITIES)}, or leave it out to record all that there is."
            )
        return list(self.activities)

    def _steps(self) -> dict[str, int]:
        from torch import profiler

        steps = self.schedule_option or {}
        known = inspect.signature(profiler.schedule).parameters
        is_complete = steps.keys() >= set(_NEEDED_STEPS) and steps.keys() <= known.keys()
        if not is_complete or min(steps.values()) < 0 or steps["active"] < 1:
            others = [name for name in known if name not in _NEEDED_STEPS]
            raise ConfigurationError(
                f"ProfileKwargs(schedule_option={steps!r}): give {', '.join(_NEEDED_STEPS)}, and if you like "
                f"{', '.join(others)}; all are numbers of steps, of which active is at least 1."
            )
        return steps


def _activity(name: str) -> "profiler.ProfilerActivity":
    from torch import profiler

    known = profiler.ProfilerActivity.__members__
    if name not in _ACTIVITIES:
        raise ConfigurationError(
            f"ProfileKwargs(activities=[{name!r}]): no such activity; use {', '.join(_ACTIVITIES)}."
        )
    if name.upper() not in known:
        raise ConfigurationError(
            f"ProfileKwargs(activities=[{name!r}]): this torch does not record it; it knows "
            f"{', '.join(each.lower() for each in known)}."
        )
    return known[name.upper()]
