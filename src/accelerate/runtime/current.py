"""The current run: the one global of this package. `PartialState` is its public view.

The instance's `__dict__` is the interface's `PartialState._shared_state`; empty means that no run was
started. It is started by `PartialState()`, `Accelerator()` or the first public collective.
"""

import uuid
from typing import TYPE_CHECKING, Any

import torch

from accelerate.compat import env
from accelerate.compat.system import physical_cores
from accelerate.devices.base import Device
from accelerate.devices.first_use import record_first_use
from accelerate.devices.select import select
from accelerate.options.enums import DistributedType
from accelerate.runtime import header, mailbox, process_group
from accelerate.runtime.world import World, detect

if TYPE_CHECKING:
    from accelerate.strategies.base import Strategy

__all__ = ["Current", "RankFacts", "current", "rejoin"]


class RankFacts:
    """Which of all processes this one is, asked as yes or no; shared by the run and its public views."""

    num_processes: int
    process_index: int
    local_process_index: int

    @property
    def use_distributed(self) -> bool:
        """Whether there is more than one process."""
        return self.num_processes > 1

    @property
    def is_main_process(self) -> bool:
        """Whether this is rank 0 of the whole run."""
        return self.process_index == 0

    @property
    def is_local_main_process(self) -> bool:
        """Whether this is the first rank of its machine."""
        return self.local_process_index == 0

    @property
    def is_last_process(self) -> bool:
        """Whether this is the highest rank."""
        return self.process_index == self.num_processes - 1


class Current(RankFacts):
    """World and device of this process, once started.

    Attributes:
        world: who this process is among all.
        kind: the kind of hardware, as an object.
        device: the torch device of this rank.
        backend: torch.distributed backend, None in one process without a group.
        distributed_type: the interface's name for strategy and device together.
        debug: whether collectives are checked on every call.
        fork_launched: whether a notebook forked this process, and its group outlives a training.
        token: a name that no other run has, in no process.
        strategy: how models are trained, once an Accelerator has chosen it.
    """

    world: World
    kind: Device
    device: torch.device
    backend: str | None
    distributed_type: DistributedType
    num_processes: int
    process_index: int
    local_process_index: int
    debug: bool
    fork_launched: bool
    token: str
    strategy: "Strategy"
    _cpu: bool

    def __getattr__(self, name: str) -> Any:
        if name in Current.__annotations__ or hasattr(Current, name):  # a property comes here when it fails
            raise AttributeError(
                f"There is no `{name}` yet: no run was started here, or `_reset_state()` was called "
                "since. Make a `PartialState()` or an `Accelerator()` first."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def started(self) -> bool:
        """Whether a run was started in this process."""
        return bool(self.__dict__)

    def ensure(self) -> "Current":
        """Return this run, started with detected values when nobody has started it."""
        if not self.__dict__:
            self.start()
        return self

    def start(self, *, cpu: bool = False, backend: str | None = None, **kwargs: Any) -> None:
        """Find out device and world, and join the process group when there are several ranks.

        Args:
            cpu: use the CPU also where an accelerator is present.
            backend: torch.distributed backend; the device's own when None.
            kwargs: passed on to `process_group.start` (`timeout`, `init_method`, …).
        """
        environ = env.snapshot()
        debug, forked = env.get_flag("ACCELERATE_DEBUG_MODE"), env.get_flag("FORK_LAUNCHED")
        cpu = cpu or env.get_flag("ACCELERATE_USE_CPU")
        kind = select(environ, cpu=cpu)
        world = process_group.adopted(detect(environ))
        # A world of one needs no group on CPU; on accelerators engines expect one under a launcher.
        alone = kind.type == "cpu" or not (world.launched or process_group.is_started())
        distributed = world.size > 1 or not alone
        device = kind.torch_device(world)
        kind.select(device)
        if distributed:
            together = (
                not process_group.is_started()
            )  # else somebody else's group, and any rank may come here
            world = process_group.start(world, backend or kind.backend, **kwargs)
            _begin_notes(world, device, debug=debug, together=together)
            if kind.type == "cpu" and environ.get("OMP_NUM_THREADS", "0") in ("", "0"):
                torch.set_num_threads(max(1, physical_cores() // world.local_size))
        self.__dict__.update(
            _cpu=cpu,
            backend=process_group.backend() if distributed else None,
            debug=debug,
            device=device,
            distributed_type=kind.distributed_type if distributed else DistributedType.NO,
            fork_launched=forked,
            local_process_index=world.local_rank,
            num_processes=world.size,
            process_index=world.rank,
            world=world,
            kind=kind,
            token=uuid.uuid4().hex,
        )

    def reset(self) -> None:
        """Forget the run; a process group is left as it is."""
        self.__dict__.clear()


def settle_sharding(run: Current, plugin: Any) -> dict[str, Any]:
    """Settle whether models are sharded over the ranks of `run`, which takes a group.

    Returns:
        The plugin under its name in the public state; empty where nothing is sharded.
    """
    if run.backend is None:
        return {}
    run.distributed_type = run.kind.distributed_type if plugin is None else DistributedType.FSDP
    return {} if plugin is None else {"fsdp_plugin": plugin}


def _begin_notes(world: World, device: torch.device, *, debug: bool, together: bool) -> None:
    if world.size > 1:
        header.begin(rank=world.rank, size=world.size, device=device, debug=debug, together=together)
        mailbox.begin(world.rank, world.size)


current = Current()
record_first_use()


def rejoin() -> None:
    """Make the process group of the current run anew after `process_group.abandon`, with all its ranks."""
    process_group.start_anew(current.world, current.backend or current.kind.backend)
    _begin_notes(current.world, current.device, debug=current.debug, together=True)
