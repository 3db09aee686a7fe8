"""TPUs: the call that reaches the machines of a pod, and the start of processes on one machine.

Chosen by launching/select.py, and called by commands/launch.py. What needs torch_xla imports it when it runs.
"""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from accelerate.compat import env
from accelerate.errors import ConfigurationError, MissingPackageError
from accelerate.launching.base import Launcher
from accelerate.launching.child import run_child
from accelerate.launching.command import tpu_environment
from accelerate.launching.forked import PrepareForLaunch
from accelerate.options.launch import LaunchPlan

__all__ = ["TpuLauncher", "TpuPodLauncher", "main_function", "pod_command", "run_processes"]

_NO_POD = "--tpu_cluster: no pod is named; write tpu_name and tpu_zone into the configuration file"
_NO_XLA = "TPUs need torch_xla, which is not installed: pip install torch_xla"


class TpuLauncher(Launcher):
    """Calls a function of the script in one process per TPU core of this machine."""

    name: ClassVar[str] = "tpu"

    def accepts(self, plan: LaunchPlan) -> bool:
        """Return whether the plan is about the TPUs of this machine."""
        return plan.tpu and not plan.tpu_use_cluster

    def problems(self, plan: LaunchPlan) -> list[str]:
        """Return also whether torch_xla is missing, or the script is none that can be imported."""
        found = super().problems(plan)
        if importlib.util.find_spec("torch_xla") is None:
            found.append(f"--tpu: {_NO_XLA}")
        if plan.module or plan.no_python or not plan.training_script.endswith(".py"):
            found.append(
                f"--tpu with {plan.training_script}: a function of the script is called in each process, so "
                "it must be a file whose name ends in .py, without -m and --no_python"
            )
        return found

    def run(self, plan: LaunchPlan) -> int:
        """Run all processes and return 0; what one of them raises, torch_xla raises here.

        For the time of the run the environment of this process is that of the processes.
        """
        environ = self.full_environ(plan)
        with env.clear_environment():
            env.put(environ)
            run_processes(plan)
        return 0


class TpuPodLauncher(Launcher):
    """Runs the launch on every machine of a TPU pod."""

    name: ClassVar[str] = "tpu pod"

    def accepts(self, plan: LaunchPlan) -> bool:
        """Return whether the plan is about a pod."""
        return plan.tpu and plan.tpu_use_cluster

    def problems(self, plan: LaunchPlan) -> list[str]:
        """Return also whether torch_xla or the name of the pod is missing. The script may be there only."""
        found = [] if importlib.util.find_spec("torch_xla") is not None else [f"--tpu_cluster: {_NO_XLA}"]
        return found if plan.tpu_name else [*found, _NO_POD]

    def command(self, plan: LaunchPlan) -> list[str]:
        """Return the call that reaches the machines."""
        return pod_command(plan)

    def environ(self, plan: LaunchPlan) -> dict[str, str]:
        """Return nothing: what the machines of the pod get stands in the command."""
        return {}

    def run(self, plan: LaunchPlan) -> int:
        """Reach all machines and return the exit status of the call."""
        return run_child(self.command(plan), self.full_environ(plan))


def pod_command(plan: LaunchPlan) -> list[str]:
    """Return the call that runs the launch on every machine of a pod. Pure.

    Raises:
        ConfigurationError: the plan names no pod.
    """
    if not plan.tpu_name:
        raise ConfigurationError(_NO_POD)
    reach = [sys.executable, "-m", "torch_xla.distributed.xla_dist", "--tpu", plan.tpu_name]
    reach += [word for name in plan.vm or () for word in ("--vm", name)]
    variables = {**tpu_environment(plan), "ACCELERATE_IN_TPU_POD": "1"}
    assignments = [*(plan.env or ()), *(f"{name}={text}" for name, text in sorted(variables.items()))]
    reach += [word for text in assignments for word in ("--env", text)]
    inner = ["accelerate", "launch", "--tpu", "--no_tpu_cluster", "--num_machines", "1"]
    inner += ["--mixed_precision", plan.mixed_precision, "--num_processes", str(plan.num_processes)]
    inner += ["--main_training_function", plan.main_training_function or "main"]
    sudo = ["sudo"] if plan.tpu_use_sudo else []
    return [*reach, "--", *sudo, *inner, plan.training_script, *plan.training_script_args]


def main_function(plan: LaunchPlan) -> Callable[..., Any]:
    """Import the script and return the function that each process is to call.

    Raises:
        ConfigurationError: the script has no such function.
    """
    script = Path(plan.training_script)
    spec = importlib.util.spec_from_file_location(script.stem, script)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{script}: this is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Processes that are made by pickling find the function again under this name.
    sys.modules[script.stem] = module
    spec.loader.exec_module(module)
    name = plan.main_training_function or "main"
    function: Callable[..., Any] | None = getattr(module, name, None)
    if function is None:
        raise ConfigurationError(
            f"--main_training_function {name}: {script} has no such function; name the one to call"
        )
    return function


def run_processes(plan: LaunchPlan) -> None:
    """Call the function of the script in one process per TPU core of this machine, and wait for all.

    Raises:
        MissingPackageError: torch_xla is not installed.
    """
    try:
        from torch_xla.distributed import xla_multiprocessing  # type: ignore[import-not-found]
    except ImportError as error:
        raise MissingPackageError(_NO_XLA) from error
    sys.argv = [plan.training_script, *plan.training_script_args]
    # torch_xla starts a process per core, or one; it takes no other number.
    number = 1 if plan.num_processes == 1 else None
    xla_multiprocessing.spawn(PrepareForLaunch(main_function(plan)), args=(), nprocs=number)
