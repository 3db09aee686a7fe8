"""Several machines through DeepSpeed's own launcher (pdsh, Open MPI ...). Chosen by launching/select.py.

On one machine, and with `--deepspeed_multinode_launcher standard`, torch elastic starts the processes.
"""

import subprocess
from typing import ClassVar

from accelerate.launching.base import Launcher, exit_status
from accelerate.options.launch import LaunchPlan

__all__ = ["DeepSpeedLauncher"]


class DeepSpeedLauncher(Launcher):
    """Calls the program `deepspeed`, which reaches the other machines."""

    name: ClassVar[str] = "deepspeed"

    def accepts(self, plan: LaunchPlan) -> bool:
        """Return whether DeepSpeed is to reach several machines."""
        return plan.use_deepspeed and plan.num_machines > 1 and _launcher(plan) != "standard"

    def command(self, plan: LaunchPlan) -> list[str]:
        """Return the argument list of the call."""
        command = ["deepspeed"]
        if plan.deepspeed_hostfile is not None:
            command += ["--hostfile", plan.deepspeed_hostfile]
        if _launcher(plan) == "nossh":
            command += ["--node_rank", str(plan.machine_rank), "--no_ssh"]
        else:
            command += ["--no_local_rank", "--launcher", _launcher(plan)]
        command += self._machines(plan)
        if plan.main_process_ip is not None:
            command += ["--master_addr", plan.main_process_ip]
        command += ["--master_port", str(plan.main_process_port)]
        flags = ["--module"] if plan.module else ["--no_python"] if plan.no_python else []
        return [*command, *flags, plan.training_script, *plan.training_script_args]

    def _machines(self, plan: LaunchPlan) -> list[str]:
        """Return which machines of the list take part; without a filter, how many."""
        if plan.deepspeed_exclusion_filter is not None:
            return ["--exclude", plan.deepspeed_exclusion_filter]
        if plan.deepspeed_inclusion_filter is not None:
            return ["--include", plan.deepspeed_inclusion_filter]
        return ["--num_nodes", str(plan.num_machines), "--num_gpus", str(plan.processes_per_machine)]

    def run(self, plan: LaunchPlan) -> int:
        """Call DeepSpeed's launcher and return its exit status."""
        ended = subprocess.run(self.command(plan), env=self.full_environ(plan), check=False)
        return exit_status(ended.returncode)


def _launcher(plan: LaunchPlan) -> str:
    return plan.deepspeed_multinode_launcher or "pdsh"
