"""`debug_launcher`: a function on several CPU processes, to try distributed code out. For users and tests."""

import os
import tempfile
from collections.abc import Callable
from typing import Any

from torch.multiprocessing.spawn import ProcessException, start_processes

from accelerate.compat import env
from accelerate.errors import ConfigurationError, LaunchError
from accelerate.launching.forked import PrepareForLaunch
from accelerate.launching.ranks import (
    RankFunction,
    checked_arguments,
    checked_count,
    in_fresh_thread,
    raise_first_failure,
    silent_logger,
)
from accelerate.runtime import process_group
from accelerate.runtime.current import current

__all__ = ["debug_launcher", "test_launch"]


def debug_launcher(function: Callable[..., Any], args: tuple[Any, ...] = (), num_processes: int = 2) -> None:
    """Call a function in several forked processes on the CPU, and wait for all of them.

    The processes meet over a file and talk over the loopback interface; an accelerator of this machine is not
    used. What the first of them that fails raises is raised here, and the others are ended.

    Args:
        function: called as `function(*args)` in each process; it need not be importable.
        args: what it is called with.
        num_processes: number of processes.

    Raises:
        ConfigurationError: `num_processes` is less than 1, or this process is a rank already.
        LaunchError: there is no fork on this system, or a process was ended from outside.

    Example:
        >>> from accelerate import Accelerator
        >>> def check():
        ...     assert Accelerator().num_processes == 2
        >>> debug_launcher(check)
    """
    args = checked_arguments("debug_launcher", function, args)
    num_processes = checked_count("debug_launcher", num_processes=num_processes)
    if process_group.is_started():
        raise ConfigurationError(
            "debug_launcher: this process is a rank already, and what it forked would take itself for it; "
            "call debug_launcher from a process that is in no process group"
        )
    if not hasattr(os, "fork"):
        raise LaunchError("debug_launcher needs to fork, which this system cannot: use `accelerate launch`")
    with tempfile.TemporaryDirectory(prefix="accelerate_debug_") as folder:
        variables = {
            "ACCELERATE_DEBUG_RDV_FILE": os.path.join(folder, "meet"),
            "ACCELERATE_MIXED_PRECISION": "no",
            "ACCELERATE_USE_CPU": "yes",
            "GLOO_SOCKET_IFNAME": "lo",
            "LOCAL_WORLD_SIZE": num_processes,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": 29500,
            "WORLD_SIZE": num_processes,
        }
        rank = RankFunction(PrepareForLaunch(function, debug=True), folder)
        with env.patch_environment(**variables):
            _run(rank, args, num_processes, folder)


def test_launch() -> None:
    """Check, as the function of a launch, that a process finds out who it is."""
    current.ensure()


def _run(rank: RankFunction, args: tuple[Any, ...], num_processes: int, folder: str) -> None:
    context: Any = None

    def run() -> bool:
        """Return whether all processes ended well."""
        nonlocal context
        start: Any = start_processes  # has no annotations
        context = start(rank, args=args, nprocs=num_processes, join=False, start_method="fork")
        try:
            while not context.join():
                pass
        except ProcessException:
            return False
        return True

    def interrupt() -> None:
        for process in context.processes if context is not None else ():
            process.terminate()

    with silent_logger("torch.multiprocessing.spawn"):
        is_well = in_fresh_thread(run, interrupt)
    if not is_well:
        raise_first_failure(folder, num_processes, context.processes)
