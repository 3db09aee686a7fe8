"""Every side effect on torch.distributed's default process group: start and stop.

Called by the start of the current run and by `end_training`; every rank calls each function.
"""

import atexit
import sys
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from accelerate.compat import env
from accelerate.errors import LaunchError
from accelerate.runtime import header
from accelerate.runtime.failure import install_excepthook
from accelerate.runtime.world import World

__all__ = ["DEFAULT_TIMEOUT", "is_started", "start", "stop"]

# NCCL aborts the process on time-out, so that a shorter one costs nothing but the waiting.
DEFAULT_TIMEOUT = {"nccl": timedelta(seconds=600)}
_OTHER_TIMEOUT = timedelta(seconds=1800)


def is_started() -> bool:
    """Return whether a default process group exists, whoever made it."""
    return dist.is_available() and dist.is_initialized()


def start(world: World, backend: str, *, timeout: timedelta | None = None, **kwargs: Any) -> World:
    """Join the default process group, or adopt the one that is already there.

    Writes the torch launcher variables of `world` into the environment (other libraries read them),
    registers a clean end at interpreter exit and a failure report for the launcher.

    Args:
        world: who this process is.
        backend: torch.distributed backend, such as "gloo" or "nccl".
        timeout: time a rank waits for its peers in any collective.
        kwargs: passed on to `torch.distributed.init_process_group` (`init_method`, `store`, …).

    Returns:
        The world as the group sees it.

    Raises:
        LaunchError: the port is in use, or rank 0 cannot be reached.
    """
    install_excepthook()
    if not is_started():
        env.put(world.environment())
        if timeout is None:
            timeout = DEFAULT_TIMEOUT.get(backend, _OTHER_TIMEOUT)
        if kwargs.get("store") is not None:
            kwargs.update(rank=world.rank, world_size=world.size)
        try:
            dist.init_process_group(backend=backend, timeout=timeout, **kwargs)
        except dist.DistNetworkError as error:
            raise LaunchError(_explain(world, error)) from error
        atexit.register(_stop_at_exit)
    return world.adopt(rank=dist.get_rank(), size=dist.get_world_size())


def _explain(world: World, error: Exception) -> str:
    where = f"{world.address or '127.0.0.1'}:{world.port}"
    if "EADDRINUSE" in str(error) or "address already in use" in str(error).lower():
        return (
            f"Rank 0 cannot listen on {where}: the port is in use, probably by another run. Set "
            "MASTER_PORT to a free port on every rank, or start with `accelerate launch`, which takes a free "
            "one by itself."
        )
    return (
        f"Rank {world.rank} of {world.size} cannot reach rank 0 at {where}: {error}. Check that "
        "rank 0 was started, and that MASTER_ADDR and MASTER_PORT are the same on every rank and can be "
        "reached from here."
    )


def stop(group: Any = None) -> None:
    """Leave `group`, or the default process group; does nothing when there is none."""
    if is_started():
        header.close(group)
        dist.destroy_process_group(group)


def _stop_at_exit() -> None:
    # A process that ends with its gloo threads alive may abort. After an exception the peers may still
    # wait inside a collective, so that only a clean run may be closed.
    if getattr(sys, "last_type", None) is None:
        stop()
