"""`notebook_launcher`: a function that stands in a notebook, on several processes. For users.

The processes are forked, so that they have all that the notebook has defined: torch elastic's agent starts
and watches them, as it does for scripts, in a thread of this process.
"""

import os
import signal
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch.distributed
from torch.distributed import DistNetworkError, DistStoreError
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.rendezvous import RendezvousError, RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from accelerate.compat import env
from accelerate.compat.system import check_cuda_p2p_ib_support, get_free_port, is_port_in_use
from accelerate.devices.first_use import record_first_use
from accelerate.errors import ConfigurationError, LaunchError, MissingPackageError
from accelerate.launching.forked import PrepareForLaunch
from accelerate.launching.history import told_first_use
from accelerate.launching.machine import look
from accelerate.launching.ranks import (
    RankFunction,
    checked_arguments,
    checked_count,
    in_fresh_thread,
    raise_first_failure,
    silent_logger,
)
from accelerate.options.enums import PrecisionType
from accelerate.state import forget_ended_training, is_initialized

__all__ = ["notebook_launcher"]

record_first_use()


@dataclass(frozen=True, kw_only=True)
class _Request:
    """What was asked for, as in `notebook_launcher`, with the number of processes and the port decided."""

    num_processes: int
    mixed_precision: str
    port: int
    address: str
    node_rank: int
    num_nodes: int
    rdzv_backend: str
    rdzv_endpoint: str
    rdzv_conf: Mapping[str, Any]
    rdzv_id: str
    max_restarts: int
    monitor_interval: float
    log_line_prefix_template: str | None

    @property
    def world_size(self) -> int:
        return self.num_processes * self.num_nodes

    @property
    def meeting_point(self) -> str:
        return self.rdzv_endpoint or f"{self.address}:{self.port}"

    def environ(self) -> dict[str, object]:
        """Return the variables of every process."""
        variables: dict[str, object] = {
            "ACCELERATE_MIXED_PRECISION": self.mixed_precision,
            "MIXED_PRECISION": self.mixed_precision,
            "MASTER_ADDR": self.address,
            "MASTER_PORT": self.port,
            "NODE_RANK": self.node_rank,
            "NPROC": self.num_processes,
            "WORLD_SIZE": self.world_size,
            # The agent's own handlers would stay behind in the notebook; it skips names it does not know.
            "TORCHELASTIC_SIGNALS_TO_HANDLE": "none",
        }
        if not check_cuda_p2p_ib_support():
            wanted = {"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1"}
            variables |= {name: text for name, text in wanted.items() if env.get(name) is None}
        return variables


def notebook_launcher(
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    num_processes: int | None = None,
    mixed_precision: str = "no",
    use_port: str = "29500",
    master_addr: str = "127.0.0.1",
    node_rank: int = 0,
    num_nodes: int = 1,
    rdzv_backend: str = "static",
    rdzv_endpoint: str = "",
    rdzv_conf: dict[str, Any] | None = None,
    rdzv_id: str = "none",
    max_restarts: int = 0,
    monitor_interval: float = 0.1,
    log_line_prefix_template: str | None = None,
) -> None:
    """Call a function of a notebook in several processes, and wait for all of them.

    With one process the function is called in the notebook itself, on a TPU once per core, and else in forked
    processes. Make the `Accelerator` inside of the function, and use no GPU before: what has been set up on
    one cannot be forked. What the process that fails first raises is raised in the notebook, with its own
    traceback as the cause, and the others are ended; so they are when the notebook is interrupted.

    Args:
        function: called as `function(*args)` in each process; on a TPU with the number of the process first.
        args: what it is called with.
        num_processes: processes of this machine; needed unless there is a TPU.
        mixed_precision: precision that an `Accelerator` uses unless it names one: no, fp16, bf16 or fp8.
        use_port: port at which they meet. With one machine another one is taken when it is in use.
        master_addr: address of machine 0.
        node_rank: number of this machine.
        num_nodes: number of machines; each calls this function.
        rdzv_backend: how machines find each other (torch elastic): static or c10d.
        rdzv_endpoint: where, if not at `master_addr` and `use_port`.
        rdzv_conf: further settings of that.
        rdzv_id: name of the run, the same on all machines.
        max_restarts: times that all processes are started anew after one of them failed.
        monitor_interval: seconds between two looks at the processes.
        log_line_prefix_template: put before each line of output, as in "[rank ${rank}] ", with the words of
            torch elastic: `${role_name}`, `${local_rank}` and `${rank}`.

    Raises:
        ConfigurationError: what was asked for contradicts itself, or an Accelerator or a device is in use in
            the notebook already; the message says which line used it first.
        LaunchError: there is no fork on this system, or a process was ended from outside.
    """
    args = checked_arguments("notebook_launcher", function, args)
    mixed_precision = str(mixed_precision or "no").lower()
    if mixed_precision not in PrecisionType:
        known = ", ".join(map(str, PrecisionType.list()))
        raise ConfigurationError(
            f"notebook_launcher(mixed_precision={mixed_precision!r}): use one of {known}"
        )
    if _has_tpu():
        _run_on_tpu(function, args, num_processes, mixed_precision)
        return
    if num_processes is None:
        raise ConfigurationError(_how_many())
    num_processes = checked_count("notebook_launcher", num_processes=num_processes)
    _check_watching(max_restarts, monitor_interval)
    if not 0 <= node_rank < num_nodes:
        raise ConfigurationError(
            f"notebook_launcher(node_rank={node_rank}, num_nodes={num_nodes}): machines are numbered from 0; "
            "give a node_rank that is smaller than num_nodes"
        )
    if num_processes == 1 and num_nodes == 1:
        _run_here(function, args, mixed_precision)
        return
    request = _Request(
        num_processes=num_processes,
        mixed_precision=mixed_precision,
        port=_port(use_port, may_move=num_nodes == 1),
        address=master_addr,
        node_rank=node_rank,
        num_nodes=num_nodes,
        rdzv_backend=rdzv_backend,
        rdzv_endpoint=rdzv_endpoint,
        rdzv_conf=_settings(rdzv_conf),
        rdzv_id=rdzv_id,
        max_restarts=max_restarts,
        monitor_interval=monitor_interval,
        log_line_prefix_template=log_line_prefix_template,
    )
    _check_notebook()
    _check_devices(num_processes)
    _run_forked(function, args, request)


