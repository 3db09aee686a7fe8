"""Which checkpoint is loaded: the one that was named, or the newest whole one. Called by checkpointing.

Every rank calls `choose`, and all come to the same answer. The ranks of a machine share the reading of the
files, each of which is compared with the manifest before anything is loaded.

[Note: machines with folders of their own]
A save is published on a machine only after it was sealed on all ([Note: commit]). If some machines were
stopped in between, the others have the new checkpoint and these have it sealed: then it is published there
first. The old one is removed after all have published. So there is always a generation that every machine
has.
"""

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from accelerate.checkpoint import folders, manifest, naming
from accelerate.checkpoint.agreement import Ranks
from accelerate.checkpoint.commit import Staging, recover
from accelerate.checkpoint.manifest import Manifest
from accelerate.checkpoint.place import journals, place_of
from accelerate.errors import CheckpointError, MissingCheckpointFileError
from accelerate.options.project import ProjectConfiguration

__all__ = ["Chosen", "choose"]

TRIES = 3
_NOTHING_LOADED = "Nothing was loaded."
_LEGACY, _UNREADABLE = "", "?"  # stand for the generation of a folder without manifest, with a damaged one


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The checkpoint to load.

    Attributes:
        folder: where it is.
        manifest: what it consists of; None for a legacy folder, of which nothing tells whether it is whole.
    """

    folder: Path
    manifest: Manifest | None


def choose(
    input_dir: str | PathLike[str] | None, project: ProjectConfiguration, ranks: Ranks, *, strict: bool
) -> Chosen:
    """Return the checkpoint to load, which is whole. Every rank calls it.

    A checkpoint whose publishing was interrupted is published first. Checkpoints that are passed over are
    named in a warning on the main process. Where another run saves in the meantime, it is tried again.

    Args:
        input_dir: what the user named; None or "latest" for the newest of automatic naming.
        project: folders and automatic naming.
        ranks: who chooses.
        strict: raise instead of passing over a damaged checkpoint.

    Raises:
        ConfigurationError: no such folder, or none was named.
        MissingCheckpointFileError: there is no checkpoint yet.
        CheckpointError: the checkpoint is damaged, or with `strict` one that is newer than the whole one.
    """
    with ranks.step("while looking for the checkpoint", _NOTHING_LOADED, arriving=True) as step:
        folder = _named(input_dir, project)
        step.value = folder is None
    if any(step.answers):  # a folder called "latest" may be on some machines only
        folder = None
    for _ in range(TRIES):
        seen = _seen(folder, project)
        try:
            return _choose(folder, project, ranks, strict=strict)
        except CheckpointError as error:
            with ranks.step("while looking for the checkpoint", _NOTHING_LOADED) as step:
                step.value = _seen(folder, project) != seen
            if not any(step.answers):
                raise
            last = error
    raise CheckpointError(
        f"{folder or folders.home(project)} was removed or replaced by another save while it was being "
        f"loaded, {TRIES} times in a row. {_NOTHING_LOADED}"
    ) from last


def _seen(folder: Path | None, project: ProjectConfiguration) -> object:
    """Return what is there, as far as another run may change it; None for a folder means automatic naming."""
    if folder is None:
        return list(folders.numbered(project))
    # The journal first: it ends after the manifest has changed.
    return journals(place_of(folder)), _generation(folder)


def _choose(folder: Path | None, project: ProjectConfiguration, ranks: Ranks, *, strict: bool) -> Chosen:
    if folder is None:
        return _newest(project, ranks, strict=strict)
    _bring_together(folder, project, ranks)
    found = _checked(folder, ranks, may_lack_files=True)
    if isinstance(found, Chosen):
        return found
    raise CheckpointError(
        f"The checkpoint {folder} is not whole: {'; '.join(found)}. {_NOTHING_LOADED} `load_state()` without "
        "a folder takes the newest whole one of automatic naming. If you changed a file on purpose, remove "
        f"{manifest.MANIFEST}: then nothing is checked."
    )


def _checked(folder: Path, ranks: Ranks, *, may_lack_files: bool = False) -> Chosen | list[str]:
    """Return a checkpoint, or what is wrong with it; the same on all ranks.

    Args:
        folder: of the checkpoint.
        ranks: who share the reading.
        may_lack_files: whether files may be gone; whoever needs one will say so.
    """
    content = None
    with ranks.step("while checking the checkpoint", _NOTHING_LOADED) as step:
        try:
            content = manifest.read(folder)
            files = content.files if content is not None else {}
            mine = manifest.share(files, ranks.local_rank, ranks.local_size)
            if may_lack_files:
                mine = {name: stamp for name, stamp in mine.items() if (folder / name).exists()}
            step.value = list(manifest.problems(folder, mine))
        except CheckpointError as error:
            step.value = [str(error).rstrip(".")]
    wrong = sorted({problem for problems in step.answers for problem in problems})
    return wrong or Chosen(folder=folder, manifest=content)


# ---- the newest --------------------------------------------------------------------------------------------


def _newest(project: ProjectConfiguration, ranks: Ranks, *, strict: bool) -> Chosen:
    with ranks.step("while listing the checkpoints", _NOTHING_LOADED) as step:
        if ranks.leads(project.save_on_each_node):
            step.value = _generations(project)
    lists = [answer for answer in step.answers if answer is not None]
    wrong: list[str] = []
    for number in _in_order(lists):
        found = _numbered(number, lists, project, ranks)
        if isinstance(found, Chosen):
            if ranks.rank == 0:
                _tell_passed_over(number, lists, wrong, found.folder)
            return found
        wrong += found
        if strict:
            break
    if not wrong:
        raise MissingCheckpointFileError(
            f"load_state(): {folders.home(project)}/{naming.CHECKPOINTS_FOLDER} holds no folder named "
            "checkpoint_<number>."
        )
    raise CheckpointError(f"load_state({strict=}): {'; '.join(wrong)}. {_NOTHING_LOADED}")


def _tell_passed_over(
    number: int, lists: Sequence[Mapping[int, str]], wrong: Sequence[str], folder: Path
) -> None:
    unsure = [n for found in lists for n, generation in found.items() if n > number and generation == _LEGACY]
    reasons = [f"since they are not whole: {'; '.join(wrong)}"] if wrong else []
    if unsure:
        names = ", ".join(f"checkpoint_{n}" for n in sorted(set(unsure)))
        reasons.append(f"since without {manifest.MANIFEST} nothing tells whether they are whole: {names}")
    if reasons:
        warnings.warn(
            f"Passed over, {'; '.join(reasons)}. Loading {folder}, the newest checkpoint that is known to be "
            "whole. To load another one, name its folder.",
            stacklevel=5,
        )


def _generations(project: ProjectConfiguration) -> dict[int, str]:
    """Return the checkpoints of automatic naming that this machine has: number -> generation."""
    places = folders.numbered(project)
    if project.save_on_each_node:
        sealed = folders.numbered(project, staged=True).items()
        places |= {number: path for number, path in sealed if number not in places and _is_sealed(path)}
    return {number: _generation(path) for number, path in places.items()}


def _generation(folder: Path) -> str:
    try:
        content = manifest.read(folder)
    except CheckpointError:
        return _UNREADABLE
    return _LEGACY if content is None else content.generation


def _is_sealed(folder: Path) -> bool:
    return _generation(folder) not in (_LEGACY, _UNREADABLE)


def _in_order(lists: Sequence[Mapping[int, str]]) -> list[int]:
    """Return the numbers that any machine has in the order in which they are tried."""
    legacy = {number for found in lists for number, generation in found.items() if generation == _LEGACY}
    return sorted({number for found in lists for number in found}, key=lambda n: (n in legacy, -n))


def _numbered(
    number: int, lists: Sequence[Mapping[int, str]], project: ProjectConfiguration, ranks: Ranks
) -> Chosen | list[str]:
    """Return one checkpoint of automatic naming, or what is wrong with it; the same on all ranks."""
    folder = naming.checkpoint_folder(folders.home(project), number)
    if len({found.get(number) for found in lists}) > 1:
        return [f"{folder} is not of one save on every machine"]
    if project.save_on_each_node:
        with ranks.step("while publishing a checkpoint", _NOTHING_LOADED):
            if ranks.leads(True) and not folder.exists():
                Staging(place_of(folder, folders.staging_parent(project))).publish()
    return _checked(folder, ranks)


# ---- the one that was named --------------------------------------------------------------------------------


def _named(input_dir: str | PathLike[str] | None, project: ProjectConfiguration) -> Path | None:
    """Return the folder that the user named, which this machine may have sealed and not published."""
    if project.save_on_each_node and input_dir is not None:
        folder = Path(os.path.expanduser(input_dir))
        if not folder.exists() and _is_sealed(place_of(folder).staging):
            return folder
    return folders.to_read(input_dir, project)


def _bring_together(folder: Path, project: ProjectConfiguration, ranks: Ranks) -> None:
    """Finish what was interrupted, and have every machine show the newest generation that all have."""
    each = project.save_on_each_node
    with ranks.step("while looking for the checkpoint", _NOTHING_LOADED) as step:
        if ranks.leads(each):
            place = place_of(folder)
            recover(place)
            if each and ranks.size > ranks.local_size:
                step.value = (_generation(place.target), _generation(place.staging))
    machines = [answer for answer in step.answers if answer is not None]
    if len({shown for shown, _ in machines}) < 2:
        return
    # A generation begins with the time of the save.
    common = set.intersection(*map(set, machines)) - {_LEGACY, _UNREADABLE}
    with ranks.step("while publishing a checkpoint", _NOTHING_LOADED):
        if not common:
            raise CheckpointError(f"{folder} is not of one save on every machine, and no save is on all.")
        if ranks.leads(each) and _generation(folder) != max(common):
            Staging(place_of(folder)).publish()
