"""A training run that saves, in one process or on several ranks, for the processes that the sweep kills.

Every number of the run is a function of how many steps were made: a run that was resumed can be compared with
one that never stopped.
"""

import hashlib
import os
import random
import shutil
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

from accelerate.accelerator import Accelerator
from accelerate.checkpoint import disk, files
from accelerate.errors import CheckpointError
from accelerate.options.project import ProjectConfiguration

USERS_FILE = "notes.txt"
# What may be said to one of several runs that save into one folder.
EXPECTED = (
    "Another process works in",
    "was removed or replaced by another save while it was being",
)


class Progress:
    """How many steps were made: a registered object."""

    def __init__(self) -> None:
        self.steps = 0

    def state_dict(self) -> dict[str, int]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.steps = state["steps"]


class Run:
    """A training run in a folder.

    Args:
        folder: of the project.
        kind: "numbered" for automatic naming with one checkpoint kept, "named" for one folder that is
            overwritten, "inside" for the working directory, "journal" for a system without exchange.
    """

    def __init__(self, folder: str, kind: str) -> None:
        self.numbered = kind == "numbered"
        self.target = Path(folder) / "checkpoint"
        if kind == "inside":
            self.target.mkdir(exist_ok=True)
            os.chdir(self.target)
        if kind == "journal":
            disk._renameat2 = lambda: None
        project = ProjectConfiguration(
            project_dir=folder, automatic_checkpoint_naming=self.numbered, total_limit=1
        )
        self.accelerator = Accelerator(cpu=True, project_config=project)
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
        self.model, self.optimizer, self.scheduler = self.accelerator.prepare(model, optimizer, scheduler)
        self.progress = Progress()
        self.accelerator.register_for_checkpointing(self.progress)
        torch.manual_seed(1 + self.accelerator.process_index)

    def resume(self) -> int:
        """Load the newest checkpoint, if there is one; return the number of steps that it had made."""
        if self.numbered:
            if any((self.target.parent / "checkpoints").glob("*")):
                self.accelerator.load_state()
        elif self.target.exists() and any(self.target.iterdir()):
            self.accelerator.load_state(self.target)
        return self.progress.steps

    def train(self, until: int) -> str:
        """Make steps, and return a digest of all that they have led to."""
        while self.progress.steps < until:
            loss = self.model(torch.randn(5, 3)).square().mean()
            self.accelerator.backward(loss)
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
            self.progress.steps += 1
        state = [p.detach().numpy().tobytes() for p in self.model.parameters()]
        return hashlib.sha256(b"".join(state) + torch.get_rng_state().numpy().tobytes()).hexdigest()

    def save(self) -> None:
        """Write a checkpoint."""
        self.accelerator.save_state(None if self.numbered else self.target)


def warm_up() -> None:
    """Have torch import all that a run needs, without starting one."""
    model = nn.Linear(1, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1)).sum().backward()
    optimizer.step()
    with tempfile.TemporaryDirectory() as folder:
        files.save(optimizer.state_dict(), f"{folder}/file")
        files.unsafe_names(f"{folder}/file")
        files.load(f"{folder}/file")


def save_at(folder: str, kind: str, steps: list[int], report: Any) -> str:
    """Resume, train and save at each of the steps; report each save that has returned.

    Args:
        folder: of the project.
        kind: see `Run`.
        steps: when to save.
        report: called with what happened.
    """
    warnings.filterwarnings("always", ".*could not be removed")
    run = Run(folder, kind)
    run.resume()
    digest = ""
    for step in steps:
        digest = run.train(step)
        try:
            run.save()
        except (OSError, RuntimeError) as error:
            report({"failed": step, "error": f"{type(error).__name__}: {error}"})
            raise
        else:
            report({"committed": step})
    return digest


def resume_and_save(folder: str, kind: str, until: int, report: Any) -> str:
    """Resume, train to the end and save; report where the run was."""
    run = Run(folder, kind)
    report({"resumed": run.resume()})
    digest = run.train(until)
    run.save()
    return digest


def save_and_load_beside_others(folder: str, kind: str, seconds: float, report: Any) -> dict[str, int]:
    """Save into a folder, and load from it, while other processes do so; count what came of it.

    Fails when what was loaded is of two saves: all parameters, and the registered object, have one value.
    """
    run = Run(folder, kind)
    outcomes: dict[str, int] = {}
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        mine = run.progress.steps = random.randrange(1 << 20)
        with torch.no_grad():
            for parameter in run.model.parameters():
                parameter.fill_(mine)
        for action in (run.save, run.resume):
            try:
                action()
                outcome = action.__name__
            except CheckpointError as error:
                outcome = next((text for text in EXPECTED if text in str(error)), str(error))
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            if outcome == "resume":
                values = {value for p in run.model.parameters() for value in p.flatten().tolist()}
                assert values == {run.progress.steps}
    return outcomes


def fill_the_disk(folder: str, report: Any) -> str:
    """Save until the disk is full, keeping all; then go on from the newest, in the space of an old one."""
    warnings.filterwarnings("always", ".*could not be removed")
    run = Run(folder, "numbered")
    run.accelerator.project_configuration.total_limit = None
    while True:
        digest = run.train(run.progress.steps + 1)
        try:
            run.save()
        except OSError as error:
            report({"full": run.progress.steps, "error": str(error)})
            break
        report({"committed": run.progress.steps})
    step = run.resume()
    report({"resumed": step})
    shutil.rmtree(run.target.parent / "checkpoints" / "checkpoint_0")
    same = run.train(step + 1) == digest
    run.save()
    report({"saved": sorted(path.name for path in run.target.parent.iterdir())})
    return str(same)
