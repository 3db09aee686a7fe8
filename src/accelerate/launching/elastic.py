"""Several processes on this machine, on torch elastic. Chosen by launching/select.py; loads without torch.

What needs torch is in launching/agent.py, which `run` imports: planning, `--help` and refusals stay fast.
"""

import ipaddress
import socket
import sys
from typing import ClassVar

from accelerate.compat import env
from accelerate.launching.base import Launcher
from accelerate.launching.command import script_command
from accelerate.options.launch import LaunchPlan

__all__ = ["ElasticLauncher"]


class ElasticLauncher(Launcher):
    """Starts one process per rank, watches them and ends all when one fails."""

    name: ClassVar[str] = "elastic"

    def accepts(self, plan: LaunchPlan) -> bool:
        """Return whether the plan is about ranks that need to find each other."""
        return plan.distributed

    def problems(self, plan: LaunchPlan) -> list[str]:
        """Return what is wrong with the script, or with the address at which rank 0 is to listen."""
        found = super().problems(plan)
        if plan.num_machines == 1 and plan.main_process_ip is not None and not _is_here(plan.main_process_ip):
            found.append(
                f"--main_process_ip {plan.main_process_ip}: with one machine this must be an address of this "
                "machine; leave it out"
            )
        return found

    def command(self, plan: LaunchPlan) -> list[str]:
        """Return the argument list of a rank. Python does not buffer: nothing is lost when a rank dies."""
        return script_command(plan, [sys.executable, "-u"])

    def environ(self, plan: LaunchPlan) -> dict[str, str]:
        """Return the common variables; those of a single rank come from torch elastic."""
        variables = super().environ(plan)
        return variables | {"ACCELERATE_USE_CPU": "True"} if plan.cpu else variables

    def local_environ(self, plan: LaunchPlan) -> dict[str, str]:
        """Return also what keeps NCCL off links that GPUs of the RTX 40 series only claim to have."""
        from accelerate.compat.system import check_cuda_p2p_ib_support

        variables = super().local_environ(plan)
        if plan.cpu or check_cuda_p2p_ib_support():
            return variables
        wanted = {"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1"}
        return variables | {name: text for name, text in wanted.items() if env.get(name) is None}

    def run(self, plan: LaunchPlan) -> int:
        """Run all ranks and return the exit status of the one that failed first, or 0.

        For the time of the run the environment of this process is that of the ranks, and from the main
        thread signals that ask to end are answered: every rank ends before this returns.
        """
        from accelerate.launching.agent import run_ranks

        environ = self.full_environ(plan)
        with env.clear_environment():
            env.put(environ)
            return run_ranks(plan, self.command(plan))


def _is_here(address: str) -> bool:
    """Return whether this machine has `address`: only then a socket can be bound to it."""
    try:
        found = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, protocol, _, where in found:
        if ipaddress.ip_address(where[0]).is_loopback:
            return True
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.bind(where)
            except OSError:
                continue
            return True
    return False
