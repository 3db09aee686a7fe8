"""Several machines through DeepSpeed's own launcher (pdsh, Open MPI ...). Chosen by launching/select.py.

On one machine, and with `--deepspeed_multinode_launcher standard`, torch elastic starts the processes.

[Note: environment file]
DeepSpeed's launcher takes to the other machines what stands in files `.deepspeed_env`, in the home folder and
in the working one, or in the one file that the variable DS_ENV_FILE names. The environment of a launch goes
into a file of its own, for the time of the launch: below what the user's files say, which it replaces.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from accelerate.compat import env
from accelerate.launching.base import Launcher
from accelerate.launching.child import run_child
from accelerate.options.launch import LaunchPlan

__all__ = ["DeepSpeedLauncher", "environment_file"]

_FILE_VARIABLE = "DS_ENV_FILE"
_FILE_NAME = ".deepspeed_env"
_OF_THIS_MACHINE = frozenset({"_", "HOSTNAME", "OLDPWD", "PWD", "SHLVL", "TERM"})
_UNSAFE = frozenset(";<> \n")


class DeepSpeedLauncher(Launcher):
    """Calls the program `deepspeed`, which reaches the other machines."""

    name: ClassVar[str] = "deepspeed"

    def accepts(self, plan: LaunchPlan) -> bool:
        """Return whether DeepSpeed is to reach several machines."""
        chosen = plan.use_deepspeed and _launcher(plan) != "standard"
        return chosen and plan.num_machines > 1 and plan.slurm in (None, "no")

    def problems(self, plan: LaunchPlan) -> list[str]:
        """Return also whether DeepSpeed or its list of machines is missing."""
        found = super().problems(plan)
        if shutil.which("deepspeed", path=env.get("PATH")) is None:
            found.append(
                "--use_deepspeed with several machines: there is no program `deepspeed` on PATH; install it "
                "(pip install deepspeed), or pass --deepspeed_multinode_launcher standard"
            )
        if plan.deepspeed_hostfile is not None and not os.path.isfile(plan.deepspeed_hostfile):
            found.append(
                f"--deepspeed_hostfile {plan.deepspeed_hostfile}: there is no such file; write one with a "
                "line per machine, as in `node1 slots=8`"
            )
        return found

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
        """Call DeepSpeed's launcher and return its exit status; see [Note: environment file]."""
        environ = self.full_environ(plan)
        with _kept_for_a_while(environment_file(environ, _users_lines(environ))) as file:
            return run_child(self.command(plan), environ | {_FILE_VARIABLE: file})


def environment_file(environ: Mapping[str, str], lines: Sequence[str] = ()) -> str:
    """Return the text of the file with which DeepSpeed sets variables on the other machines.

    Args:
        environ: the environment of the launch; what such a file cannot hold is left out, and so is what is
            about this machine only.
        lines: those of the user's own files, which come later and so have the last word.

    Example:
        >>> environment_file({"A": "1", "B": "two words", "PWD": "/here"}, ["C=3"])
        'A=1\\nC=3\\n'
    """
    carried = [
        f"{name}={text}"
        for name, text in sorted(environ.items())
        if name and text and name not in _OF_THIS_MACHINE and not _UNSAFE & set(name + text)
    ]
    return "".join(f"{line}\n" for line in [*carried, *lines])


def _users_lines(environ: Mapping[str, str]) -> list[str]:
    """Return the lines of the files that DeepSpeed would read by itself."""
    named = environ.get(_FILE_VARIABLE, _FILE_NAME)
    files = dict.fromkeys(Path(folder, named) for folder in (os.path.expanduser("~"), os.getcwd()))
    texts = [file.read_text(encoding="utf-8") for file in files if file.is_file()]
    return [line for text in texts for line in text.splitlines() if "=" in line]


@contextmanager
def _kept_for_a_while(text: str) -> Iterator[str]:
    """Write a file that only this user can read, give its path, and remove it."""
    number, path = tempfile.mkstemp(prefix="accelerate_deepspeed_env_")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        yield path
    finally:
        os.unlink(path)


def _launcher(plan: LaunchPlan) -> str:
    return plan.deepspeed_multinode_launcher or "pdsh"
