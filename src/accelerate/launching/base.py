"""Launcher: how the processes of one kind of launch are started. Chosen by launching/select.py.

Call order: accepts -> problems, or validate, which raises them -> command and environ (pure; tests compare
them) -> run. All of it happens in the process of `accelerate launch`, before and above any rank.
"""

import abc
import os
import sys
from typing import ClassVar

from accelerate.compat import env
from accelerate.errors import ConfigurationError, listing
from accelerate.launching.command import inherited, path_with, script_command, script_environment
from accelerate.launching.target import check_target
from accelerate.launching.unsupported import find_unsupported
from accelerate.options.launch import LaunchPlan

__all__ = ["Launcher", "exit_status"]


class Launcher(abc.ABC):
    """Starts the processes of a plan and reports how they ended."""

    name: ClassVar[str]

    @abc.abstractmethod
    def accepts(self, plan: LaunchPlan) -> bool:
        """Return whether this launcher is the one for `plan`."""

    @abc.abstractmethod
    def run(self, plan: LaunchPlan) -> int:
        """Start the processes, wait for all of them and return the exit status, that of the script."""

    def problems(self, plan: LaunchPlan) -> list[str]:
        """Return, before anything is started, all that would keep this launcher from starting the plan."""
        found = find_unsupported(plan)
        try:
            check_target(plan, env.get("PATH"))
        except ConfigurationError as error:
            found.append(str(error))
        if plan.log_dir is not None and os.path.isfile(plan.log_dir):
            found.append(f"--log_dir {plan.log_dir}: this is a file; give a folder")
        return found

    def validate(self, plan: LaunchPlan) -> None:
        """Refuse a plan that cannot be started.

        Raises:
            ConfigurationError: it has `problems`; the message lists all of them.
        """
        problems = self.problems(plan)
        if problems:
            raise ConfigurationError(listing(problems))

    def command(self, plan: LaunchPlan) -> list[str]:
        """Return the argument list of one process."""
        return script_command(plan, [sys.executable])

    def environ(self, plan: LaunchPlan) -> dict[str, str]:
        """Return the variables that follow from the plan alone."""
        return script_environment(plan)

    def local_environ(self, plan: LaunchPlan) -> dict[str, str]:
        """Return the variables that also follow from this machine and from the caller's environment."""
        # DeepSpeed starts Python where modules beside the script are not found otherwise.
        return {"PYTHONPATH": path_with(env.get("PYTHONPATH"), ".")} if plan.use_deepspeed else {}

    def full_environ(self, plan: LaunchPlan) -> dict[str, str]:
        """Return the whole environment of the processes: the caller's, cleaned, and the launch's own."""
        return inherited(env.snapshot()) | self.environ(plan) | self.local_environ(plan)


def exit_status(return_code: int) -> int:
    """Return the shell's number for a child's return code: death by signal n is 128 + n.

    Example:
        >>> exit_status(3), exit_status(-9)
        (3, 137)
    """
    return 128 - return_code if return_code < 0 else return_code
