"""Launches inside of a SLURM job, which knows the machines already. Chosen by select.py, read by plan.py.

[Note: parts of a job]
A *job* has *nodes*. A *step* is one call of `srun` within it, with *tasks* on some of the nodes. This command
may stand in three places, and what it is there (`--slurm`) follows from the variables that SLURM sets:
in the job but in no step (sbatch's script, salloc's shell), it is to start itself once per node (`srun`); as
the only task of its node in a step, it starts the processes of that node (`node`); as one task of several
there, it is a process itself (`rank`). A job or step of one node and one task is an ordinary machine (`no`).
"""

import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from accelerate.compat import env
from accelerate.errors import ConfigurationError
from accelerate.launching.base import Launcher
from accelerate.launching.child import run_child
from accelerate.launching.command import SLURM_RANK_MARK, script_command
from accelerate.launching.hosts import expand_nodes
from accelerate.launching.simple import SimpleLauncher
from accelerate.options.field import OptionInfo, options
from accelerate.options.launch import LaunchPlan

__all__ = ["Job", "SlurmLauncher", "SlurmRankLauncher", "find_job"]

# The shell that salloc opens on the first node is a step of its own, which holds nothing: 0xfffffffa.
_INTERACTIVE_STEP = "4294967290"
_FIRST_PORT, _NUM_PORTS = 15000, 15000  # below those that systems give away by themselves
_STEPS_APART = 17  # a prime: neighbouring jobs and steps meet at different ports


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the variables of a job say, in the words of [Note: parts of a job].

    Attributes:
        part: srun, node or rank; no where one machine is all there is.
        nodes: names of the nodes of the step, or of the job where there is no step.
        node: number of this node.
        tasks: tasks of the step.
        port: a port that all tasks of a step agree on without talking to each other.
        srun_args: options with which srun gives one task all that the job has on a node.
    """

    part: str
    nodes: tuple[str, ...]
    node: int = 0
    tasks: int = 1
    port: int = _FIRST_PORT
    srun_args: str = ""


def find_job(environ: Mapping[str, str], *, always: bool = False) -> Job | None:
    """Return what SLURM's variables say; None outside of a job, and in a process that is a rank already.

    A heterogeneous job counts as none: its machines are placed by hand.

    Args:
        environ: the environment of the caller.
        always: look at a job also in a process that is a rank already.
    """
    is_rank = ("RANK" in environ and "WORLD_SIZE" in environ) or "TORCHELASTIC_RUN_ID" in environ
    if "SLURM_JOB_ID" not in environ or (is_rank and not always):
        return None
    in_step = "SLURM_STEP_NUM_TASKS" in environ and environ.get("SLURM_STEP_ID") != _INTERACTIVE_STEP
    listed = environ.get("SLURM_STEP_NODELIST") if in_step else None
    nodes = tuple(expand_nodes(listed or environ.get("SLURM_JOB_NODELIST", "")))
    if not nodes or "SLURM_HET_SIZE" in environ:  # nodes of several kinds: which is which, nobody says here
        return None
    tasks = _integer(environ, "SLURM_STEP_NUM_TASKS", 1) if in_step else 1
    step = _integer(environ, "SLURM_STEP_ID", 0) if in_step else 0
    number = _integer(environ, "SLURM_JOB_ID", 0) * _STEPS_APART + step
    return Job(
        part=_part(len(nodes), tasks, in_step=in_step),
        nodes=nodes,
        node=_integer(environ, "SLURM_NODEID", 0) if in_step else 0,
        tasks=tasks,
        port=_FIRST_PORT + number % _NUM_PORTS,
        srun_args=_srun_args(environ),
    )


def _part(nodes: int, tasks: int, *, in_step: bool) -> str:
    if not in_step:
        return "srun" if nodes > 1 else "no"
    if tasks > nodes:
        return "rank"
    return "node" if nodes > 1 else "no"


def _srun_args(environ: Mapping[str, str]) -> str:
    """Return what gives one task all of its node: srun counts processors, and some GPUs, by the task."""
    processors, _, times = environ.get("SLURM_JOB_CPUS_PER_NODE", "").partition("(")
    is_alike = processors.isdigit() and (bool(times) or environ.get("SLURM_JOB_NUM_NODES") == "1")
    words = [f"--cpus-per-task={processors}"] if is_alike else []
    if "SLURM_GPUS_PER_TASK" in environ and environ.get("SLURM_GPUS_ON_NODE", "").isdigit():
        words.append(f"--gpus-per-task={environ['SLURM_GPUS_ON_NODE']}")
    return " ".join(words)


def _integer(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    return int(text) if text.isdigit() else default


class SlurmLauncher(Launcher):
    """Starts this command once on every node of the job, through srun."""

    name: ClassVar[str] = "slurm"

    def accepts(self, plan: LaunchPlan) -> bool:
        """Return whether the command stands in a job of several nodes and in no step."""
        return plan.slurm == "srun"

    def command(self, plan: LaunchPlan) -> list[str]:
        """Return the call of srun. What was typed goes along; each node decides the rest for itself."""
        nodes = str(plan.num_machines)
        # The launches tell each other of a failure, and end in order: srun must not end them before.
        place = ["--nodes", nodes, "--ntasks", nodes, "--ntasks-per-node", "1", "--kill-on-bad-exit=0"]
        launch = [sys.executable, "-m", "accelerate.commands.launch", "--slurm", "node"]
        script = [plan.training_script, *plan.training_script_args]
        return ["srun", *place, *shlex.split(plan.srun_args or ""), *launch, *_typed(plan), *script]

    def environ(self, plan: LaunchPlan) -> dict[str, str]:
        """Return nothing: the launches on the nodes decide about the environment."""
        return {}

    def local_environ(self, plan: LaunchPlan) -> dict[str, str]:
        """Return nothing, see `environ`."""
        return {}

    def full_environ(self, plan: LaunchPlan) -> dict[str, str]:
        """Return the caller's environment as it is."""
        return env.snapshot()

    def run(self, plan: LaunchPlan) -> int:
        """Call srun and return its exit status: the highest of the nodes."""
        return run_child(self.command(plan), self.full_environ(plan))