def _how_many() -> str:
    gpus = look(env.snapshot()).gpus
    example = f"num_processes={gpus}, one per GPU" if gpus else "num_processes=2, on the CPU"
    return f"notebook_launcher(num_processes=None): say how many this machine runs, as in {example}"


def _check_watching(max_restarts: int, monitor_interval: float) -> None:
    if max_restarts < 0:
        raise ConfigurationError(f"notebook_launcher(max_restarts={max_restarts}): give at least 0")
    if not monitor_interval > 0:
        raise ConfigurationError(
            f"notebook_launcher(monitor_interval={monitor_interval}): give seconds greater than 0"
        )


def _settings(given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping | None):
        raise TypeError(
            f"notebook_launcher(rdzv_conf={given!r}): give a dictionary, as in rdzv_conf={{'timeout': 60}}"
        )
    return given or {}


def _port(text: str, *, may_move: bool) -> int:
    if not str(text).isdigit() or int(text) > 65535:
        raise ConfigurationError(f"notebook_launcher(use_port={text!r}): give a port, as in '29500', or '0'")
    port = int(text)
    if port == 0 and not may_move:
        raise ConfigurationError("notebook_launcher(use_port='0'): several machines need a port to agree on")
    return get_free_port() if may_move and (port == 0 or is_port_in_use(port)) else port


def _check_notebook() -> None:
    """Refuse to fork from a process in which a run has begun."""
    if not hasattr(os, "fork"):
        raise LaunchError(
            "notebook_launcher needs to fork, which this system does not: use `accelerate launch`"
        )
    forget_ended_training()
    if is_initialized():
        raise ConfigurationError(
            "an Accelerator was made in this notebook already, and the processes that notebook_launcher "
            "starts each need one of their own. Make it inside of the function that you pass; then restart "
            "the kernel, or call `accelerator.end_training()` on the one that exists"
        )
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        raise ConfigurationError(
            "this notebook is in a process group already: leave it, with "
            "`torch.distributed.destroy_process_group()`, before notebook_launcher starts others"
        )
    used = told_first_use()
    if used is not None:
        raise ConfigurationError(used)


def _check_devices(num_processes: int) -> None:
    machine = look(env.snapshot())
    if 0 < machine.gpus < num_processes and not env.get_flag("ACCELERATE_USE_CPU"):
        raise ConfigurationError(
            f"notebook_launcher(num_processes={num_processes}): one process per GPU, and {machine.gpus} can "
            f"be used ({machine.evidence}); give num_processes={machine.gpus}, or set ACCELERATE_USE_CPU=yes "
            "to run on the CPU"
        )
    device = "GPU" if machine.gpus else "CPU process"
    plural = "" if num_processes == 1 else "es" if device.endswith("s") else "s"
    print(f"Launching training on {num_processes} {device}{plural}.")


def _run_here(function: Callable[..., Any], args: tuple[Any, ...], mixed_precision: str) -> None:
    variables = {"ACCELERATE_MIXED_PRECISION": mixed_precision}
    where = "one GPU" if look(env.snapshot()).gpus else "CPU"
    if torch.backends.mps.is_available():
        where = "MPS"
        variables["PYTORCH_ENABLE_MPS_FALLBACK"] = "1"
    print(f"Launching training on {where}.")
    with env.patch_environment(**variables):
        function(*args)


