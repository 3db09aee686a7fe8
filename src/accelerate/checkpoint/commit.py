"""From a folder being written to a checkpoint that is there: staging, publishing, and mending after a crash.

Called by checkpoint/save.py and choice.py, on the rank that leads a machine, or on the main one where
machines share the folder.

[Note: commit]
The *target* is the folder that the checkpoint is for. All is written into the *staging* folder, on the same
file system: beside the target (`.<name>.staging`), or where the caller says. When every file is on the disk,
the manifest is written into it, and the staging folder is *sealed*: it is a whole checkpoint. Publishing
gives it the name of the target:
- no target, or an empty one: the staging folder is renamed;
- another checkpoint there: what is not of that checkpoint (the user's own files) is carried over by hard
  link, then both folders change names at once, then the old one is removed;
- where that cannot be (no exchange, no hard links, or the target is full of the user's files): the staging
  folder is renamed to `.<name>.publish`. That name is the *journal*: it says that the new checkpoint is
  committed. Its files are moved into the target one by one, what only the old manifest names is removed, the
  manifest is moved last. Whoever comes next, to load or to save, goes on with a journal that it finds.
A *pinned* target (a mount point, the working directory, or in a folder that may not be written to) has both
inside, `.accelerate.staging` and `.accelerate.publish`.
Who makes a checkpoint holds its folder, under all of these names; see [Note: claims].
No file is changed in place, since somebody may have mapped it.
"""

import os
import stat
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from accelerate.checkpoint import disk, manifest, naming
from accelerate.checkpoint.claim import Claim, busy, wait_for
from accelerate.checkpoint.disk import Stamp
from accelerate.checkpoint.manifest import MANIFEST, Manifest
from accelerate.checkpoint.place import INNER, Place, journals
from accelerate.errors import CheckpointError

__all__ = ["Staging", "new_generation", "recover"]

MANY = 1000  # files of the user's in a folder from which on they are left where they are


def new_generation() -> str:
    """Return a name for a save that no other has; of two names the later is greater."""
    return f"{time.time():014.3f}-{uuid.uuid4().hex}"


