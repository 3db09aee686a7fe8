"""All that `accelerate launch` decided, as one frozen value. Made by launching/plan.py, read by launchers.

Each option is declared once, here or in the `launch_*.py` beside this file: parser, help, configuration
file and environment come from there. The declared default is what the parser leaves behind when nothing is
typed; None means "decide from what the machine has", and a resolved plan no longer holds None there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from accelerate.options.field import option
from accelerate.options.launch_deepspeed import DeepSpeedLaunch
from accelerate.options.launch_fsdp import FSDPLaunch
from accelerate.options.launch_megatron import MegatronLaunch
from accelerate.options.launch_parallel import FP8Launch, ParallelismLaunch
from accelerate.options.launch_platforms import DynamoLaunch, PlatformLaunch

__all__ = ["ENGINES", "LaunchPlan", "Source"]

Source = Literal["flag", "file", "default", "detected"]

# Field that turns an engine on -> its name for people.
ENGINES = {
    "use_deepspeed": "DeepSpeed",
    "use_fsdp": "FSDP",
    "use_megatron_lm": "Megatron-LM",
    "tpu": "TPU",
}

_HARDWARE = "Hardware Selection Arguments"
_RESOURCES = "Resource Selection Arguments"
_PARADIGM = "Training Paradigm Arguments"
_DISTRIBUTED = "Distributed GPUs"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class _Script:
    """What is launched, and how much is said about it."""

    config_file: str | None = option(
        None,
        flag="--config_file",
        type=str,
        help="Configuration file for what is not on the command line. Default: the one that `accelerate "
        "config` wrote, if there is one and --cpu is not given.",
    )
    quiet: bool = option(
        None,
        flag=("--quiet", "-q"),
        help="Say nothing when the script fails: its own output and exit status remain.",
    )
    explain: bool = option(
        None,
        flag="--explain",
        help="Show each value with its source, the command and the environment; start nothing.",
    )
    module: bool = option(
        None, flag=("-m", "--module"), help="The script is the name of a module, as in `python -m`."
    )
    no_python: bool = option(None, flag="--no_python", help="The script is a program: no Python is started.")
    debug: bool = option(
        None,
        flag="--debug",
        key="debug",
        question="Check the shapes of all collectives while training (slower; shows mistakes early)?",
        help="Check the shapes of all collectives, and show what torch elastic logs.",
    )
    training_script: str = option(
        flag="training_script", help="The script to launch, with its path; or a module or program, see above."
    )
    training_script_args: tuple[str, ...] = option(
        flag="training_script_args", nargs="...", help="Everything after the script goes to the script."
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class _Resources:
    """Devices, processes and precision."""

    cpu: bool = option(
        False,
        flag="--cpu",
        key="use_cpu",
        group=_HARDWARE,
        question="Train on the CPU only, even if there is a GPU?",
        help="Run on the CPU, whatever else is there.",
    )
    multi_gpu: bool = option(
        False,
        flag="--multi_gpu",
        group=_HARDWARE,
        help="Run one process per GPU. This is also the default on a machine with several GPUs.",
    )
    tpu: bool = option(False, flag="--tpu", group=_HARDWARE, help="Run on TPUs.")
    mixed_precision: str = option(
        None,
        flag="--mixed_precision",
        env="ACCELERATE_MIXED_PRECISION",
        key="mixed_precision",
        group=_RESOURCES,
        choices=("no", "fp16", "bf16", "fp8"),
        question="Which precision?",
        help="Precision that the script's Accelerator uses unless it names one itself. Default: no.",
    )
    num_processes: int = option(
        None,
        flag="--num_processes",
        key="num_processes",
        group=_RESOURCES,
        question="How many processes in all, over all machines?",
        help="Number of processes, over all machines. Default: one per GPU, or one where there is no GPU.",
    )
    num_machines: int = option(
        None,
        flag="--num_machines",
        key="num_machines",
        group=_RESOURCES,
        question="How many machines take part?",
        help="Number of machines; each gets the same command, with its own --machine_rank. Default: 1.",
    )
    num_cpu_threads_per_process: int = option(
        None,
        flag="--num_cpu_threads_per_process",
        group=_RESOURCES,
        help="Threads per process (OMP_NUM_THREADS). Default: that variable; else, on the CPU, the cores "
        "shared out over the processes; else 1.",
    )
    enable_cpu_affinity: bool = option(
        False,
        flag="--enable_cpu_affinity",
        key="enable_cpu_affinity",
        group=_RESOURCES,
        question="Bind each process to the processor cores beside its GPU?",
        help="Bind each process to the cores beside its GPU.",
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class _Paradigm:
    """Which engine trains."""

    use_deepspeed: bool = option(False, flag="--use_deepspeed", group=_PARADIGM, help="Train with DeepSpeed.")
    use_fsdp: bool = option(
        False, flag="--use_fsdp", group=_PARADIGM, help="Train with fully sharded data parallelism."
    )
    use_parallelism_config: bool = option(
        False,
        flag="--use_parallelism_config",
        group=_PARADIGM,
        help="Combine axes of parallelism, see the --parallelism_config options.",
    )
    use_megatron_lm: bool = option(
        False, flag="--use_megatron_lm", group=_PARADIGM, help="Train with Megatron-LM."
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class _Distributed:
    """How processes find each other, and how they are watched."""

    gpu_ids: str | None = option(
        None,
        flag="--gpu_ids",
        key="gpu_ids",
        group=_DISTRIBUTED,
        question="Which GPUs of this machine (numbers separated by commas, or all)?",
        help="GPUs of this machine to use: numbers separated by commas, or 'all'.",
        type=str,
    )
    same_network: bool = option(
        False,
        flag="--same_network",
        key="same_network",
        group=_DISTRIBUTED,
        question="Are all machines in one local network?",
        help="The machines are in one local network.",
    )
    machine_rank: int | None = option(
        None,
        flag="--machine_rank",
        key="machine_rank",
        group=_DISTRIBUTED,
        question="Which number has this machine (0: the one where the others meet)?",
        help="Number of this machine, from 0. Default: 0 where there is one machine.",
        type=int,
    )
    main_process_ip: str | None = option(
        None,
        flag="--main_process_ip",
        key="main_process_ip",
        group=_DISTRIBUTED,
        question="Address of machine 0, as the others reach it?",
        help="Address of the machine of rank 0.",
        type=str,
    )
    main_process_port: int | None = option(
        None,
        flag="--main_process_port",
        key="main_process_port",
        group=_DISTRIBUTED,
        question="Port on machine 0 at which they meet?",
        help="Port at which the processes meet. Default, and 0: on one machine a free one, on several 29500.",
        type=int,
    )
    tee: str = option(
        "0",
        flag=("-t", "--tee"),
        group=_DISTRIBUTED,
        help="Streams to print with a prefix per process and to keep in files: 0 none, 1 stdout, 2 stderr, "
        "3 both; or per local rank, as in 0:3,1:1.",
    )
    log_dir: str | None = option(
        None,
        flag="--log_dir",
        group=_DISTRIBUTED,
        help="Folder under which the output of every process is kept in files as well.",
        type=str,
    )
    role: str = option(
        "default", flag="--role", group=_DISTRIBUTED, help="Name of this group of processes (torch elastic)."
    )
    rdzv_backend: str = option(
        "static",
        flag="--rdzv_backend",
        key="rdzv_backend",
        group=_DISTRIBUTED,
        question="How do the machines find each other (static or c10d)?",
        help="How the machines of one launch find each other (torch elastic): static or c10d.",
    )
    rdzv_conf: str = option(
        "",
        flag="--rdzv_conf",
        group=_DISTRIBUTED,
        help="Further settings of that, as in timeout=60,read_timeout=30.",
    )
    max_restarts: int = option(
        0,
        flag="--max_restarts",
        group=_DISTRIBUTED,
        help="Times that all processes are started anew after one of them failed.",
    )
    monitor_interval: float = option(
        0.1,
        flag="--monitor_interval",
        group=_DISTRIBUTED,
        help="Seconds between two looks at the processes.",
    )
    slurm: str = option(
        None,
        flag="--slurm",
        group=_DISTRIBUTED,
        type=str,
        choices=("no", "srun", "node", "rank"),
        help="What this command is within a SLURM job. srun: it starts itself on every node of the job; "
        "node: it starts the processes of its node; rank: it is one of the processes; no: the job counts for "
        "nothing. Default: what the job's variables say, and no where machines were chosen by hand.",
    )
    srun_args: str | None = option(
        None,
        flag="--srun_args",
        group=_DISTRIBUTED,
        type=str,
        help="Further options of that srun, as in --srun_args='--gpus-per-task=4'. Default: all processors "
        "of each node.",
    )
    grace_period: float = option(
        10.0,
        flag="--grace_period",
        group=_DISTRIBUTED,
        help="Seconds that processes have to end, after a signal to the launch or after one of them failed, "
        "before they are killed.",
    )
    log_prefix: str = option(
        "auto",
        flag="--log_prefix",
        group=_DISTRIBUTED,
        choices=("auto", "always", "never"),
        help="Whether lines of processes begin with the number of their rank: auto does it on a terminal, "
        "where several processes share it.",
    )
    preflight: bool = option(
        False,
        flag="--preflight",
        group=_DISTRIBUTED,
        help="Before a run on several machines, check that they reach each other, have the same versions and "
        "can exchange data.",
    )


# The bases stand in reverse: dataclasses take the fields of the last one first.
@dataclass(frozen=True, kw_only=True)
class LaunchPlan(
    ParallelismLaunch,
    FP8Launch,
    MegatronLaunch,
    FSDPLaunch,
    DeepSpeedLaunch,
    PlatformLaunch,
    _Distributed,
    _Paradigm,
    DynamoLaunch,
    _Resources,
    _Script,
):
    """What will be launched and how.

    Attributes:
        sources: for each option, what decided it: a flag, the configuration file, the machine, or nothing
            but its default.
    """

    sources: Mapping[str, Source] = field(default_factory=dict, compare=False)

    @property
    def distributed(self) -> bool:
        """Whether several processes may take part, so that they need to find each other."""
        engine = self.use_deepspeed or self.use_fsdp or self.use_megatron_lm
        return self.multi_gpu or self.num_processes > 1 or self.num_machines > 1 or engine

    @property
    def engine(self) -> str | None:
        """The engine that trains, by name; None for plain torch."""
        return next((name for field_name, name in ENGINES.items() if getattr(self, field_name)), None)

    @property
    def reaches_machines(self) -> bool:
        """Whether one launch reaches all machines, so that none of them needs a number."""
        by_deepspeed = self.use_deepspeed and self.deepspeed_multinode_launcher not in ("standard", "nossh")
        by_deepspeed = by_deepspeed and self.slurm in (None, "no")
        return (
            self.mpirun_hostfile is not None
            or self.slurm == "srun"
            or (self.tpu and self.tpu_use_cluster)
            or (by_deepspeed and self.num_machines > 1)
        )

    @property
    def processes_per_machine(self) -> int:
        """The processes that this machine starts."""
        return self.num_processes // self.num_machines
