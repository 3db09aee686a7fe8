"""A progress bar that one process a machine shows. Called by users, through `accelerate.utils`."""

import importlib
from typing import Any

from accelerate.compat.probes import is_tqdm_available
from accelerate.errors import ConfigurationError, MissingPackageError
from accelerate.runtime.current import current

__all__ = ["tqdm"]


def tqdm(*args: Any, main_process_only: bool = True, **kwargs: Any) -> Any:
    """Return a progress bar of the library tqdm, which only the first rank of each machine shows.

    Starts the run when nobody has. Every rank may call it; on those that show nothing the bar still iterates.

    Args:
        args: those of `tqdm.auto.tqdm`.
        main_process_only: False to show the bar on every rank.
        kwargs: those of `tqdm.auto.tqdm`; `disable` hides the bar also where it would be shown.

    Raises:
        MissingPackageError: tqdm is not installed (an ImportError).
        ConfigurationError: the first argument is True or False (a ValueError).

    Example:
        >>> [number for number in tqdm(range(3), disable=True)]
        [0, 1, 2]
    """
    if not is_tqdm_available():
        raise MissingPackageError("`accelerate.utils.tqdm` needs the package tqdm: run `pip install tqdm`")
    if args and isinstance(args[0], bool):
        raise ConfigurationError(
            f"tqdm({args[0]}, ...): the first argument is what to iterate over. Whether only the first rank "
            "of each machine shows the bar is a keyword: tqdm(iterable, main_process_only=...)"
        )
    if main_process_only and not current.ensure().is_local_main_process:
        kwargs["disable"] = True
    return importlib.import_module("tqdm.auto").tqdm(*args, **kwargs)
