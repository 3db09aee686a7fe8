"""One process, started without torch in this one; the only launcher that may exec. Chosen by select.py."""

import os
import sys
from typing import ClassVar, NoReturn

from accelerate.launching.base import Launcher
from accelerate.launching.child import run_child
from accelerate.options.launch import LaunchPlan

__all__ = ["SimpleLauncher"]


class SimpleLauncher(Launcher):
    """Runs the script in one process of its own."""

    name: ClassVar[str] = "simple"

    def accepts(self, plan: LaunchPlan) -> bool:
        """Return whether the plan is about one process that needs no peers."""
        return not plan.distributed

    def environ(self, plan: LaunchPlan) -> dict[str, str]:
        """Return the common variables, and those that tell a script to stay on the CPU."""
        variables = super().environ(plan) | {"ACCELERATE_USE_CPU": str(plan.cpu)}
        if plan.cpu:
            variables["KMP_AFFINITY"] = "granularity=fine,compact,1,0"
            variables["KMP_BLOCKTIME"] = "1"
        return variables

    def run(self, plan: LaunchPlan) -> int:
        """Run the script as a child and return its exit status; signals to this process reach it too."""
        return run_child(self.command(plan), self.full_environ(plan))

    def replace_this_process(self, plan: LaunchPlan) -> NoReturn:
        """Become the script: same process number, terminal, signals and exit status.

        Only the console entry point may call this.
        """
        command = self.command(plan)
        sys.stdout.flush()
        sys.stderr.flush()
        os.execvpe(command[0], command, self.full_environ(plan))