class Staging:
    """A checkpoint while it is made, in the order `begin`, files, `seal`, `publish`.

    Args:
        place: where.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.folder = place.staging
        self._claim: Claim | None = None
        self._old: Claim | None = None  # on the checkpoint that is replaced

    def begin(self) -> None:
        """Make the staging folder, after mending what an earlier save has left.

        Raises:
            CheckpointError: another process saves into the same place.
        """
        self.release()
        recover(self.place)
        leftovers = [self.folder]
        if self._has_separate_parent() and self.folder.parent.is_dir():
            leftovers = sorted(self.folder.parent.iterdir())
        for leftover in leftovers:
            self._remove_leftover(leftover)
        disk.make_folders(self.place.target if not self.place.renames else self.place.target.parent)
        disk.make_folders(self.folder.parent, lasting=False)
        try:
            disk.make_folder(self.folder)  # publishing brings it to the disk under its name
            self._claim = Claim(self.folder)
        except (FileExistsError, FileNotFoundError):
            raise busy(self.folder) from None

    def _remove_leftover(self, leftover: Path) -> None:
        try:
            _remove_unclaimed(leftover)
        except CheckpointError:
            if leftover == self.folder:
                raise  # another one in the same project is none of our business

    def foreign_files(self, known: Mapping[str, Stamp]) -> list[str]:
        """Return the files in the staging folder that nobody has summed up yet."""
        return [name for name in manifest.files_in(self.folder) if name not in known]

    def seal(
        self, files: Mapping[str, Stamp], *, generation: str, step: int, world_size: int, rank: int
    ) -> None:
        """Bring all names to the disk and write the manifest; then the staging folder is a whole checkpoint.

        Args:
            files: all files, which are on the disk.
            generation, step, world_size, rank: see `Manifest`.

        Raises:
            CheckpointError: the folder is not the one that was begun.
        """
        if self._claim is not None and not self._claim.holds(self.folder):
            raise CheckpointError(
                f"{self.folder} was removed or replaced while the checkpoint was written: another process "
                "saves into the same place. Let each run have a folder of its own."
            )
        for folder in _folders_in(self.folder):
            disk.sync(folder)
        content = Manifest(
            generation=generation,
            step=step,
            world_size=world_size,
            rank=rank,
            created=round(time.time(), 3),
            versions=manifest.versions(),
            files=files,
        )
        with disk.Writer(self.folder / MANIFEST) as writer:
            writer.write(content.encode())
        disk.sync(self.folder)

    def publish(self) -> Path | None:
        """Give the sealed folder the name of the target.

        Returns:
            The old checkpoint under the name of the staging folder, for the caller to remove; None where
            nothing is left of it.
        """
        place = self.place
        if not place.renames:
            disk.rename(self.folder, place.journal)
            disk.sync(place.target)
            _roll_forward(place.target, place.journal)
            return None
        if not place.target.exists() or not os.listdir(place.target):
            disk.rename(self.folder, place.target)
            disk.sync(place.target.parent)
            return None
        self._old = wait_for(place.target)  # whoever made it may not have come to the end
        made = _carry_over(place.target, self.folder) if disk.can_exchange() else None
        if made is not None:
            if _exchanged(self.folder, place):
                return self.folder
            _undo(made)
        disk.rename(self.folder, place.journal)
        disk.sync(place.journal.parent)
        _roll_forward(place.target, place.journal)
        return None

    def remove_old(self) -> None:
        """Remove the old checkpoint that `publish` gave, which this process holds."""
        if self._old is not None and self._old.holds(self.folder):
            disk.remove_tree(self.folder)

    def discard(self) -> None:
        """Remove the staging folder, with what is in it."""
        if self._claim is not None and self._claim.holds(self.folder):
            disk.remove_tree(self.folder)
            self.remove_parent()

    def release(self) -> None:
        """Let other processes have the place. Called at the end of a save, however it ends."""
        for claim in (self._claim, self._old):
            if claim is not None:
                claim.release()
        self._claim = self._old = None

    def remove_parent(self) -> None:
        """Remove the folder that staging folders are made in, where it is of no other use."""
        parent = self.folder.parent
        if self._has_separate_parent() and parent.is_dir() and not os.listdir(parent):
            disk.remove_folder(parent)

    def _has_separate_parent(self) -> bool:
        return self.folder.parent not in (self.place.target.parent, self.place.target)


def recover(place: Place) -> None:
    """Finish what an interrupted save has begun to publish."""
    for journal in journals(place):
        claim = wait_for(journal)
        if claim is None:
            continue
        try:
            _roll_forward(place.target, journal)
        finally:
            claim.release()


def _remove_unclaimed(path: Path) -> None:
    """Remove what an earlier save has left.

    Raises:
        CheckpointError: another process works in it.
    """
    try:
        if not stat.S_ISDIR(path.lstat().st_mode):
            disk.unlink(path)
            return
        claim = Claim(path)
    except FileNotFoundError:
        return
    try:
        disk.remove_tree(path)
    finally:
        claim.release()


# ---- publishing into a folder that is there ----------------------------------------------------------------


def own_files(folder: Path) -> set[str]:
    """Return which files of a folder are of the checkpoint in it; the rest is the user's."""
    names = manifest.files_in(folder, without=INNER)
    try:
        written = manifest.read(folder)
    except CheckpointError:
        written = None
    if written is not None:
        return {MANIFEST, *written.files}
    return {name for name in names if name == MANIFEST or naming.is_checkpoint_file(name)}


