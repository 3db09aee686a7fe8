"""Every side effect on torch.distributed's default process group: start and stop.

Called by the start of the current run and by `end_training`; every rank calls each function.

[Note: the last reference]
A gloo group has threads. They end with the last reference to the group, not with `destroy_process_group`, and
each needs the interpreter's lock to drop its last work. If the interpreter goes down meanwhile, the process
aborts; if the last reference is dropped by C++ code that has the lock, as a replicated model does when it is
freed, the process hangs. So the last reference must be Python's, which lets go of the lock, and it must be
dropped before the interpreter ends. `hold` tells which objects have references, `_held` keeps Python's.

[Note: time-outs]
A time-out that a user has chosen is meant for the whole run. torch keeps that of
`init_process_group` for the default group; each later group (`new_group`, a device mesh, an engine's own)
gets torch's default of its backend, 30 or 10 minutes, which is read from two variables of distributed_c10d
when the group is made. Setting these reaches every group, whoever makes it and however it was imported.
"""

import atexit
import functools
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist

# Its functions take the group that exists when it is first imported for a default, and keep that one alive:
# imported here, before any group, they take none.
import torch.distributed.nn  # noqa: F401

from accelerate.compat import env
from accelerate.errors import ConfigurationError, LaunchError
from accelerate.runtime import header, mailbox
from accelerate.runtime.failure import install_excepthook, keep_lines_whole
from accelerate.runtime.world import World

__all__ = [
    "DEFAULT_TIMEOUT",
    "abandon",
    "abort",
    "adopted",
    "backend",
    "hold",
    "is_started",
    "num_collectives",
    "set_timeout",
    "start",
    "start_anew",
    "stop",
]

logger = logging.getLogger(__name__)

# NCCL aborts the process on time-out, so that a shorter one costs nothing but the waiting.
DEFAULT_TIMEOUT = {"nccl": timedelta(seconds=600)}
_OTHER_TIMEOUT = timedelta(seconds=1800)
_GRACE = 0.05  # seconds
_PATIENCE = 20.0  # seconds until a rank says that it waits for the others
_TOLD = (
    "Rank %d of %d has waited %.0f s for the others at %s. Check that every rank was started, with the same "
    "MASTER_ADDR, MASTER_PORT and WORLD_SIZE; to run one process, unset RANK and WORLD_SIZE."
)


class _MeetingPoint:
    """The store over which the ranks of a world met; they meet there again after `stop`."""

    def __init__(self) -> None:
        self.place: tuple[World, str | None] | None = None
        self.store: Any = None
        self.settings: dict[str, Any] = {}
        self.num_starts = 0  # alike on all ranks, which start and stop in step; adopted groups do not count

    def note(self, world: World, settings: dict[str, Any], *, joined: bool) -> None:
        place = (world, settings.get("init_method"))
        if place != self.place:
            self.place, self.num_starts = place, 0
        self.settings = settings
        self.store = dist.distributed_c10d._get_default_store()
        self.num_starts += joined

    def next_store(self, world: World, url: str | None) -> Any:
        """Return the store for another start of the same world at the same place, None for a first one."""
        if self.store is None or (world, url) != self.place:
            return None
        # The keys of the former group are still there: a rank that read them would wait for a dead peer.
        return dist.distributed_c10d.PrefixStore(f"start {self.num_starts}", self.store)


_meeting_point = _MeetingPoint()
# What has a reference to a group -> what makes it let go of it.
_holders: "weakref.WeakKeyDictionary[Any, Callable[[Any], None]]" = weakref.WeakKeyDictionary()
_held: list[dist.ProcessGroup] = []

# What torch gives a new group without a time-out, whatever that of the default group is: [Note: time-outs].
_TORCH_TIMEOUTS = {
    name: getattr(dist.distributed_c10d, name) for name in ("default_pg_timeout", "default_pg_nccl_timeout")
}


