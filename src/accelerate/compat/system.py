"""Facts about this machine and process: ports, kernel, cores, ranks, GPUs as the driver lists them.

Called by the launcher, the state and the devices. Nothing here loads torch.
"""

import errno
import functools
import logging
import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import parse

from accelerate.compat import env

__all__ = [
    "CPUInformation",
    "are_libraries_initialized",
    "check_cuda_p2p_ib_support",
    "check_os_kernel",
    "convert_dict_to_env_variables",
    "get_cpu_distributed_information",
    "get_driver_version",
    "get_free_port",
    "get_gpu_info",
    "is_port_in_use",
    "override_numa_affinity",
    "physical_cores",
    "set_numa_affinity",
]

# First the names of torch's launcher, then those of Intel MPI, Open MPI and MVAPICH2.
RANK_VARIABLES = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
WORLD_SIZE_VARIABLES = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
LOCAL_RANK_VARIABLES = (
    "LOCAL_RANK",
    "MPI_LOCALRANKID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
)
LOCAL_WORLD_SIZE_VARIABLES = (
    "LOCAL_WORLD_SIZE",
    "MPI_LOCALNRANKS",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MV2_COMM_WORLD_LOCAL_SIZE",
)

_DEFAULT_PORT = 29500
_OLDEST_KERNEL = "5.5.0"
# Below this driver, GPUs of the RTX 40 series claim peer-to-peer transfers that they cannot do.
_FIRST_DRIVER_OF_RTX_40 = "550.40.07"
_UNSAFE_IN_ENVIRONMENT_FILE = frozenset(";\n<> ")

_logger = logging.getLogger(__name__)


