"""What speaks against a plan, all of it at once; nothing is started or changed here. Called by plan.py."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from accelerate.launching.machine import Machine
from accelerate.options.config_file import ConfigFile
from accelerate.options.config_values import allowed
from accelerate.options.field import options
from accelerate.options.launch import ENGINES, LaunchPlan, Source
from accelerate.options.launch_deepspeed import DeepSpeedLaunch
from accelerate.options.launch_fsdp import FSDPLaunch
from accelerate.options.launch_megatron import MegatronLaunch
from accelerate.options.launch_parallel import FP8Launch, ParallelismLaunch
from accelerate.options.launch_platforms import PlatformLaunch

__all__ = ["Given", "find_problems", "find_warnings", "is_effective", "usable_gpus"]


class Given:
    """What the user said, on the command line and in the file, and where.

    Attributes:
        typed: option name -> value, from the command line.
        file: the configuration file.
    """

    def __init__(self, typed: Mapping[str, Any], file: ConfigFile) -> None:
        self.typed = {name: value for name, value in typed.items() if value is not None}
        self.file = file

    def get(self, name: str) -> tuple[Any, Source | None]:
        """Return the value of an option and where it was said; None where it was not."""
        source = self.source(name)
        if source is None:
            return None, None
        return (self.typed if source == "flag" else self.file.values)[name], source

    def source(self, name: str) -> Source | None:
        """Return where an option was said."""
        if name in self.typed:
            return "flag"
        return "file" if name in self.file.values else None

    def spell(self, name: str) -> str:
        """Return an option and its value as the user wrote it, or its flag where nobody wrote it."""
        value, source = self.get(name)
        if source == "file":
            shown = str(value).lower() if isinstance(value, bool) else value
            return f"{self.file.keys[name]}: {shown} in {self.file.path}"
        flag = _flag(name)
        return flag if source is None or isinstance(value, bool) else f"{flag} {value}"


def usable_gpus(gpu_ids: str | None, machine: Machine) -> int:
    """Return how many GPUs the processes will see."""
    if gpu_ids is None or gpu_ids == "all":
        return machine.gpus
    return len(_gpu_numbers(gpu_ids))


def find_problems(plan: LaunchPlan, given: Given, machine: Machine) -> list[str]:
    """Return every contradiction, in itself or with the machine, as a line that says the way out."""
    # A job on SageMaker has nothing to do with the devices and addresses of this machine.
    checks = (_values, _exclusive) if given.file.on_sagemaker else _CHECKS
    return [problem for check in checks for problem in check(plan, given, machine)]


def find_warnings(plan: LaunchPlan, given: Given) -> list[str]:
    """Return what was asked for and has no effect."""
    warnings = []
    for active, group, how in _ENGINE_OPTIONS:
        said = [info.name for info in options(group) if given.source(info.name) is not None]
        typed = [name for name in said if given.source(name) == "flag"]
        if active(plan):
            continue
        if typed:
            warnings.append(f"{', '.join(map(_flag, typed))}: no effect without {how}")
        elif said:
            keys = sorted({given.file.keys[name].partition(".")[0] for name in said})
            warnings.append(f"{', '.join(keys)} in {given.file.path}: no effect without {how}")
    return [*warnings, *_idle_flags(plan, given)]


def _idle_flags(plan: LaunchPlan, given: Given) -> Iterator[str]:
    """Flags that another launcher than the one of this plan would read."""
    if given.source("mpirun_kind") == "flag" and plan.mpirun_hostfile is None:
        yield "--mpirun_kind: no effect without --mpirun_hostfile"
    if given.source("srun_args") == "flag" and plan.slurm != "srun":
        yield "--srun_args: no effect where this command calls no srun (--slurm)"
    others = {
        "mpirun starts": plan.mpirun_hostfile is not None,
        "srun has started": plan.slurm == "rank",
        "torch_xla starts": plan.tpu,
    }
    typed = [_flag(name) for name in _OF_ELASTIC if given.source(name) == "flag"]
    starter = next((words for words, is_so in others.items() if is_so), None)
    if starter is not None and typed:
        yield f"{', '.join(typed)}: no effect, since {starter} the processes"


# What torch elastic reads, which watches the processes that it has started.
_OF_ELASTIC = ("tee", "log_dir", "role", "rdzv_backend", "rdzv_conf", "max_restarts", "monitor_interval")


# Whether a group of options has an effect, the group, and what gives it one.
_ENGINE_OPTIONS: tuple[tuple[Callable[[LaunchPlan], bool], type, str], ...] = (
    (lambda plan: plan.use_fsdp, FSDPLaunch, "--use_fsdp"),
    (lambda plan: plan.use_deepspeed, DeepSpeedLaunch, "--use_deepspeed"),
    (lambda plan: plan.use_megatron_lm, MegatronLaunch, "--use_megatron_lm"),
    (lambda plan: plan.mixed_precision == "fp8", FP8Launch, "--mixed_precision fp8"),
    (lambda plan: plan.use_parallelism_config, ParallelismLaunch, "--use_parallelism_config"),
)


def is_effective(plan: LaunchPlan, name: str) -> bool:
    """Return whether an option can change anything in this launch."""
    for active, group, _ in _ENGINE_OPTIONS:
        if name in _names(group):
            return active(plan)
    if name in _MPI:
        return plan.mpirun_hostfile is not None
    return plan.tpu or name not in _names(PlatformLaunch)


_MPI = frozenset({"mpirun_hostfile", "mpirun_kind"})


def _names(group: type) -> frozenset[str]:
    return frozenset(info.name for info in options(group))


def _flag(name: str) -> str:
    info = next(info for info in options(LaunchPlan) if info.name == name)
    longest = [flag for flag in info.flags if flag.startswith("--")]
    return longest[0] if longest else info.key or name


def _values(plan: LaunchPlan, given: Given, machine: Machine) -> Iterator[str]:
    """Each value on its own: is it one that is allowed?"""
    for info in options(LaunchPlan):
        value, source = given.get(info.name)
        if source == "flag" and info.values is not None and value is not None:
            try:
                allowed(info, value)
            except ValueError as error:
                yield f"{given.spell(info.name)}: {error}"
    if len(plan.fp8_override_linear_precision) != 3:
        yield f"{given.spell('fp8_override_linear_precision')}: give three truth values separated by commas"
    yield from _numbers(plan, given)
    port = plan.main_process_port
    if port is not None and not 0 <= port <= 65535:
        yield f"{given.spell('main_process_port')}: give a port from 1 to 65535, or 0 for a free one"
    if not re.fullmatch(r"[0-3]|(\d+:[0-3],)*\d+:[0-3]", plan.tee):
        yield (
            f"--tee {plan.tee}: give 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or one per local rank: "
            "0:3,1:1"
        )


_LEAST = {
    "num_processes": 1,
    "num_machines": 1,
    "num_cpu_threads_per_process": 1,
    "machine_rank": 0,
    "max_restarts": 0,
    "fsdp_min_num_params": 0,
    "gradient_accumulation_steps": 1,
    "megatron_lm_tp_degree": 1,
    "megatron_lm_pp_degree": 1,
    "parallelism_config_dp_replicate_size": 1,
    "parallelism_config_dp_shard_size": 1,
    "parallelism_config_tp_size": 1,
    "parallelism_config_cp_size": 1,
    "parallelism_config_sp_size": 1,
}


def _numbers(plan: LaunchPlan, given: Given) -> Iterator[str]:
    for name, least in _LEAST.items():
        value = getattr(plan, name)
        if given.source(name) is not None and value is not None and value < least:
            yield f"{given.spell(name)}: give a whole number of at least {least}"
    if not plan.monitor_interval > 0:
        yield f"--monitor_interval {plan.monitor_interval}: give a number of seconds greater than 0"
    if not plan.grace_period >= 0:
        yield f"--grace_period {plan.grace_period}: give a number of seconds, 0 to kill at once"


def _exclusive(plan: LaunchPlan, given: Given, machine: Machine) -> Iterator[str]:
    """What cannot both be."""
    if plan.cpu and plan.multi_gpu:
        yield f"{given.spell('cpu')} and {given.spell('multi_gpu')} exclude each other: pass one of them"
    if plan.module and plan.no_python:
        yield "-m/--module and --no_python exclude each other: -m runs a Python module, --no_python a program"
    engines = [name for name in ENGINES if getattr(plan, name)]
    if len(engines) > 1:
        flags = " and ".join(_flag(name) for name in engines)
        yield f"{flags} exclude each other: one engine trains; pass one of them"
    has_axes = plan.use_deepspeed or (plan.use_fsdp and plan.fsdp_version == "2")
    if plan.use_parallelism_config and not has_axes:
        yield (
            f"{_parallelism(given)} needs --use_fsdp with --fsdp_version 2, or --use_deepspeed: pass one of "
            "them"
        )


def _parallelism(given: Given) -> str:
    if given.source("use_parallelism_config") == "flag":
        return "--use_parallelism_config"
    return f"parallelism_config in {given.file.path}"


def _machines(plan: LaunchPlan, given: Given, machine: Machine) -> Iterator[str]:
    """Several machines: each has a number, and all know where to meet."""
    if plan.num_machines < 1:
        return
    if plan.machine_rank is not None and plan.machine_rank >= plan.num_machines:
        yield (
            f"{given.spell('machine_rank')}: machines are numbered from 0, and there are "
            f"{plan.num_machines}: give a number below {plan.num_machines} or a larger --num_machines"
        )
    if plan.num_machines == 1:
        return
    if not plan.reaches_machines:
        yield from _places(plan, given, machine)
    if plan.num_processes % plan.num_machines and plan.slurm != "rank":
        yield (
            f"{given.spell('num_processes')}: this is the number over all machines, and {plan.num_machines} "
            f"machines cannot share it evenly: give a multiple of {plan.num_machines}"
        )


def _places(plan: LaunchPlan, given: Given, machine: Machine) -> Iterator[str]:
    """This machine's number, and where it meets the others."""
    asked = given.spell("num_machines")
    if plan.machine_rank is None and plan.rdzv_backend == "static":
        yield f"{asked}: pass --machine_rank too, 0 on one machine and up to {plan.num_machines - 1}"
    if plan.main_process_ip is None:
        yield f"{asked}: pass --main_process_ip too, the address of the machine with --machine_rank 0"
    port = plan.main_process_port
    if plan.machine_rank == 0 and port and 0 < port <= 65535 and machine.port_in_use(port):
        yield (
            f"--main_process_port {port} is in use on this machine, probably by another launch: pass a free "
            "one, the same on every machine"
        )


