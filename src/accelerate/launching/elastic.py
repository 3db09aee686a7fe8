"""Several processes, on one machine or several, on torch elastic. Chosen by select.py; loads without torch.

What needs torch is in launching/agent.py, which `run` imports: planning, `--help` and refusals stay fast.
"""

import sys
from typing import ClassVar

from accelerate.compat import env
from accelerate.errors import ConfigurationError
from accelerate.launching.base import Launcher
from accelerate.launching.command import script_command
from accelerate.launching.machines import meeting_settings
from accelerate.launching.network import interface_towards, is_here
from accelerate.options.launch import LaunchPlan

__all__ = ["ElasticLauncher"]

_BACKENDS = ("static", "c10d")
_GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"


class ElasticLauncher(Launcher):
    """Starts one process per rank, watches them and ends all when one fails."""

    name: ClassVar[str] = "elastic"

    def accepts(self, plan: LaunchPlan) -> bool:
        """Return whether the plan is about ranks that need to find each other."""
        return plan.distributed

    def problems(self, plan: LaunchPlan) -> list[str]:
        """Return what is wrong with the script, or with the address at which rank 0 is to listen."""
        found = super().problems(plan)
        if plan.num_machines == 1 and plan.main_process_ip is not None and not is_here(plan.main_process_ip):
            found.append(
                f"--main_process_ip {plan.main_process_ip}: with one machine this must be an address of this "
                "machine; leave it out"
            )
        if plan.rdzv_backend not in _BACKENDS:
            found.append(
                f"--rdzv_backend {plan.rdzv_backend}: machines meet by {' or '.join(_BACKENDS)}; with static "
                "each has a --machine_rank, with c10d it may be left out"
            )
        try:
            meeting_settings(plan)
        except ConfigurationError as error:
            found.append(str(error))
        return found

    def command(self, plan: LaunchPlan) -> list[str]:
        """Return the argument list of a rank. Python does not buffer: nothing is lost when a rank dies."""
        return script_command(plan, [sys.executable, "-u"])

    def environ(self, plan: LaunchPlan) -> dict[str, str]:
        """Return the common variables; those of a single rank come from torch elastic."""
        variables = super().environ(plan)
        return variables | {"ACCELERATE_USE_CPU": "True"} if plan.cpu else variables

    def local_environ(self, plan: LaunchPlan) -> dict[str, str]:
        """Return also the network interface towards the other machines, by which gloo is to reach them, and
        what keeps NCCL off links that GPUs of the RTX 40 series only claim to have.
        """
        from accelerate.compat.system import check_cuda_p2p_ib_support

        variables = super().local_environ(plan) | _interface(plan)
        if plan.cpu or check_cuda_p2p_ib_support():
            return variables
        wanted = {"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1"}
        return variables | {name: text for name, text in wanted.items() if env.get(name) is None}

    def run(self, plan: LaunchPlan) -> int:
        """Run all ranks and return the exit status of the one that failed first, or 0.

        For the time of the run the environment of this process is that of the ranks, and from the main
        thread signals that ask to end are answered: every rank ends before this returns.
        """
        environ = self.full_environ(plan)
        with env.patch_environment(TORCH_CPP_LOG_LEVEL="ERROR"):
            # Read once, at import: what the store in this process has to say is told by us in words.
            from accelerate.launching.agent import run_ranks
        with env.clear_environment():
            env.put(environ)
            return run_ranks(plan, self.command(plan))


def _interface(plan: LaunchPlan) -> dict[str, str]:
    """Return the interface for gloo, which would take the one that this machine's own name leads to."""
    if plan.num_machines == 1 or plan.main_process_ip is None or env.get(_GLOO_INTERFACE) is not None:
        return {}
    name = interface_towards(plan.main_process_ip)
    return {} if name is None else {_GLOO_INTERFACE: name}