def _carry_over(old: Path, new: Path) -> list[Path] | None:
    """Give the user's files in `old` a second name in `new`.

    Returns:
        What was made in `new`, in that order; None where it cannot be done, and nothing is left of it.
    """
    own, made = own_files(old), []
    mine = [name for name in manifest.files_in(old, without=INNER) if name not in own]
    if len(mine) > MANY:
        return None
    try:
        for name in mine:
            if not os.path.lexists(new / name):
                made += _make_inner_folders(old, new, name)
                made.append(new / name)
                _double(old / name, new / name)
        for name in manifest.empty_folders_in(old, without=INNER):
            made += _make_inner_folders(old, new, f"{name}/file")
    except OSError as error:
        if error.errno not in disk.NO_LINK:
            raise
        _undo(made)
        return None
    disk.change_mode(new, stat.S_IMODE(old.stat().st_mode))
    for folder in sorted({path.parent for path in made}):
        disk.sync(folder)
    return made


def _double(source: Path, target: Path) -> None:
    if source.is_symlink():
        disk.symlink(os.readlink(source), target)
    else:
        disk.link(source, target)


def _make_inner_folders(old: Path, new: Path, name: str) -> list[Path]:
    """Make the folders that a carried file lies in, and return them."""
    made = []
    for inside in reversed(Path(name).parents[:-1]):
        if not os.path.lexists(new / inside):
            made.append(new / inside)
            disk.make_folder(new / inside)
            disk.change_mode(new / inside, stat.S_IMODE((old / inside).stat().st_mode))
    return made


def _undo(made: Sequence[Path]) -> None:
    for path in reversed(made):
        disk.remove_tree(path)


def _exchanged(staging: Path, place: Place) -> bool:
    """Let staging folder and target change names; return whether the file system can."""
    try:
        disk.exchange(staging, place.target)
    except OSError as error:
        if disk.can_exchange(error):
            raise
        return False
    disk.sync(place.target.parent)
    _bring_latecomers(old=staging, new=place.target)
    return True


def _bring_latecomers(*, old: Path, new: Path) -> None:
    """Move what the user has put into the old folder while it was being replaced."""
    own = own_files(old)
    for name in manifest.files_in(old):
        if name not in own and not os.path.lexists(new / name):
            _make_inner_folders(old, new, name)
            disk.rename(old / name, new / name)


def _roll_forward(target: Path, journal: Path) -> None:
    """Move the files of a journal into the target, the manifest last; see [Note: commit]."""
    if not target.is_dir():
        disk.make_folders(target)
    incoming = manifest.files_in(journal)
    if MANIFEST in incoming:
        new = manifest.read(journal)
        stays = set(new.files) if new is not None else set(incoming)
        folders = {target}
        for name in incoming:
            if name != MANIFEST:
                folders |= _move(journal, target, name)
        there = set(manifest.files_in(target, without=INNER))
        for name in sorted(own_files(target) & there - stays - {MANIFEST}):
            _remove_with_folders(target, name)
        for folder in sorted(folders):
            disk.sync(folder)
        disk.rename(journal / MANIFEST, target / MANIFEST)
        disk.sync(target)
    disk.remove_tree(journal)


def _remove_with_folders(target: Path, name: str) -> None:
    """Remove a file, and the folders inside the target that it leaves empty."""
    disk.unlink(target / name)
    for inside in Path(name).parents[:-1]:
        if os.listdir(target / inside):
            return
        disk.remove_folder(target / inside)


def _move(journal: Path, target: Path, name: str) -> set[Path]:
    """Move one file into the target; return the folders whose names have changed."""
    changed = {(target / name).parent}
    for inside in reversed(Path(name).parents[:-1]):
        if not (target / inside).is_dir():
            disk.remove_tree(target / inside)  # a file where a folder is to be
            disk.make_folder(target / inside)
            changed.add((target / inside).parent)
    if (target / name).is_dir() and not (target / name).is_symlink():
        disk.remove_tree(target / name)
    disk.rename(journal / name, target / name)
    return changed


def _folders_in(folder: Path) -> list[Path]:
    """Return the folders inside a folder, without itself."""
    return sorted(Path(place) for place, _, _ in os.walk(folder) if Path(place) != folder)