class SlurmRankLauncher(SimpleLauncher):
    """Runs the script as one rank of a step, since srun has started a process for each."""

    name: ClassVar[str] = "slurm rank"

    def accepts(self, plan: LaunchPlan) -> bool:
        """Return whether this process is one of several tasks of its node."""
        return plan.slurm == "rank"

    def command(self, plan: LaunchPlan) -> list[str]:
        """Return the argument list. Python does not buffer: nothing is lost when the step is ended."""
        return script_command(plan, [sys.executable, "-u"])

    def environ(self, plan: LaunchPlan) -> dict[str, str]:
        """Return the common variables, and where rank 0 is."""
        variables = super().environ(plan)
        if not plan.cpu:
            del variables["ACCELERATE_USE_CPU"]
        return variables | {
            "MASTER_ADDR": plan.main_process_ip or "127.0.0.1",
            "MASTER_PORT": str(plan.main_process_port),
            SLURM_RANK_MARK: "1",
            "WORLD_SIZE": str(plan.num_processes),
        }

    def local_environ(self, plan: LaunchPlan) -> dict[str, str]:
        """Return also which of the tasks this one is.

        Raises:
            ConfigurationError: this is no task of a step.
        """
        environ = env.snapshot()
        here = _tasks_here(environ)
        if "SLURM_PROCID" not in environ or here is None:
            raise ConfigurationError(
                "--slurm rank: this is no task of a SLURM step; start it as in `srun accelerate launch ...`"
            )
        return super().local_environ(plan) | {
            "RANK": environ["SLURM_PROCID"],
            "LOCAL_RANK": environ.get("SLURM_LOCALID", "0"),
            "LOCAL_WORLD_SIZE": str(here),
        }


def _tasks_here(environ: Mapping[str, str]) -> int | None:
    """Return the number of tasks on this node, from a text as `4(x2),3`."""
    counts: list[int] = []
    for part in environ.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        count, _, times = part.partition("(x")
        if not count.isdigit():
            return None
        counts += [int(count)] * int(times.rstrip(")") or 1)
    node = _integer(environ, "SLURM_NODEID", 0)
    return counts[node] if node < len(counts) else None


# They are about this call of the command, or about how it reaches the nodes.
_NOT_TYPED_AGAIN = frozenset({"slurm", "srun_args", "explain", "training_script", "training_script_args"})


def _typed(plan: LaunchPlan) -> list[str]:
    """Return the words of the options that were typed."""
    return [
        word
        for info in options(LaunchPlan)
        if plan.sources.get(info.name) == "flag" and info.name not in _NOT_TYPED_AGAIN
        for word in _words(info, getattr(plan, info.name))
    ]


def _words(info: OptionInfo, value: Any) -> list[str]:
    flag = next((flag for flag in info.flags if flag.startswith("--")), info.flags[0])
    if info.repeats:
        return [word for item in value for word in (flag, str(item))]
    if info.type is bool and info.parse is None:
        return [flag] if value else list(info.off_flags[:1])
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return [f"{flag}={text}"] if text.startswith("-") else [flag, text]
