"""The one table of launchers. Called by commands/launch.py."""

from accelerate.errors import LaunchError
from accelerate.launching.base import Launcher
from accelerate.launching.deepspeed import DeepSpeedLauncher
from accelerate.launching.elastic import ElasticLauncher
from accelerate.launching.mpi import MpiLauncher
from accelerate.launching.simple import SimpleLauncher
from accelerate.launching.slurm import SlurmLauncher, SlurmRankLauncher
from accelerate.launching.tpu import TpuLauncher, TpuPodLauncher
from accelerate.options.launch import LaunchPlan

__all__ = ["LAUNCHERS", "select"]

# The first that accepts a plan gets it.
LAUNCHERS: tuple[Launcher, ...] = (
    MpiLauncher(),
    SlurmLauncher(),
    SlurmRankLauncher(),
    TpuPodLauncher(),
    TpuLauncher(),
    DeepSpeedLauncher(),
    ElasticLauncher(),
    SimpleLauncher(),
)


def select(plan: LaunchPlan) -> Launcher:
    """Return the launcher that starts `plan`.

    Raises:
        LaunchError: none accepts it.
    """
    for launcher in LAUNCHERS:
        if launcher.accepts(plan):
            return launcher
    names = ", ".join(launcher.name for launcher in LAUNCHERS)
    raise LaunchError(f"no launcher accepts {plan}; there are {names}")
