"""All that `accelerate launch` decided, as one frozen value. Made by plan.py, read by every launcher.

Each option is declared once: the parser, the help text and the plan come from here. The declared default
is what the parser leaves behind when nothing is typed; None means "decide from what the machine has", and
a resolved plan no longer holds None there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from accelerate.options.field import option

__all__ = ["LaunchPlan", "Source"]

Source = Literal["flag", "default", "detected"]

_HARDWARE = "Hardware Selection Arguments"
_RESOURCES = "Resource Selection Arguments"
_DISTRIBUTED = "Distributed GPUs"


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """What will be launched and how.

    Attributes:
        sources: for each option, whether a flag, the declared default or the machine decided it.
    """

    quiet: bool = option(
        None,
        flag=("-q", "--quiet"),
        help="Say nothing when the script fails: its own output and exit status remain.",
    )
    cpu: bool = option(False, flag="--cpu", group=_HARDWARE, help="Run on the CPU, whatever else is there.")
    multi_gpu: bool = option(
        False,
        flag="--multi_gpu",
        group=_HARDWARE,
        help="Run one process per GPU. This is also the default on a machine with several GPUs.",
    )
    mixed_precision: str = option(
        None,
        flag="--mixed_precision",
        group=_RESOURCES,
        choices=("no", "fp16", "bf16", "fp8"),
        help="Precision that the script's Accelerator uses unless it names one itself.",
    )
    num_processes: int = option(
        None,
        flag="--num_processes",
        group=_RESOURCES,
        help="Number of processes, over all machines. Default: one per GPU, or one where there is no GPU.",
    )
    num_machines: int = option(
        None, flag="--num_machines", group=_RESOURCES, help="Number of machines. Only 1 for now."
    )
    num_cpu_threads_per_process: int = option(
        None,
        flag="--num_cpu_threads_per_process",
        group=_RESOURCES,
        help="Threads per process (OMP_NUM_THREADS). Default: that variable; else, on the CPU, the cores "
        "shared out over the processes; else 1.",
    )
    gpu_ids: str | None = option(
        None,
        flag="--gpu_ids",
        group=_DISTRIBUTED,
        help="GPUs to use: numbers separated by commas, or 'all'.",
        type=str,
    )
    main_process_ip: str | None = option(
        None, flag="--main_process_ip", group=_DISTRIBUTED, help="Address of the machine of rank 0.", type=str
    )
    main_process_port: int | None = option(
        None,
        flag="--main_process_port",
        group=_DISTRIBUTED,
        help="Port at which the processes meet. Default, and 0: a free one.",
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
    module: bool = option(
        None, flag=("-m", "--module"), help="The script is the name of a module, as in `python -m`."
    )
    no_python: bool = option(None, flag="--no_python", help="The script is a program: no Python is started.")
    debug: bool = option(
        None,
        flag="--debug",
        help="Check the shapes of all collectives, and show what torch elastic logs.",
    )
    training_script: str = option(
        flag="training_script", help="The script to launch, with its path; or a module or program, see above."
    )
    training_script_args: tuple[str, ...] = option(
        flag="training_script_args", nargs="...", help="Everything after the script goes to the script."
    )
    sources: Mapping[str, Source] = field(default_factory=dict, compare=False)

    @property
    def distributed(self) -> bool:
        """Whether several processes may take part, so that they need to find each other."""
        return self.multi_gpu or self.num_processes > 1
