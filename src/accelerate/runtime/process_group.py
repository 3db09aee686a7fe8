"""Every side effect on torch.distributed's default process group: start, wait, stop.

Called by the start of the current run and by `end_training`; every rank calls each function.

[Note: one store, several groups] A launcher names one address for the life of a process, and the ranks find
each other through the store there. A second group must not go there as if it were the first: where rank 0 is
the host, its peers may still reach the old store while it ends; where the launcher is, they find what the
first group has left. So the store is kept, and each group after the first has keys of its own in it.

[Note: who drops a group last] A gloo group joins its threads when it is dropped, and one of them may need
the interpreter's lock to let go of its last tensor. A DistributedDataParallel, which holds the group, drops
it with the lock held: the two then wait for each other for ever. Python's own reference drops it without the
lock. So the groups that were left are held here until the next one is there, or until the interpreter ends;
by then the threads have long let go of everything. At the interpreter's end they are given the lock for a
moment: one that asks for it later aborts the process.
"""

import atexit
import os
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from accelerate.compat import env
from accelerate.errors import LaunchError
from accelerate.runtime.failure import install_excepthook
from accelerate.runtime.world import World

__all__ = ["DEFAULT_TIMEOUT", "is_started", "start", "stop", "wait_for_everyone"]

# NCCL aborts the process on time-out, so that a shorter one costs nothing but the waiting.
DEFAULT_TIMEOUT = {"nccl": timedelta(seconds=600)}
_OTHER_TIMEOUT = timedelta(seconds=1800)
_LAST_MOMENT = 0.05  # seconds; threads need microseconds, but may have to wait for a core


@dataclass(kw_only=True)
class _Meeting:
    """Where the ranks meet ([Note: one store, several groups]).

    Attributes:
        place: what the store was made for; another place needs another store.
        store: the store itself.
        num_groups: default groups made with it by this process.
    """

    place: tuple[Any, ...] = ()
    store: Any = None
    num_groups: int = 0


_meeting = _Meeting()
_left: list[Any] = []  # groups that were left, see [Note: who drops a group last]


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
        try:
            store = _meet(world, timeout, kwargs.pop("store", None), kwargs.pop("init_method", None))
            kwargs.update(store=store, rank=world.rank, world_size=world.size)
            dist.init_process_group(backend=backend, timeout=timeout, **kwargs)
        except dist.DistNetworkError as error:
            raise LaunchError(_explain(world, error)) from error
        atexit.register(_stop_at_exit)
        _left.clear()
    return world.adopt(rank=dist.get_rank(), size=dist.get_world_size())


def _meet(world: World, timeout: timedelta, store: Any, url: str | None) -> Any:
    """Return the store for the next group, in which no other group has left anything."""
    url = url or "env://"
    # A forked process has its parent's objects, but must not speak through them.
    place = (os.getpid(), world, store if store is not None else url)
    if _meeting.place != place:
        if store is None:
            store, _, _ = next(rendezvous(url, world.rank, world.size, timeout=timeout))
        _meeting.place, _meeting.store, _meeting.num_groups = place, store, 0
    _meeting.num_groups += 1
    _meeting.store.set_timeout(timeout)
    # "default_pg" is torch's own word: the first group is found where torch would have put it.
    keys = "default_pg" if _meeting.num_groups == 1 else f"default_pg/{_meeting.num_groups}"
    return dist.PrefixStore(keys, _meeting.store)  # type: ignore[attr-defined]  # documented, not in the stubs


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


def wait_for_everyone() -> None:
    """Return when every rank has called this; at once when there is no process group."""
    if is_started():
        dist.barrier()


def stop(group: Any = None) -> None:
    """Leave `group`, or the default process group; does nothing when there is none."""
    if is_started():
        _left.append(dist.group.WORLD if group is None else group)
        dist.destroy_process_group(group)


def _stop_at_exit() -> None:
    if is_started() or _left:
        time.sleep(_LAST_MOMENT)  # [Note: who drops a group last]
    # A process that ends with its gloo threads alive may abort. After an exception the peers may still
    # wait inside a collective, so that only a clean run may be closed.
    if getattr(sys, "last_type", None) is None:
        stop()
    _left.clear()
