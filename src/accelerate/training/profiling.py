"""Record what a block of the loop does, and write the trace of this rank. Called by `Accelerator.profile`."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch.profiler import profile

from accelerate.compat.constants import PROFILE_PATTERN_NAME
from accelerate.options.profile import ProfileKwargs

__all__ = ["recorded"]


@contextmanager
def recorded(options: ProfileKwargs, process_index: int) -> Iterator[profile]:
    """Give a profiler that records the block; write its trace afterwards, where `options` names a folder.

    Args:
        options: what is recorded. Ranks may differ in it, and in whether they record at all.
        process_index: this rank, for the name of the file.
    """
    with options.build() as profiler:
        yield profiler
    if options.output_trace_dir is not None:
        folder = Path(options.output_trace_dir)
        folder.mkdir(parents=True, exist_ok=True)
        _export(profiler, folder / PROFILE_PATTERN_NAME.format(suffix=process_index))


def _export(profiler: profile, path: Path) -> None:
    if profiler.profiler is None:
        warnings.warn(
            f"{path} was not written: nothing was recorded. With a schedule_option, the loop must call "
            "`profiler.step()` at the end of each step.",
            stacklevel=4,
        )
        return
    try:
        profiler.export_chrome_trace(str(path))
    except RuntimeError as error:
        if "already saved" not in str(error):  # torch gives each trace away once
            raise
        warnings.warn(f"{path} was not written: on_trace_ready has taken the trace.", stacklevel=4)
    else:
        if not path.is_file():  # torch says nothing of it
            raise OSError(f"{path} could not be written: is there something of this name, or no space left?")
