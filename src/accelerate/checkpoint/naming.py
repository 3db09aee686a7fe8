"""Names of the files and folders of a checkpoint. Pure; called by all that writes or reads one.

The names are the interface's: the i-th object of a kind has no number when i is 0, except custom objects,
which always have one, and random states, which are numbered by rank.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from accelerate.compat.constants import (
    MODEL_NAME,
    OPTIMIZER_NAME,
    RNG_STATE_NAME,
    SAFE_MODEL_NAME,
    SAMPLER_NAME,
    SCALER_NAME,
    SCHEDULER_NAME,
)

__all__ = [
    "CHECKPOINTS_FOLDER",
    "SAFE_WEIGHTS",
    "UNSAFE_WEIGHTS",
    "WeightsFormat",
    "checkpoint_folder",
    "checkpoint_number",
    "custom_object",
    "custom_object_index",
    "gradients",
    "gradients_rank",
    "is_checkpoint_file",
    "is_kind",
    "list_checkpoints",
    "loader",
    "newest_checkpoint",
    "optimizer",
    "random_states",
    "random_states_rank",
    "sampler",
    "scaler",
    "scheduler",
    "weights",
    "weights_format",
]

CHECKPOINTS_FOLDER = "checkpoints"

_CHECKPOINT = re.compile(r"checkpoint_(\d+)", re.ASCII)
_CUSTOM_OBJECT = re.compile(r"custom_checkpoint_(\d+)\.pkl", re.ASCII)
_RANDOM_STATES = re.compile(rf"{RNG_STATE_NAME}_(\d+)\.pkl", re.ASCII)
_GRADIENTS = re.compile(r"gradients_(\d+)\.safetensors", re.ASCII)
_ONE_A_KIND = re.compile(
    rf"{SAFE_MODEL_NAME}(_\d+)?\.safetensors|{MODEL_NAME}(_fsdp)?(_\d+)?(_rank\d+)?\.bin"
    rf"|({OPTIMIZER_NAME}|{SCHEDULER_NAME}|{SAMPLER_NAME}|dl_state_dict)(_\d+)?(_rank\d+)?\.bin"
    rf"|{re.escape(SCALER_NAME)}|({MODEL_NAME}_fsdp|{OPTIMIZER_NAME})_\d+/.+",
    re.ASCII,
)


@dataclass(frozen=True, kw_only=True)
class WeightsFormat:
    """File names of one way to store the weights of a model.

    Attributes:
        safe: whether files are safetensors; pickles of torch.save otherwise.
        stem: how every name begins.
        extension: how every name of a file with tensors ends, with its dot.
    """

    safe: bool
    stem: str
    extension: str

    @property
    def single(self) -> str:
        """Name of the only file of a model that is not sharded."""
        return f"{self.stem}{self.extension}"

    @property
    def index(self) -> str:
        """Name of the file that says which shard holds which tensor."""
        return f"{self.single}.index.json"

    @property
    def shard_pattern(self) -> str:
        """Name of a shard, with `{suffix}` where its number goes."""
        return f"{self.stem}{{suffix}}{self.extension}"

    def numbered(self, index: int) -> str:
        """Return the name of the weights of the index-th model of a checkpoint."""
        return _numbered(self.stem, index, self.extension)

    def is_shard(self, name: str) -> bool:
        """Return whether this is the name of a numbered shard."""
        pattern = re.escape(self.stem) + r"-\d{5,}-of-\d{5,}" + re.escape(self.extension)
        return re.fullmatch(pattern, name, re.ASCII) is not None


SAFE_WEIGHTS = WeightsFormat(safe=True, stem=SAFE_MODEL_NAME, extension=".safetensors")
UNSAFE_WEIGHTS = WeightsFormat(safe=False, stem=MODEL_NAME, extension=".bin")


def weights_format(safe_serialization: bool) -> WeightsFormat:
    """Return the names for safetensors, or for pickles when `safe_serialization` is off."""
    return SAFE_WEIGHTS if safe_serialization else UNSAFE_WEIGHTS


def weights(index: int, *, safe_serialization: bool) -> str:
    """Return the name of the weights of the index-th model.

    Example:
        >>> weights(0, safe_serialization=True), weights(1, safe_serialization=False)
        ('model.safetensors', 'pytorch_model_1.bin')
    """
    return weights_format(safe_serialization).numbered(index)


def optimizer(index: int) -> str:
    """Return the name of the state of the index-th optimizer."""
    return _numbered(OPTIMIZER_NAME, index, ".bin")


def scheduler(index: int) -> str:
    """Return the name of the state of the index-th learning rate scheduler."""
    return _numbered(SCHEDULER_NAME, index, ".bin")


def sampler(index: int) -> str:
    """Return the name of the sampler of the index-th loader."""
    return _numbered(SAMPLER_NAME, index, ".bin")


def loader(index: int) -> str:
    """Return the name of the position of the index-th loader, for loaders that keep one."""
    return _numbered("dl_state_dict", index, ".bin")


def scaler() -> str:
    """Return the name of the state of the gradient scaler."""
    return SCALER_NAME


def custom_object(index: int) -> str:
    """Return the name of the state of the index-th registered object."""
    return f"custom_checkpoint_{index}.pkl"


def custom_object_index(name: str) -> int | None:
    """Return which registered object's state this file name holds, None when it is no such name."""
    return _number(_CUSTOM_OBJECT, name)


