"""The interface's functions that turn launch arguments into commands and environments. For users and clients.

Thin: each resolves the arguments as `accelerate launch` does, without a configuration file, and asks the
launcher for its plan. Nothing is started.
"""

import argparse
import contextlib
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from accelerate.commands.utils import typed_options
from accelerate.compat import env
from accelerate.launching.command import fp8_environment, parallelism_environment, tpu_environment
from accelerate.launching.deepspeed import DeepSpeedLauncher
from accelerate.launching.elastic import ElasticLauncher
from accelerate.launching.forked import PrepareForLaunch
from accelerate.launching.machine import look
from accelerate.launching.plan import resolve
from accelerate.launching.sagemaker import plan_job
from accelerate.launching.simple import SimpleLauncher
from accelerate.options.field import options
from accelerate.options.launch import LaunchPlan

if TYPE_CHECKING:
    from accelerate.commands.config.config_args import SageMakerConfig

__all__ = [
    "PrepareForLaunch",
    "env_var_path_add",
    "prepare_deepspeed_cmd_env",
    "prepare_extend_env_parallelism_config",
    "prepare_multi_gpu_env",
    "prepare_sagemager_args_inputs",
    "prepare_simple_launcher_cmd_env",
    "prepare_tpu",
    "setup_fp8_env",
]


def prepare_simple_launcher_cmd_env(args: argparse.Namespace) -> tuple[list[str], dict[str, str]]:
    """Return the argument list and the whole environment of a launch of one process.

    Args:
        args: what `launch_command_parser().parse_args()` gave.

    Raises:
        ConfigurationError: the arguments contradict each other; all of that is listed.
    """
    plan, launcher = _plan(args), SimpleLauncher()
    return launcher.command(plan), launcher.full_environ(plan)


def prepare_multi_gpu_env(args: argparse.Namespace) -> dict[str, str]:
    """Return the environment of the ranks, and write onto `args` what torch's launcher calls it.

    Args:
        args: what `launch_command_parser().parse_args()` gave; `nproc_per_node`, and `master_port` or
            `nnodes`, `node_rank` and `rdzv_endpoint` are set on it.

    Raises:
        ConfigurationError: the arguments contradict each other; all of that is listed.
    """
    plan = _plan(args)
    _name_for_torch(args, plan)
    return ElasticLauncher().full_environ(plan)


def prepare_deepspeed_cmd_env(args: argparse.Namespace) -> tuple[list[str] | None, dict[str, str]]:
    """Return the call of DeepSpeed's launcher and the environment of a launch with DeepSpeed.

    Args:
        args: what `launch_command_parser().parse_args()` gave.

    Returns:
        The argument list is None where torch elastic starts the processes; `args` then is changed as by
        `prepare_multi_gpu_env`.

    Raises:
        ConfigurationError: the arguments contradict each other; all of that is listed.
    """
    plan, launcher = _plan(args), DeepSpeedLauncher()
    if launcher.accepts(plan):
        return launcher.command(plan), launcher.full_environ(plan)
    _name_for_torch(args, plan)
    return None, ElasticLauncher().full_environ(plan)


def prepare_tpu(
    args: argparse.Namespace, current_env: dict[str, str], pod: bool = False
) -> tuple[argparse.Namespace, dict[str, str]]:
    """Return arguments and environment of a launch on TPUs.

    Args:
        args: what `launch_command_parser().parse_args()` gave; for a pod, `tpu` and `vm` are set on it.
        current_env: the environment so far, which is extended.
        pod: whether several machines are reached.
    """
    current_env.update(tpu_environment(_plan(args)))
    if pod:
        args.vm = getattr(args, "tpu_vm", None) or args.vm
        args.tpu = getattr(args, "tpu_name", None)
    return args, current_env


def prepare_sagemager_args_inputs(
    sagemaker_config: "SageMakerConfig", args: argparse.Namespace
) -> tuple[dict[str, Any], dict[str, str] | None]:
    """Return the arguments of SageMaker's estimator and its inputs. Nothing on AWS is touched.

    Args:
        sagemaker_config: machine type, role, versions.
        args: what `launch_command_parser().parse_args()` gave.

    Raises:
        ConfigurationError: what SageMaker needs is missing; all of that is listed.
    """
    job = plan_job(sagemaker_config.to_dict(), _plan(args))
    return job.estimator, job.inputs


def setup_fp8_env(args: argparse.Namespace, current_env: dict[str, str]) -> dict[str, str]:
    """Return `current_env`, extended by the variables about fp8.

    Args:
        args: what `launch_command_parser().parse_args()` gave.
        current_env: the environment so far.
    """
    current_env.update(fp8_environment(_plan(args)))
    return current_env


def prepare_extend_env_parallelism_config(
    args: argparse.Namespace, current_env: dict[str, str]
) -> dict[str, str]:
    """Return `current_env`, extended by the variables about axes of parallelism.

    Args:
        args: what `launch_command_parser().parse_args()` gave.
        current_env: the environment so far.
    """
    current_env.update(parallelism_environment(_plan(args)))
    return current_env


def env_var_path_add(env_var_name: str, path_to_add: str) -> str:
    """Return what a variable with a list of folders holds, and one more folder. Nothing is written.

    Args:
        env_var_name: the variable, as PYTHONPATH.
        path_to_add: the folder.
    """
    return ":".join([path for path in (env.get(env_var_name) or "").split(":") if path] + [str(path_to_add)])


def _filter_args(
    args: argparse.Namespace, parser: argparse.ArgumentParser, default_args: Sequence[str] = ()
) -> argparse.Namespace:
    """Return the part of `args` that another parser knows, on top of what it makes of `default_args`."""
    with contextlib.redirect_stderr(io.StringIO()):
        known, _ = parser.parse_known_args(list(default_args))
    for name in vars(known):
        if hasattr(args, name):
            setattr(known, name, getattr(args, name))
    return known


def _plan(args: argparse.Namespace) -> LaunchPlan:
    environ = env.snapshot()
    return resolve(typed_options(args, options(LaunchPlan)), look(environ), environ).checked()


def _name_for_torch(args: argparse.Namespace, plan: LaunchPlan) -> None:
    args.nproc_per_node = str(plan.processes_per_machine)
    args.main_process_port = plan.main_process_port
    if plan.module is not None:
        args.module = plan.module
    if plan.num_machines == 1:
        args.master_port = str(plan.main_process_port or 0)
        return
    args.nnodes, args.node_rank = str(plan.num_machines), plan.machine_rank
    if plan.same_network:
        args.master_addr, args.master_port = str(plan.main_process_ip), str(plan.main_process_port)
    else:
        args.rdzv_endpoint = f"{plan.main_process_ip}:{plan.main_process_port}"
