"""One save of a checkpoint, from the staging folder to the rotation, on every rank. Called by checkpointing.

The order: enter, `writing`, `commit`, leave, `rotate`. Whatever fails on a rank before `commit` has published
is an error on all, and nothing has changed but for the staging folder, which is removed.
"""

import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from accelerate.checkpoint import commit, disk, folders
from accelerate.checkpoint.agreement import Ranks, Step
from accelerate.checkpoint.disk import Stamp
from accelerate.checkpoint.place import place_of
from accelerate.checkpoint.space import explained
from accelerate.options.project import ProjectConfiguration

__all__ = ["Save"]

PATIENCE = 5  # seconds until a machine is sure that it does not see what another one has made
_PROBE = ".probe"
_UNTOUCHED = "Nothing was published: earlier checkpoints are as they were."


class Save:
    """A save in progress.

    Args:
        target: folder of the checkpoint.
        project: automatic naming and limit, and whether each machine gets a folder of its own.
        ranks: who saves.
        pinned: whether the target has to stay itself, as some rank sees it.

    Attributes:
        folder: the staging folder, that all files go into.
        leads: whether this rank writes the files that exist once.
    """

    def __init__(self, target: Path, project: ProjectConfiguration, ranks: Ranks, *, pinned: bool) -> None:
        self._target = target
        self._project = project
        self._ranks = ranks
        self._staging = commit.Staging(place_of(target, folders.staging_parent(project), pinned=pinned))
        self._several_folders = project.save_on_each_node and ranks.size > ranks.local_size
        self._sealed = False
        self.folder = self._staging.folder
        self.leads = ranks.leads(self._several_folders)

    def __enter__(self) -> "Save":
        try:
            if self._ranks.size > self._ranks.local_size:
                self._several_folders = not self._is_shared()
                self.leads = self._ranks.leads(self._several_folders)
                self._warn_of_several_folders()
            with self._step("while making the staging folder") as step:
                if self.leads:
                    self._staging.begin()
                step.value = commit.new_generation()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        self._generation = step.answers[0]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self.leads and not self._sealed:
            try:
                self._staging.discard()
            except OSError as reason:
                if error is not None and hasattr(error, "add_note"):
                    error.add_note(f"The staging folder {self.folder} could not be removed ({reason}).")
        self._staging.release()

    def _is_shared(self) -> bool:
        """Return whether all machines see one folder, so that it is written once."""
        with self._step("while making the staging folder") as step:
            if self._ranks.rank == 0:
                self._staging.begin()
                disk.make_folder(self.folder / _PROBE)
        with self._step("while looking for the staging folder") as step:
            step.value = self._ranks.rank == 0 or self._sees(self.folder / _PROBE)
        return all(step.answers)

    def _sees(self, path: Path) -> bool:
        """Return whether a folder that rank 0 has just made is seen on this machine."""
        # A network file system may remember that a name was not there. Who says that machines have folders
        # of their own expects a no.
        tries = 1 if self._project.save_on_each_node else PATIENCE
        for _ in range(tries - 1):
            if path.is_dir():
                return True
            time.sleep(1)
            for folder in (path.parent.parent, path.parent):
                if folder.is_dir():
                    os.listdir(folder)  # has its names fetched anew
        return path.is_dir()

    def _warn_of_several_folders(self) -> None:
        if self._several_folders and not self._project.save_on_each_node and self._ranks.rank == 0:
            warnings.warn(
                f"{self._target} is not shared by all machines: each writes a checkpoint of its own, as with "
                "ProjectConfiguration(save_on_each_node=True). Say so, or name a folder that they share.",
                stacklevel=5,
            )

    @contextmanager
    def _step(self, doing: str, otherwise: str = _UNTOUCHED) -> Iterator[Step]:
        """Surround what this package does on the disk; see `Ranks.step`."""
        with self._ranks.step(doing, otherwise) as step, explained(self.folder):
            yield step

    def writing(self) -> AbstractContextManager[Step]:
        """Return the step in which every rank writes; its value is what `write_plan` returned."""
        return self._ranks.step("while writing its files", _UNTOUCHED)

    def commit(self, written: Sequence[Mapping[str, Stamp]], *, step: int) -> None:
        """Make the files that all ranks wrote a checkpoint, at once.

        Args:
            written: of each rank, the files that were summed up.
            step: see `Manifest`.
        """
        machine = self._machine(written)
        stamps = {name: stamp for of_rank in machine for name, stamp in of_rank.items()}
        stamps |= self._sum_up_others(stamps)
        with self._step("while completing the checkpoint"):
            if self.leads:
                self._staging.seal(
                    stamps,
                    generation=self._generation,
                    step=step,
                    world_size=self._ranks.size,
                    rank=self._ranks.rank,
                )
        # On whichever machine it now ends, the checkpoint can be published later.
        self._sealed = True
        old = None
        with self._step("while publishing the checkpoint", self._half_published()):
            if self.leads:
                old = self._staging.publish()
        # Only now has every machine the new one.
        if self.leads and old is not None:
            _clear_up(self._staging.remove_old, old)

    def _half_published(self) -> str:
        if self._several_folders:
            return "`load_state` finishes this where it was interrupted."
        return f"{self._target} holds the earlier checkpoint or the new one, whole."

    def _sum_up_others(self, known: Mapping[str, Stamp]) -> dict[str, Stamp]:
        """Sum up the files that strategies and hooks have written, each rank of the machine its share."""
        with self._step("while listing its files") as step:
            if self.leads:
                step.value = self._staging.foreign_files(known)
        names: list[str] = next((answer for answer in self._machine(step.answers) if answer is not None), [])
        if not any(answer for answer in step.answers):
            return {}
        with self._step("while reading its files") as step:
            index, num = self._reader()
            step.value = {}
            for name in names[index::num]:
                disk.sync(self.folder / name)
                step.value[name] = disk.stamp(self.folder / name)
        return {name: stamp for of_rank in self._machine(step.answers) for name, stamp in of_rank.items()}

    def _reader(self) -> tuple[int, int]:
        ranks = self._ranks
        return (ranks.local_rank, ranks.local_size) if self._several_folders else (ranks.rank, ranks.size)

    def _machine(self, answers: Sequence[Any]) -> Sequence[Any]:
        """Return the answers of those ranks that write into the same folder as this one."""
        if not self._several_folders:
            return answers
        first = self._ranks.rank - self._ranks.local_rank
        return answers[first : first + self._ranks.local_size]

    def rotate(self) -> None:
        """Remove the checkpoints of automatic naming that are beyond the limit. Called after each of them."""
        if self.leads:
            parent = self._staging.folder.parent
            folders.remove_oldest(self._target, self._project.total_limit, parent)
            _clear_up(self._staging.remove_parent, parent)


def _clear_up(remove: Callable[[], None], path: Path) -> None:
    """Remove what is of no more use; a failure takes nothing from the checkpoint, which is committed."""
    try:
        remove()
    except OSError as error:
        warnings.warn(
            f"{path} is of no more use, but could not be removed ({error}): it takes up space until the next "
            "save.",
            stacklevel=5,
        )
