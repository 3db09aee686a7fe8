"""Where each rank of this machine writes. Used by agent.py.

torch elastic asks for the streams of each attempt; they lead to the console, and into files where those were
asked for.
"""

import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, Std
from torch.distributed.elastic.multiprocessing.api import to_map

from accelerate.errors import ConfigurationError
from accelerate.launching.console import STDERR, STDOUT, Console, same_target
from accelerate.options.launch import LaunchPlan

__all__ = ["SIGNALS_VARIABLE", "RankLogs"]

SIGNALS_VARIABLE = "TORCHELASTIC_SIGNALS_TO_HANDLE"


class RankLogs(LogsSpecs):
    """Where each rank writes: to the console, and into files where those were asked for.

    Attributes:
        folder: holds the error files of the ranks and their logs.
        asked_for: whether the user wanted it.
        files: local rank -> log of its standard error, in the current attempt.
    """

    def __init__(self, plan: LaunchPlan, console: Console, run_id: str) -> None:
        super().__init__(log_dir=plan.log_dir)
        self.files: dict[int, str] = {}
        self._plan = plan
        self._console = console
        self._tee: dict[int, Std] = to_map(Std.from_str(plan.tee), plan.processes_per_machine)
        self.asked_for = plan.log_dir is not None or any(self._tee.values())
        self._kept = self.asked_for
        self.folder = _new_folder(plan.log_dir, run_id)

    @property
    def root_log_dir(self) -> str:
        """The folder, by the name that torch gives it."""
        return str(self.folder)

    def keep(self, wanted: bool) -> None:
        """Leave the folder in place after the launch, if `wanted` or if it was asked for anyway."""
        self._kept = self._kept or wanted

    def discard_unless_kept(self) -> None:
        """Remove the folder of a launch that asked for no logs and has nothing to show."""
        if not self._kept:
            shutil.rmtree(self.folder, ignore_errors=True)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Open the streams of one attempt. Called by the agent just before it starts the processes."""
        destination = LogsDest()
        self.files = {}
        attempt = envs[0]["TORCHELASTIC_RESTART_COUNT"]
        for local_rank, variables in envs.items():
            folder = self.folder / f"attempt_{attempt}" / str(local_rank)
            folder.mkdir(parents=True, exist_ok=True)
            error_file = str(folder / "error.json")
            destination.error_files[local_rank] = error_file
            variables["TORCHELASTIC_ERROR_FILE"] = error_file
            variables[SIGNALS_VARIABLE] = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
            out, err = self._open(local_rank, folder, self._rank_prefix(variables))
            destination.stdouts[local_rank] = out
            destination.stderrs[local_rank] = err
        return destination

    def _rank_prefix(self, variables: Mapping[str, str]) -> str:
        """Return what stands before each line of a rank; the numbers of all ranks are equally wide."""
        wanted = self._plan.log_prefix
        several = self._plan.processes_per_machine > 1
        if wanted == "never" or (wanted == "auto" and not (several and sys.stdout.isatty())):
            return ""
        width = len(str(self._plan.num_processes - 1))
        return f"[{variables['RANK']:>{width}}] "

    def _open(self, local_rank: int, folder: Path, rank_prefix: str) -> tuple[str, str]:
        """Return the paths for standard output and error; an empty one means: as the launcher's."""
        tee = self._tee[local_rank]
        keep = self._plan.log_dir is not None
        if not keep and not tee and same_target(STDOUT, STDERR):
            path = self._console.add(local_rank, STDERR, prefix=rank_prefix, redraws=True)
            return path, path
        tee_prefix = f"[{self._plan.role}{local_rank}]:"
        error_log = str(folder / "stderr.log") if keep or Std.ERR in tee else None
        if error_log is not None:
            self.files[local_rank] = error_log

        def add(sink: int, kind: Std, log: str | None) -> str:
            teed = kind in tee
            prefix = tee_prefix if teed else rank_prefix
            return self._console.add(local_rank, sink, prefix=prefix, log=log, redraws=not teed)

        err = add(STDERR, Std.ERR, error_log)
        if not keep and Std.OUT not in tee and not rank_prefix:
            return "", err
        output_log = str(folder / "stdout.log") if keep or Std.OUT in tee else None
        return add(STDOUT, Std.OUT, output_log), err


def _new_folder(log_dir: str | None, run_id: str) -> Path:
    """Make and return a folder for this launch alone, inside of `log_dir`, or among temporary files."""
    try:
        if log_dir is None:
            return Path(tempfile.mkdtemp(prefix="accelerate_launch_"))
        Path(log_dir).mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{run_id}_", dir=log_dir)).absolute()
    except OSError as error:
        where = "no temporary folder can be made" if log_dir is None else f"--log_dir {log_dir}"
        raise ConfigurationError(
            f"{where}: {error.strerror}; give a folder in which files can be written"
            + (" in the variable TMPDIR" if log_dir is None else "")
        ) from error
