"""From what was typed, a configuration file and the machine to a LaunchPlan. Called by commands/launch.py.

Pure. Precedence: flag > configuration file > what the machine has > declared default. The caller's
environment decides nothing, so that a launch inside a launch does what it says; only OMP_NUM_THREADS and the
variables of a SLURM job count, which are about the machine. Of the machines of a job, files know nothing:
there the job beats the file. Contradictions are collected, not raised one by one: see launching/checks.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accelerate.errors import ConfigurationError, listing
from accelerate.launching.checks import Given, find_problems, find_warnings, usable_gpus
from accelerate.launching.hosts import parse_hosts
from accelerate.launching.machine import Machine
from accelerate.launching.slurm import Job, find_job
from accelerate.options.config_file import ConfigFile
from accelerate.options.field import options
from accelerate.options.launch import ENGINES, LaunchPlan, Source

__all__ = ["Resolution", "resolve"]

_DEFAULT_PORT = 29500  # where machines meet that were told nothing else
_NO_FILE = ConfigFile(path="")

# What chooses how to train: with one of them typed, the distributed type of the file is overruled.
_PARADIGMS = ("multi_gpu", "tpu", "tpu_use_cluster", "use_deepspeed", "use_fsdp", "use_megatron_lm")
_PARADIGM_OF_TYPE = {
    "DEEPSPEED": "use_deepspeed",
    "FSDP": "use_fsdp",
    "MEGATRON_LM": "use_megatron_lm",
    "XLA": "tpu",
    "MULTI_CPU": "cpu",
    "NO": None,
}
# These exist in version 1 of FSDP only; asking for one of them asks for version 1.
_FSDP1 = (
    "fsdp_sharding_strategy",
    "fsdp_backward_prefetch",
    "fsdp_forward_prefetch",
    "fsdp_use_orig_params",
    "fsdp_sync_module_states",
)
# Who types one of them says where the machines are, whatever a SLURM job says.
_PLACES = ("num_machines", "machine_rank", "main_process_ip")
_NO_JOB = "this is no SLURM job (SLURM_JOB_ID is not set); leave the option out"


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """What came out: a plan, and what speaks against starting it.

    Attributes:
        plan: every value decided; not to be started while there are problems.
        problems: all contradictions, a line each.
        warnings: what was asked for and has no effect, a line each.
    """

    plan: LaunchPlan
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def checked(self) -> LaunchPlan:
        """Return the plan.

        Raises:
            ConfigurationError: there are problems; the message has all of them.
        """
        if self.problems:
            raise ConfigurationError(listing(self.problems))
        return self.plan


def resolve(
    typed: Mapping[str, Any], machine: Machine, environ: Mapping[str, str], file: ConfigFile | None = None
) -> Resolution:
    """Decide every value of a launch.

    Args:
        typed: option name -> value, for the options that the user really passed.
        machine: what there is to run on.
        environ: the environment of the caller, asked for OMP_NUM_THREADS and for a SLURM job only.
        file: the configuration file; None for none.

    Returns:
        A plan without open ends, the problems and the warnings.
    """
    given = Given(typed, file or _NO_FILE)
    decisions = _Decisions(given, machine, environ)
    plan = decisions.plan()
    return Resolution(
        plan=plan,
        problems=(*given.file.problems, *decisions.problems, *find_problems(plan, given, machine)),
        warnings=(*given.file.warnings, *decisions.notes, *find_warnings(plan, given)),
    )


class _Decisions:
    """The values of one plan, filled in step by step: each step reads what those before it decided."""

    def __init__(self, given: Given, machine: Machine, environ: Mapping[str, str]) -> None:
        self._given = given
        self._machine = machine
        self._environ = environ
        self._values: dict[str, Any] = {}
        self._sources: dict[str, Source] = {}
        self.notes: list[str] = []
        self.problems: list[str] = []

    def plan(self) -> LaunchPlan:
        """Take every step and return the plan."""
        declared = options(LaunchPlan)
        for info in declared:
            value, source = self._given.get(info.name)
            if source is not None:
                self._values[info.name] = value
            self._sources[info.name] = source or "default"
        self._decide_paradigm()
        self._decide_slurm()
        self._decide_hosts()
        self._decide_machines()
        self._decide_processes()
        self._decide_precision()
        self._decide_threads()
        self._values["training_script_args"] = tuple(self._values.get("training_script_args") or ())
        return LaunchPlan(**self._values, sources=self._sources)

    def _set(self, name: str, value: Any, source: Source) -> None:
        self._values[name] = value
        self._sources[name] = source

    def _typed(self, name: str) -> bool:
        return bool(self._given.typed.get(name))

    def _decide_paradigm(self) -> None:
        """Let the file's distributed type choose, unless something that was typed does."""
        kind = self._given.file.distributed_type
        on_sagemaker = self._given.file.on_sagemaker
        if kind is not None and not on_sagemaker and not any(self._typed(name) for name in _PARADIGMS):
            name = _PARADIGM_OF_TYPE.get(kind, "multi_gpu")
            if name is not None and not (name in ("multi_gpu", "tpu") and self._typed("cpu")):
                self._set(name, True, "file")
        if any(self._typed(name) for name in ("multi_gpu", "tpu")) and not self._typed("cpu"):
            self._set("cpu", False, "default")  # what was typed overrules use_cpu of the file
        if any(key.startswith("parallelism_config.") for key in self._given.file.keys.values()):
            self._set("use_parallelism_config", True, "file")

    def _decide_slurm(self) -> None:
        """Decide what this command is within a SLURM job, and take the machines from there."""
        asked = self._values.get("slurm")
        job = find_job(self._environ, always=asked is not None)
        if asked is None:
            part = "no" if job is None or self._starts_elsewise() else job.part
            self._set("slurm", part, "default" if part == "no" else "detected")
        elif job is None and asked != "no":
            self.problems.append(f"--slurm {asked}: {_NO_JOB}")
        if job is not None and self._values["slurm"] != "no":
            self._take_places(job, self._values["slurm"])

    def _starts_elsewise(self) -> bool:
        """Return whether something was said that leaves a SLURM job no choice."""
        said = ("mpirun_hostfile", "tpu", "deepspeed_multinode_launcher")
        by_hand = any(self._given.source(name) == "flag" for name in _PLACES)
        return by_hand or self._given.file.on_sagemaker or any(self._values.get(name) for name in said)

    def _take_places(self, job: Job, part: str) -> None:
        """Let a job say which machines there are, which this is and where they meet."""
        nodes = len(job.nodes)
        in_file = max(1, self._values.get("num_machines") or 1)
        if part != "rank" and self._given.source("num_processes") == "file" and in_file != nodes:
            here = self._values["num_processes"] // in_file
            self._set("num_processes", here * nodes, "detected")
            self.notes.append(f"SLURM: {nodes} nodes, {here} process(es) on each")
        places: dict[str, Any] = {"num_machines": nodes}
        if part == "srun":
            places["srun_args"] = job.srun_args
        else:
            places |= {"machine_rank": job.node, "main_process_ip": job.nodes[0]}
            places["main_process_port"] = job.port
        if part == "rank":
            places["num_processes"] = job.tasks
            typed = self._given.typed.get("num_processes", job.tasks)
            if typed != job.tasks:
                self.problems.append(
                    f"--num_processes {typed}: srun has started {job.tasks} tasks, and each of them is a "
                    "process; leave the option out"
                )
        for name, value in places.items():
            if self._given.source(name) != "flag":
                self._set(name, value, "detected")

    def _decide_hosts(self) -> None:
        """Let the list of machines for mpirun say how many there are, and where rank 0 will be."""
        file = self._values.get("mpirun_hostfile")
        if file is None:
            return
        if self._values.get("mpirun_kind") is None:
            self._set("mpirun_kind", self._machine.find_mpi() or "openmpi", "detected")
        hosts = parse_hosts(self._machine.read_text(file) or "")
        if not hosts:
            return  # MpiLauncher.problems says so
        if self._given.source("num_machines") != "flag":
            self._set("num_machines", len(hosts), "detected")
        slots = [host.slots for host in hosts]
        if self._values.get("num_processes") is None and None not in slots:
            self._set("num_processes", sum(slot or 0 for slot in slots), "detected")
        if self._values.get("main_process_ip") is None and len(hosts) > 1:
            self._set("main_process_ip", hosts[0].name, "detected")

    def _decide_machines(self) -> None:
        if self._values.get("num_machines") is None:
            self._set("num_machines", 1, "default")
        several = self._values["num_machines"] > 1
        if self._values.get("machine_rank") is None and not several:
            self._set("machine_rank", 0, "default")
        # Of a step that is not there yet, only its own launches know a port.
        if several and not self._values.get("main_process_port") and self._values["slurm"] != "srun":
            self._set("main_process_port", _DEFAULT_PORT, "default")

    def _decide_processes(self) -> None:
        """Decide num_processes, multi_gpu and cpu from what the machine has."""
        if self._given.file.on_sagemaker:
            self._set("num_processes", 1, "default")  # SageMaker counts machines
            return
        asked: int | None = self._values.get("num_processes")
        if self._values["slurm"] == "srun":
            if asked is None:  # each node will count what it has
                self._set("num_processes", self._values["num_machines"], "default")
            return
        if asked is not None and asked > 1 and self._is_single_by_file():
            self.notes.append(
                f"{self._given.spell('num_processes')} has no effect: distributed_type is NO, so one process "
                "is started; --num_processes or another distributed_type starts more"
            )
            self._set("num_processes", 1, "file")
            return
        on_cpu = bool(self._values.get("cpu"))
        gpus = 0 if on_cpu else usable_gpus(self._values.get("gpu_ids"), self._machine)
        if asked is None:
            self._set("num_processes", max(1, gpus) * max(1, self._values["num_machines"]), "detected")
        if self._is_single_by_file() and asked is None:
            self._set("num_processes", 1, "file")
        if on_cpu or not self._needs_device():
            return
        if gpus:
            self._set("multi_gpu", True, "detected")
        else:
            self._set("cpu", True, "detected")

    def _needs_device(self) -> bool:
        """Return whether it is still open what several processes run on."""
        chosen = any(self._values.get(name) for name in ("multi_gpu", *ENGINES))
        return self._values["num_processes"] > 1 and not chosen

    def _is_single_by_file(self) -> bool:
        """Return whether the file says NO and nothing that was typed says otherwise."""
        overruled = any(self._typed(name) for name in (*_PARADIGMS, "num_processes"))
        return self._given.file.distributed_type == "NO" and not overruled

    def _decide_precision(self) -> None:
        for name in ("mixed_precision", "dynamo_backend"):
            if self._values.get(name) is None:
                self._set(name, "no", "default")
        if self._given.source("fsdp_version") is None:
            self._set("fsdp_version", *self._fsdp_version())

    def _fsdp_version(self) -> tuple[str, Source]:
        first_only = [name for name in _FSDP1 if self._given.source(name) is not None]
        reshard = self._values.get("fsdp_reshard_after_forward")
        if reshard is not None and reshard.lower() not in ("true", "false"):
            first_only.append("fsdp_reshard_after_forward")
        if self._values.get("fsdp_state_dict_type") in ("LOCAL_STATE_DICT", "2"):
            first_only.append("fsdp_state_dict_type")
        return ("1", "detected") if first_only else ("2", "default")

    def _decide_threads(self) -> None:
        if self._values.get("num_cpu_threads_per_process") is not None:
            return
        text = self._environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
        threads = 1
        if text.isdigit() and int(text) > 0:
            threads = int(text)
        elif self._values.get("cpu") or self._machine.gpus == 0:
            here = max(1, self._values["num_processes"] // max(1, self._values["num_machines"]))
            threads = max(1, self._machine.cores // here)
        self._set("num_cpu_threads_per_process", threads, "detected")