def _has_tpu() -> bool:
    return bool(env.get("TPU_NAME")) or env.get("PJRT_DEVICE") == "TPU"


def _run_on_tpu(
    function: Callable[..., Any], args: tuple[Any, ...], num_processes: int | None, mixed_precision: str
) -> None:
    try:
        from torch_xla.distributed import xla_multiprocessing  # type: ignore[import-not-found]
    except ImportError as error:
        raise MissingPackageError(
            "a TPU needs torch_xla, which is not installed: pip install torch_xla"
        ) from error
    _check_notebook()
    # torch_xla starts a process per core, or one; it takes no other number.
    number = 1 if num_processes == 1 else None
    print(f"Launching training on {'one TPU core' if number else 'all TPU cores'}.")
    with env.patch_environment(ACCELERATE_MIXED_PRECISION=mixed_precision):
        launch = PrepareForLaunch(function, distributed_type="XLA")
        xla_multiprocessing.spawn(launch, args=args, nprocs=number, start_method="fork")


def _run_forked(function: Callable[..., Any], args: tuple[Any, ...], request: _Request) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="accelerate_notebook_") as folder,
        env.patch_environment(**request.environ()),
        silent_logger("torch.distributed.elastic"),
        silent_logger("torch.multiprocessing.spawn"),
    ):
        has_prefix = request.log_line_prefix_template is not None and _can_redirect()
        rank = RankFunction(function, folder, own_streams=has_prefix)
        spec = _spec(rank, args, request)
        logs = DefaultLogsSpecs(log_dir=folder, tee=Std.ALL if has_prefix else Std.NONE)
        agent = _Agent(
            spec, logs, start_method="fork", log_line_prefix_template=request.log_line_prefix_template
        )
        try:
            result: RunResult = in_fresh_thread(agent.run, agent.stopping.set)
        except (DistStoreError, DistNetworkError, RendezvousError) as error:
            raise LaunchError(
                f"the {request.num_nodes} machine(s) did not meet at {request.meeting_point}: {error}. Call "
                "notebook_launcher on all of them, with the same address, port and number of machines"
            ) from error
        finally:
            spec.rdzv_handler.shutdown()
        if result.is_failed():
            first_rank = request.node_rank * request.num_processes
            raise_first_failure(folder, request.world_size, agent.processes, first_rank)


def _can_redirect() -> bool:
    """Return whether output can be led through files, where prefixes are put before its lines."""
    try:
        return sys.stdout.fileno() >= 0 and sys.stderr.fileno() >= 0
    except (AttributeError, OSError, ValueError):
        print("log_line_prefix_template has no effect: this notebook's output cannot be redirected.")
        return False


def _spec(rank: RankFunction, args: tuple[Any, ...], request: _Request) -> WorkerSpec:
    is_static = request.rdzv_backend == "static"
    own = {"rank": request.node_rank} if is_static else {}
    # A name of its own for each run of one machine; several machines need the one that was given.
    run_id = request.rdzv_id if request.num_nodes > 1 else uuid.uuid4().hex
    handler = get_rendezvous_handler(
        RendezvousParameters(
            backend=request.rdzv_backend,
            endpoint=request.meeting_point,
            run_id=run_id,
            min_nodes=request.num_nodes,
            max_nodes=request.num_nodes,
            **{**own, **request.rdzv_conf},
        )
    )
    return WorkerSpec(
        role="default",
        local_world_size=request.num_processes,
        entrypoint=rank,
        args=args,
        rdzv_handler=handler,
        max_restarts=request.max_restarts,
        monitor_interval=request.monitor_interval,
        master_addr=request.address if is_static else None,
        master_port=request.port if is_static else None,
    )


class _Agent(LocalElasticAgent):
    """torch's agent, which can be stopped, and which notices a rank that ends without a result.

    Attributes:
        stopping: set from another thread to have all ranks ended.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stopping = threading.Event()

    @property
    def processes(self) -> list[Any]:
        """The processes of the last attempt, in the order of local ranks."""
        context: Any = self._pcontext
        return [] if context is None else list(context._pc.processes)

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        if self.stopping.is_set():
            raise SignalException("the notebook was interrupted", signal.SIGTERM)
        result: RunResult = super()._monitor_workers(worker_group)
        # A rank that is done waits for the others: torch would wait for the result of one that has gone.
        gone = [rank for rank, process in enumerate(self.processes) if process.exitcode == 0]
        if result.state == WorkerState.HEALTHY and gone:
            raise LaunchError(f"local rank {gone[0]} has ended by itself, by an interrupt or `os._exit`")
        return result