def get_free_port() -> int:
    """Return a port that no process uses at the moment.

    Nothing holds the port for the caller: another process may take it before it is used.

    Example:
        >>> is_port_in_use(get_free_port())
        False
    """
    with _listening_socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def is_port_in_use(port: int | None = None) -> bool:
    """Return whether some process of this machine listens on a port, on any of its addresses.

    Args:
        port: the port; 29500, where ranks meet by default, when None.

    Raises:
        OverflowError: `port` is not between 0 and 65535.
    """
    with _listening_socket() as probe:
        try:
            probe.bind(("", _DEFAULT_PORT if port is None else port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _listening_socket() -> socket.socket:
    """Return a socket with the settings that torch's store listens with: both IP versions, reused at once."""
    dual = socket.has_dualstack_ipv6()
    probe = socket.socket(socket.AF_INET6 if dual else socket.AF_INET, socket.SOCK_STREAM)
    if dual:
        probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    if os.name != "nt":
        # On Windows the option lets two processes share a port, which is what is asked about.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return probe


def check_os_kernel() -> None:
    """Log a warning on Linux kernels below 5.5.0, where training processes are known to hang.

    Every rank that calls it warns: call it on one.
    """
    uname = platform.uname()
    found = re.match(r"\d+\.\d+(\.\d+)?", uname.release)
    if uname.system != "Linux" or found is None or parse(found[0]) >= parse(_OLDEST_KERNEL):
        return
    _logger.warning(
        "Linux kernel %s is older than %s, with which training processes are known to hang: upgrade the "
        "kernel if this run stops making progress",
        found[0],
        _OLDEST_KERNEL,
    )


def physical_cores() -> int:
    """Return how many physical cores this process may run on; at least 1.

    Threads of one core count once where the kernel tells them apart, and cores that a container or
    `taskset` keeps from this process do not count.
    """
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cores = set()
    for cpu in os.sched_getaffinity(0):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.add(siblings.read_text() if siblings.exists() else str(cpu))
    return len(cores)


def are_libraries_initialized(*library_names: str) -> list[str]:
    """Return those of the named modules that this process has imported."""
    return [name for name in library_names if name in sys.modules]


def convert_dict_to_env_variables(current_env: Mapping[str, str]) -> list[str]:
    """Return lines `NAME=value` for an environment file, without what such a file cannot hold.

    Empty names and values are left out, and those with a semicolon, a line break, `<`, `>` or a space; a
    warning is logged for each.

    Args:
        current_env: names and values.
    """
    lines = []
    for name, value in current_env.items():
        if name and value and not _UNSAFE_IN_ENVIRONMENT_FILE.intersection(name + value):
            lines.append(f"{name}={value}\n")
            continue
        _logger.warning(
            "%s=%r is left out of the environment file: a name or value there is not empty and holds no "
            "semicolon, line break, '<', '>' or space",
            name,
            value,
        )
    return lines


@dataclass
class CPUInformation:
    """Where this process stands among the ranks, as its launcher says.

    Attributes:
        rank: index among all ranks.
        world_size: number of ranks.
        local_rank: index among the ranks of this machine.
        local_world_size: number of ranks of this machine.
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1


def get_cpu_distributed_information() -> CPUInformation:
    """Return what torch's launcher or an MPI says in the environment about the place of this process.

    Raises:
        EnvironmentVariableError: a variable is not an integer.
    """
    return CPUInformation(
        rank=env.get_int_from_env(RANK_VARIABLES, 0),
        world_size=env.get_int_from_env(WORLD_SIZE_VARIABLES, 1),
        local_rank=env.get_int_from_env(LOCAL_RANK_VARIABLES, 0),
        local_world_size=env.get_int_from_env(LOCAL_WORLD_SIZE_VARIABLES, 1),
    )


def _nvidia_smi(*columns: str) -> list[list[str]]:
    """Return a row of columns for each GPU of the machine, visible to this process or not."""
    command = ["nvidia-smi", f"--query-gpu={','.join(columns)}", "--format=csv,noheader"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()]


def get_gpu_info() -> tuple[list[str], int]:
    """Return the name of each NVIDIA GPU of this machine, and how many there are.

    Raises:
        FileNotFoundError: `nvidia-smi` is not installed.
        subprocess.CalledProcessError: the driver does not answer.
    """
    names = [row[0] for row in _nvidia_smi("name")]
    return names, len(names)


def get_driver_version() -> str:
    """Return the version of the NVIDIA driver.

    Raises:
        FileNotFoundError: `nvidia-smi` is not installed.
        subprocess.CalledProcessError: the driver does not answer.
    """
    return _nvidia_smi("driver_version")[0][0]


def check_cuda_p2p_ib_support() -> bool:
    """Return False where NCCL must not use peer-to-peer and InfiniBand: several RTX 40 with an old driver.

    A machine without NVIDIA GPUs or without an answer of the driver gives True.
    """
    try:
        names, count = get_gpu_info()
        if count < 2 or not any("RTX 40" in name for name in names):
            return True
        return parse(get_driver_version()) >= parse(_FIRST_DRIVER_OF_RTX_40)
    except (OSError, subprocess.CalledProcessError):
        return True


@functools.cache
def set_numa_affinity(local_process_index: int, verbose: bool | None = None) -> None:
    """Bind this process to the cores beside its GPU, once; further calls with these arguments do nothing.

    Args:
        local_process_index: index of the GPU among those that this process sees.
        verbose: whether to log the cores; ACCELERATE_DEBUG_MODE says when None.
    """
    override_numa_affinity(local_process_index, verbose)


def override_numa_affinity(local_process_index: int, verbose: bool | None = None) -> None:
    """Bind this process to the cores of the NUMA node that its GPU hangs on.

    Nothing changes without NVIDIA GPUs, without `nvidia-smi`, on systems that bind no processes, and where
    the node is unknown or none of its cores are open to this process. GPUs are counted in the order of
    `nvidia-smi`, which is CUDA's order for GPUs of one kind.

    Args:
        local_process_index: index of the GPU among those that this process sees.
        verbose: whether to log the cores; ACCELERATE_DEBUG_MODE says when None.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = cores_beside_gpu(local_process_index, _gpu_addresses()) & os.sched_getaffinity(0)
    if not cores:
        return
    os.sched_setaffinity(0, cores)
    if env.get_flag("ACCELERATE_DEBUG_MODE") if verbose is None else verbose:
        _logger.info("Process %d is bound to cores %s", local_process_index, sorted(cores))


def _gpu_addresses() -> list[str]:
    """Return the PCI address of each GPU that this process sees, in the order of CUDA's indices."""
    try:
        rows = _nvidia_smi("index", "uuid", "pci.bus_id")
    except (OSError, subprocess.CalledProcessError):
        return []
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return [address for _, _, address in rows]
    named = {key: address for index, uuid, address in rows for key in (index, uuid)}
    wanted = [name.strip() for name in visible.split(",")]
    return [named[name] for name in wanted if name in named]


def cores_beside_gpu(index: int, addresses: list[str], system: Path = Path("/sys")) -> set[int]:
    """Return the cores of the NUMA node of a GPU; empty where they are unknown.

    Args:
        index: index of the GPU.
        addresses: PCI address of each GPU, as `nvidia-smi` writes it (`00000000:3B:00.0`).
        system: where the kernel shows its devices.
    """
    if index >= len(addresses):
        return set()
    # The kernel writes the domain with four digits, the driver with eight.
    device = system / "bus/pci/devices" / addresses[index].lower()[-len("0000:00:00.0") :]
    try:
        node = int((device / "numa_node").read_text())
        text = (system / f"devices/system/node/node{node}/cpulist").read_text()
    except OSError:
        return set()
    cores: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return cores