def random_states(rank: int) -> str:
    """Return the name of the random number generators' states of one rank."""
    return f"{RNG_STATE_NAME}_{rank}.pkl"


def random_states_rank(name: str) -> int | None:
    """Return whose random states this file name holds, None when it is no such name."""
    return _number(_RANDOM_STATES, name)


def gradients(rank: int) -> str:
    """Return the name of one rank's gradients, for a checkpoint inside an accumulation window."""
    return f"gradients_{rank}.safetensors"


def gradients_rank(name: str) -> int | None:
    """Return whose gradients this file name holds, None when it is no such name."""
    return _number(_GRADIENTS, name)


def is_checkpoint_file(name: str) -> bool:
    """Return whether `save_state`, here or in the interface, gives this name to a file inside a checkpoint.

    Args:
        name: path inside the folder, with "/".
    """
    numbered = (_CUSTOM_OBJECT, _RANDOM_STATES, _GRADIENTS)
    return any(pattern.fullmatch(name) for pattern in (_ONE_A_KIND, *numbered))


def is_kind(name: str, *, models: bool = False, optimizers: bool = False, schedulers: bool = False) -> bool:
    """Return whether a file of a checkpoint is of one of these kinds, whoever wrote it."""
    stems = {
        (MODEL_NAME, SAFE_MODEL_NAME): models,
        (OPTIMIZER_NAME,): optimizers,
        (SCHEDULER_NAME,): schedulers,
    }
    return any(asked and name.startswith(stem) for stem, asked in stems.items())


def checkpoint_folder(project_dir: str | os.PathLike[str], iteration: int) -> Path:
    """Return where automatic naming puts the checkpoint of this iteration."""
    return Path(project_dir) / CHECKPOINTS_FOLDER / f"checkpoint_{iteration}"


def checkpoint_number(name: str) -> int | None:
    """Return the iteration that this folder name of automatic naming stands for, None for other names.

    Example:
        >>> checkpoint_number("checkpoint_12"), checkpoint_number("best")
        (12, None)
    """
    return _number(_CHECKPOINT, name)


def list_checkpoints(names: Iterable[str]) -> list[str]:
    """Return those names that automatic naming gives, the oldest (lowest number) first.

    Example:
        >>> list_checkpoints(["checkpoint_10", "best", "checkpoint_9"])
        ['checkpoint_9', 'checkpoint_10']
    """
    numbered = ((checkpoint_number(name), name) for name in names)
    return [name for _, name in sorted((number, name) for number, name in numbered if number is not None)]


def newest_checkpoint(names: Iterable[str]) -> str | None:
    """Return the name with the highest number, None when automatic naming gave none of them."""
    checkpoints = list_checkpoints(names)
    return checkpoints[-1] if checkpoints else None


def _numbered(stem: str, index: int, extension: str) -> str:
    return f"{stem}{extension}" if index == 0 else f"{stem}_{index}{extension}"


def _number(pattern: re.Pattern[str], name: str) -> int | None:
    match = pattern.fullmatch(name)
    return int(match.group(1)) if match else None
