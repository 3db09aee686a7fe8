"""A SLURM of two nodes on this machine, with settings and a key of its own. Used by test_launch_slurm.py.

Debian's packages `slurm-wlm` and `munge` have all that it takes; it runs as root only, as slurmd does.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

__all__ = ["PROGRAMS", "SlurmCluster", "why_not"]

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo", "scontrol")

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
SchedulerParameters=batch_sched_delay=1,sched_interval=1
NodeName=127.0.0.1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=1000 State=UNKNOWN
NodeName=127.0.0.2 NodeHostname={host} NodeAddr=127.0.0.2 Port={ports[2]} CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=127.0.0.[1-2] Default=YES MaxTime=10 State=UP OverSubscribe=YES
"""


def why_not() -> str | None:
    """Return why there can be no cluster here; None where it can."""
    missing = [name for name in PROGRAMS if _program(name) is None]
    if missing:
        return f"no {', '.join(missing)}: apt-get install slurm-wlm munge"
    return "slurmd runs as root only" if os.geteuid() else None


class SlurmCluster:
    """The daemons of two nodes, 127.0.0.1 and 127.0.0.2, from `start` to `stop`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.environ: Mapping[str, str] = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def start(self) -> None:
        """Start the daemons and wait until both nodes are idle."""
        folder = self._folder
        ports = [_free_port() for _ in range(3)]
        text = CONFIGURATION.format(host=socket.gethostname().split(".")[0], ports=ports, folder=folder)
        (folder / "slurm.conf").write_text(text)
        (folder / "state").mkdir()
        (folder / "munge.key").write_bytes(os.urandom(1024))
        (folder / "munge.key").chmod(0o400)
        places = {"socket": "munge.socket", "key-file": "munge.key", "pid-file": "munged.pid"}
        places |= {"log-file": "munged.log", "seed-file": "munged.seed"}
        self._run("munged", "--foreground", "--force", *(f"--{a}={folder / b}" for a, b in places.items()))
        self._wait(lambda: (folder / "munge.socket").exists())
        self._run("slurmctld", "-D", "-c")
        for node in ("127.0.0.1", "127.0.0.2"):
            self._run("slurmd", "-D", "-N", node)
        self._wait(lambda: self.call("sinfo", "-h", "-o", "%D %t").stdout.split() == ["2", "idle"])

    def call(self, *command: str, timeout: float = 100.0, **extra: str) -> "subprocess.CompletedProcess[str]":
        """Run one of SLURM's commands; `extra` are variables."""
        return subprocess.run(
            command,
            env={**self.environ, **extra},
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def stop(self) -> None:
        """End the daemons, the last one first, once no job is left: its own daemon would stay behind."""
        try:
            if self._daemons:
                self.call("scancel", "--user=root")
                self._wait(lambda: self.call("squeue", "-h").stdout == "")
        finally:
            for daemon in reversed(self._daemons):
                daemon.terminate()
                try:
                    daemon.wait(10)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()

    def _run(self, name: str, *arguments: str) -> None:
        log = (self._folder / f"{name}-{len(self._daemons)}.out").open("wb")
        with log:
            command = [_program(name) or name, *arguments]
            self._daemons.append(subprocess.Popen(command, env=self.environ, stdout=log, stderr=log))

    def _wait(self, is_ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not is_ready():
            if time.monotonic() > deadline:
                logs = [f"{file.name}:\n{file.read_text()}" for file in self._folder.glob("*.[lo]*")]
                raise TimeoutError("\n".join(["the cluster does not come up", *logs]))
            time.sleep(0.1)


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