def is_started() -> bool:
    """Return whether a default process group exists, whoever made it."""
    return dist.is_available() and dist.is_initialized()


def adopted(world: World) -> World:
    """Return `world` with the rank and size of the process group, where there is one."""
    return world.adopt(rank=dist.get_rank(), size=dist.get_world_size()) if is_started() else world


def backend() -> str:
    """Return the name of the default process group's backend, such as "gloo"."""
    return str(dist.get_backend())


def start(world: World, backend: str, *, timeout: timedelta | None = None, **kwargs: Any) -> World:
    """Join the default process group, or adopt the one that is already there.

    Writes the torch launcher variables of `world` into the environment (other libraries read them),
    registers a clean end at interpreter exit and a failure report for the launcher. After `stop` the same
    world can be started again.

    Args:
        world: who this process is.
        backend: torch.distributed backend, such as "gloo" or "nccl".
        timeout: time a rank waits for its peers in any collective, also in groups that are made later
            without a time-out of their own; torch's time-outs when None.
        kwargs: passed on to `torch.distributed.init_process_group` (`init_method`, `store`, …).

    Returns:
        The world as the group sees it.

    Raises:
        ConfigurationError: torch has no such backend here.
        LaunchError: the port is in use, or the other ranks cannot be reached.
    """
    install_excepthook()
    keep_lines_whole()
    if not _holders:
        _held.clear()
    joined = not is_started()
    if joined:
        _check_backend(backend)
        env.put(world.environment())
        _join(
            world,
            backend=backend,
            timeout=timeout or DEFAULT_TIMEOUT.get(backend, _OTHER_TIMEOUT),
            **kwargs,
        )
        _set_timeout_of_new_groups(timeout)
    elif timeout is not None:
        set_timeout(timeout)
    world = adopted(world)
    _meeting_point.note(world, {"timeout": timeout, **kwargs}, joined=joined)
    _stop_at_exit()
    return world


def start_anew(world: World, backend: str) -> None:
    """Join the default process group once more after `abandon`, with the settings that it had."""
    settings = {name: value for name, value in _meeting_point.settings.items() if name != "store"}
    start(world, backend, **settings)


def _check_backend(backend: str) -> None:
    names = [part.rpartition(":")[2] for part in backend.split(",")]  # such as "cpu:gloo,cuda:nccl"
    missing = [name for name in names if not dist.is_backend_available(name)]
    if missing:
        candidates = ("gloo", "nccl", "xccl", "mpi", "ucc")
        there = [name for name in candidates if dist.is_backend_available(name)]
        raise ConfigurationError(
            f"backend={backend!r}: torch has no {missing[0]!r} here; it has {', '.join(there)}. Leave the "
            "backend out to get the one that suits the device."
        )


def _join(world: World, **kwargs: Any) -> None:
    if kwargs.get("store") is None:
        kwargs["store"] = _meeting_point.next_store(world, kwargs.get("init_method"))
        if kwargs["store"] is not None:
            kwargs["init_method"] = None
    if kwargs.get("store") is not None or kwargs.get("init_method") is not None:
        # Only the environment tells torch by itself who this process is.
        kwargs = {"rank": world.rank, "world_size": world.size, **kwargs}
    with _told_if_long(world):
        try:
            dist.init_process_group(**kwargs)
        except (dist.DistNetworkError, dist.DistStoreError) as error:
            raise LaunchError(_explain(world, error)) from error


@contextmanager
def _told_if_long(world: World) -> Iterator[None]:
    """Say so once when the others do not come: torch waits in silence, for half an hour where nobody is."""
    waiting = threading.Timer(
        _PATIENCE, logger.warning, args=(_TOLD, world.rank, world.size, _PATIENCE, _place(world))
    )
    waiting.daemon = True
    waiting.start()
    try:
        yield
    finally:
        waiting.cancel()