def _devices(plan: LaunchPlan, given: Given, machine: Machine) -> Iterator[str]:
    """Is there a device for every process?"""
    # On a node of a job that is not this one, and where srun deals GPUs out, this process sees no others.
    if plan.cpu or plan.tpu or plan.slurm in ("srun", "rank") or _is_uncounted(given):
        return
    if plan.gpu_ids not in (None, "all") and not _all_there(plan.gpu_ids or "", machine):
        yield (
            f"{given.spell('gpu_ids')}: give different numbers separated by commas, or 'all'; this machine "
            f"has {machine.installed_gpus} GPU(s) ({machine.evidence})"
        )
        return
    gpus = usable_gpus(plan.gpu_ids, machine)
    if plan.multi_gpu and gpus == 0:
        asked = _paradigm(plan, given)
        yield f"{asked}: this machine has no GPU to use ({machine.evidence}); pass --cpu to run on the CPU"
    per_machine = max(1, plan.num_processes // max(1, plan.num_machines))
    if 0 < gpus < per_machine:
        several = plan.num_machines > 1
        yield (
            f"{given.spell('num_processes')}: one process per GPU, and {gpus} can be used "
            f"{'on each machine ' if several else ''}({machine.evidence}); pass --num_processes "
            f"{gpus * plan.num_machines}, or --cpu to run on the CPU"
        )


def _is_uncounted(given: Given) -> bool:
    """Return whether the file names accelerators that are not counted here: those of other vendors."""
    kind = given.file.distributed_type or ""
    return kind.startswith("MULTI_") and kind not in ("MULTI_GPU", "MULTI_CPU")


def _paradigm(plan: LaunchPlan, given: Given) -> str:
    if plan.sources.get("multi_gpu") == "file":
        return f"distributed_type: {given.file.distributed_type} in {given.file.path}"
    return "--multi_gpu"


def _gpu_numbers(gpu_ids: str) -> list[str]:
    return [item.strip() for item in gpu_ids.split(",")]


def _all_there(gpu_ids: str, machine: Machine) -> bool:
    ids = _gpu_numbers(gpu_ids)
    missing = [item for item in ids if not item or (item.isdigit() and int(item) >= machine.installed_gpus)]
    return not missing and len(set(ids)) == len(ids)


_Check = Callable[[LaunchPlan, Given, Machine], Iterator[str]]
_CHECKS: tuple[_Check, ...] = (_values, _exclusive, _machines, _devices)
