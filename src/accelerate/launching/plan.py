"""From what was typed and what the machine has to a LaunchPlan. Pure; called by commands/launch.py.

Precedence: flag > what the machine has > declared default. The caller's environment decides nothing, so
that a launch inside a launch does what it says; only OMP_NUM_THREADS, which is about the machine, counts.
"""

import re
from collections.abc import Mapping
from typing import Any

from accelerate.errors import ConfigurationError
from accelerate.launching.machine import Machine
from accelerate.options.field import options
from accelerate.options.launch import LaunchPlan, Source

__all__ = ["resolve"]


def resolve(typed: Mapping[str, Any], machine: Machine, environ: Mapping[str, str]) -> LaunchPlan:
    """Decide every value of a launch.

    Args:
        typed: option name -> value, for the options that the user really passed.
        machine: what there is to run on.
        environ: the environment of the caller, asked for OMP_NUM_THREADS only.

    Returns:
        A plan without open ends: num_processes, num_machines, threads, precision are set.

    Raises:
        ConfigurationError: flags contradict each other or ask for what the machine has not.
    """
    _check_flags(typed)
    detected = _hardware(typed, machine)
    detected.update(_defaults(typed))
    on_cpu = bool(typed.get("cpu")) or detected.get("cpu", False) or machine.gpus == 0
    processes = detected.get("num_processes", typed.get("num_processes"))
    if typed.get("num_cpu_threads_per_process") is None:
        detected["num_cpu_threads_per_process"] = _threads(environ, machine, processes if on_cpu else None)
    declared = {info.name for info in options(LaunchPlan)}
    values = {name: value for name, value in typed.items() if name in declared} | detected
    values["training_script_args"] = tuple(typed.get("training_script_args") or ())
    sources: dict[str, Source] = dict.fromkeys(declared, "default")
    sources.update(dict.fromkeys(typed.keys() & declared, "flag"))
    sources.update(dict.fromkeys(detected, "detected"))
    # What has one sensible value whatever the machine is a default, not a finding.
    sources.update(dict.fromkeys(_defaults(typed), "default"))
    return LaunchPlan(**values, sources=sources)


def _defaults(typed: Mapping[str, Any]) -> dict[str, Any]:
    wanted = {"mixed_precision": "no", "num_machines": 1}
    return {name: value for name, value in wanted.items() if typed.get(name) is None}


def _check_flags(typed: Mapping[str, Any]) -> None:
    """Refuse values that are wrong on any machine."""
    if typed.get("cpu") and typed.get("multi_gpu"):
        raise ConfigurationError("--cpu and --multi_gpu exclude each other: pass one of them")
    if typed.get("module") and typed.get("no_python"):
        raise ConfigurationError(
            "-m/--module and --no_python exclude each other: -m runs a Python module, --no_python a program"
        )
    machines = typed.get("num_machines")
    if machines is not None and machines != 1:
        raise ConfigurationError(
            f"--num_machines {machines}: only one machine is supported so far; start `torchrun --nnodes "
            f"{machines}` on each machine instead"
        )
    for name in ("num_processes", "num_cpu_threads_per_process"):
        _at_least(typed, name, 1)
    _at_least(typed, "max_restarts", 0)
    interval = typed.get("monitor_interval")
    if interval is not None and not interval > 0:
        raise ConfigurationError(f"--monitor_interval {interval}: give a number of seconds greater than 0")
    port = typed.get("main_process_port")
    if port is not None and not 0 <= port <= 65535:
        raise ConfigurationError(
            f"--main_process_port {port}: give a port from 1 to 65535, or 0 for a free one"
        )
    tee = typed.get("tee")
    if tee is not None and not re.fullmatch(r"[0-3]|(\d+:[0-3],)*\d+:[0-3]", tee):
        raise ConfigurationError(
            f"--tee {tee}: give 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or one per local rank: 0:3,1:1"
        )


def _at_least(typed: Mapping[str, Any], name: str, least: int) -> None:
    value = typed.get(name)
    if value is not None and value < least:
        raise ConfigurationError(f"--{name} {value}: give a whole number of at least {least}")


def _hardware(typed: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """Return what follows from the machine for num_processes, multi_gpu and cpu."""
    asked: int | None = typed.get("num_processes")
    if typed.get("cpu"):
        return {} if asked else {"num_processes": 1}
    gpus = _usable_gpus(typed.get("gpu_ids"), machine)
    if typed.get("multi_gpu") and gpus == 0:
        raise ConfigurationError(
            f"--multi_gpu: this machine has no GPU to use ({machine.evidence}); pass --cpu to run on the CPU"
        )
    if asked is not None and 0 < gpus < asked:
        raise ConfigurationError(
            f"--num_processes {asked}: one process per GPU, and {gpus} can be used ({machine.evidence}); "
            f"pass --num_processes {gpus}, or --cpu to run on the CPU"
        )
    processes = asked or max(1, gpus)
    detected: dict[str, Any] = {} if asked else {"num_processes": processes}
    if processes > 1 and not typed.get("multi_gpu"):
        detected["multi_gpu" if gpus else "cpu"] = True
    return detected


def _usable_gpus(gpu_ids: str | None, machine: Machine) -> int:
    """Return how many GPUs the processes will see."""
    if gpu_ids is None or gpu_ids == "all":
        return machine.gpus
    ids = [item.strip() for item in gpu_ids.split(",")]
    missing = [item for item in ids if not item or (item.isdigit() and int(item) >= machine.installed_gpus)]
    if missing or len(set(ids)) < len(ids):
        raise ConfigurationError(
            f"--gpu_ids {gpu_ids}: give different numbers separated by commas, or 'all'; this machine has "
            f"{machine.installed_gpus} GPU(s) ({machine.evidence})"
        )
    return len(ids)


def _threads(environ: Mapping[str, str], machine: Machine, cpu_processes: int | None) -> int:
    """Return the threads of each process; `cpu_processes` is None when GPUs do the work."""
    text = environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if text.isdigit() and int(text) > 0:
        return int(text)
    return 1 if cpu_processes is None else max(1, machine.cores // cpu_processes)