def set_timeout(timeout: timedelta) -> None:
    """Choose how long collectives wait from now on: in the default group and in groups made later.

    Does nothing when there is no process group. Groups that were made before keep theirs.
    """
    if is_started():
        dist.distributed_c10d._set_pg_timeout(timeout)
        _set_timeout_of_new_groups(timeout)


def _set_timeout_of_new_groups(timeout: timedelta | None) -> None:
    """Set the variables of [Note: time-outs]; None gives them torch's values."""
    for name, of_torch in _TORCH_TIMEOUTS.items():
        setattr(dist.distributed_c10d, name, timeout or of_torch)


def _place(world: World) -> str:
    return f"{world.address or '127.0.0.1'}:{world.port}"


def _explain(world: World, error: Exception) -> str:
    where, reason = _place(world), str(error).rstrip(".")
    if "EADDRINUSE" in reason or "address already in use" in reason.lower():
        return (
            f"Rank 0 cannot listen on {where}: the port is in use, probably by another run. Set "
            "MASTER_PORT to a free port on every rank, or start with `accelerate launch`, which takes a free "
            "one by itself."
        )
    if world.is_main:
        return (
            f"Rank 0 of {world.size} waited for the others at {where}: {reason}. Check that every rank was "
            "started, with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE."
        )
    return (
        f"Rank {world.rank} of {world.size} cannot reach rank 0 at {where}: {reason}. Check that "
        "rank 0 was started, and that MASTER_ADDR and MASTER_PORT are the same on every rank and can be "
        "reached from here."
    )


def stop(group: Any = None) -> None:
    """Leave `group`, or the default process group; does nothing when there is none."""
    if is_started():
        if group is None:
            mailbox.close()
        header.close(group)
        dist.destroy_process_group(group)
        if not is_started():
            _set_timeout_of_new_groups(None)


def abandon() -> None:
    """Leave the default process group at once, although peers may wait in it: that ends their waiting.

    Whatever refers to the group, as models that were prepared do, cannot be used any more.
    """
    _let_go()
    mailbox.close(patient=False)
    header.close(ended="to make the process group anew")
    if dist.get_backend() != "gloo":
        abort()
    dist.destroy_process_group()
    _set_timeout_of_new_groups(None)
    _held.clear()


def abort() -> None:
    """End what waits in the process groups, where their backends can do that; gloo cannot."""
    for group in list(dist.distributed_c10d._world.pg_map):
        group.abort()


def num_collectives() -> int:
    """Return a number that changes whenever this rank begins a collective in a group of torch's."""
    groups: list[Any] = list(dist.distributed_c10d._world.pg_map) if is_started() else []
    numbers: list[int] = [group._get_sequence_number_for_group() for group in groups]
    return len(groups) + sum(numbers)


def hold(group: dist.ProcessGroup, owner: Any, release: Callable[[Any], None]) -> None:
    """Note that C++ code behind `owner` has a reference to `group`, as a replicated model does.

    Args:
        group: it lives until the interpreter exits, or a group is started when no owner is left.
        owner: any object; it is not kept alive.
        release: called with `owner` when the interpreter exits, to make it let go of the group.
    """
    _holders[owner] = release
    if not any(known is group for known in _held):
        _held.append(group)


@functools.cache
def _stop_at_exit() -> None:
    atexit.register(_end_threads)


def _end_threads() -> None:
    """Leave the group at interpreter exit so that no thread of it is left: [Note: the last reference]."""
    if getattr(sys, "last_type", None) is not None:
        # Peers may still wait inside a collective, so that only a clean run may be closed. Let the threads
        # that have nothing to wait for have the lock, so that the exit status stays that of the exception.
        time.sleep(_GRACE)
        return
    _let_go()
    stop()
    _meeting_point.store = None
    _held.clear()


def _let_go() -> None:
    """Let everything but Python's own references go of the groups."""
    for owner, release in list(_holders.items()):
        release(owner)
    _holders.clear()
