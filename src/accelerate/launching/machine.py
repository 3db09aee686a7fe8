"""What this machine has, as a value, without importing torch. Read by plan.py and `accelerate env`."""

import importlib.util
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Machine", "TorchBuild", "look", "torch_build", "visible_gpus"]


@dataclass(frozen=True, kw_only=True)
class TorchBuild:
    """Which torch is installed and for what it was built."""

    version: str | None  # None: torch is not installed
    platform: str | None  # "CUDA", "ROCm", None: neither


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Counts that decide how many processes to start.

    Attributes:
        installed_gpus: GPUs of this machine (of this container) that torch can drive.
        gpus: those of them that a child process sees.
        evidence: how `gpus` was found, for error messages.
        cores: physical cores that this process may use.
        port_in_use: asks whether something listens on a port of this machine.
        read_text: gives the text of a file, None where there is none.
        find_mpi: asks whose mpirun there is; None where there is none.
    """

    installed_gpus: int
    gpus: int
    evidence: str
    cores: int
    port_in_use: Callable[[int], bool] = field(default=lambda port: False, repr=False, compare=False)
    read_text: Callable[[str], str | None] = field(default=lambda path: None, repr=False, compare=False)
    find_mpi: Callable[[], str | None] = field(default=lambda: None, repr=False, compare=False)


def look(environ: Mapping[str, str], root: Path = Path("/"), build: TorchBuild | None = None) -> Machine:
    """Return what the files under `root` and the variables in `environ` say about this machine.

    Args:
        environ: `CUDA_VISIBLE_DEVICES` in it narrows what children see.
        root: where /dev, /proc and /sys are.
        build: the installed torch; looked up when None.
    """
    build = torch_build() if build is None else build
    devices = sorted(path.name for path in (root / "dev").glob("nvidia[0-9]*")) or _amd_gpus(root)
    installed = len(devices)
    evidence = ", ".join(f"/dev/{name}" for name in devices) if devices else "no GPU device under /dev"
    if devices and build.version is not None and build.platform is None:
        installed = 0
        evidence += f", but torch {build.version} is built for the CPU only"
    gpus = installed
    variable = environ.get("CUDA_VISIBLE_DEVICES")
    if variable is not None and installed:
        gpus = visible_gpus(variable, installed)
        evidence += f", CUDA_VISIBLE_DEVICES={variable!r}"
    return Machine(
        installed_gpus=installed,
        gpus=gpus,
        evidence=evidence,
        cores=_cores(root),
        port_in_use=_port_in_use,
        read_text=_read_text,
        find_mpi=_find_mpi,
    )


def _port_in_use(port: int) -> bool:
    from accelerate.compat.system import is_port_in_use

    return is_port_in_use(port)


def _find_mpi() -> str | None:
    from accelerate.launching.mpi import find_kind

    return find_kind()


def _read_text(path: str) -> str | None:
    file = Path(path)
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else None


def visible_gpus(variable: str, installed: int) -> int:
    """Return how many of `installed` GPUs the text of CUDA_VISIBLE_DEVICES leaves.

    CUDA reads the list up to the first item that it does not know.

    Example:
        >>> visible_gpus("0,1", installed=4), visible_gpus("0,7,1", installed=4)
        (2, 1)
    """
    count = 0
    for item in (text.strip() for text in variable.split(",")):
        is_identifier = item.startswith(("GPU-", "MIG-"))
        if not is_identifier and not (item.isdigit() and int(item) < installed):
            break
        count += 1
    return count


def torch_build() -> TorchBuild:
    """Read the version file of the installed torch, without importing it."""
    spec = importlib.util.find_spec("torch")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    file = Path(folders[0], "version.py") if folders else None
    if file is None or not file.is_file():
        return TorchBuild(version=None, platform=None)
    text = file.read_text(encoding="utf-8")

    def value(name: str) -> str | None:
        found = re.search(rf"^{name}\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
        return found[1] if found else None

    platform = "CUDA" if value("cuda") else "ROCm" if value("hip") else None
    return TorchBuild(version=value("__version__"), platform=platform)


def _amd_gpus(root: Path) -> list[str]:
    """Return the render nodes of the compute devices that the AMD driver lists."""
    nodes = []
    for properties in (root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties"):
        minor = re.search(r"^drm_render_minor (\d+)$", properties.read_text(encoding="utf-8"), re.MULTILINE)
        if minor is not None and (root / "dev/dri" / f"renderD{minor[1]}").exists():
            nodes.append(f"dri/renderD{minor[1]}")
    return sorted(nodes)


def _cores(root: Path) -> int:
    """Return the physical cores that this process may use, within the share of its container."""
    processors = _usable_processors(root)
    cores = set()
    for processor in processors:
        topology = root / f"sys/devices/system/cpu/cpu{processor}/topology"
        try:
            # Hyper-threads of one core share both numbers.
            cores.add(tuple((topology / name).read_text() for name in ("physical_package_id", "core_id")))
        except OSError:
            cores.add((str(processor), ""))
    share = _container_share(root)
    return max(1, len(cores) if share is None else min(len(cores), share))


def _usable_processors(root: Path) -> list[int]:
    """Return the numbers in the kernel's own list, as in `0-3,8`; all of them where it keeps none."""
    status = root / "proc/self/status"
    text = status.read_text(encoding="utf-8") if status.is_file() else ""
    listed = re.search(r"^Cpus_allowed_list:\s*(\S+)$", text, re.MULTILINE)
    if listed is None:
        return list(range(os.cpu_count() or 1))
    bounds = [part.split("-") for part in listed[1].split(",")]
    return [number for bound in bounds for number in range(int(bound[0]), int(bound[-1]) + 1)]


def _container_share(root: Path) -> int | None:
    """Return the processors that the container's quota amounts to, rounded up; None when it has no quota."""
    try:
        quota, period = (root / "sys/fs/cgroup/cpu.max").read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else -(-int(quota) // int(period))
