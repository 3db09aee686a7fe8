"""Every exception of this package, as one tree. Raised everywhere, caught by users.

    AccelerateError
    ├── ConfigurationError          (ValueError)    what was asked for contradicts itself or cannot be had
    │   ├── EnvironmentVariableError (ValueError)    an environment variable cannot be read
    │   ├── NothingGivenError       (IndexError)    no object was passed
    │   └── MissingConfigurationError (FileNotFoundError)  there is no such configuration file
    ├── NotInitializedError         (RuntimeError)  the current run has not been started
    ├── MissingPackageError         (ImportError)   an optional library is needed and not installed
    ├── DistributedOperationException               ranks disagree about a collective
    │   └── AbsentRankError         (RuntimeError)  some ranks did not come to it, or are gone
    ├── CheckpointError             (RuntimeError)  a checkpoint cannot be written or read
    │   ├── MissingCheckpointFileError (FileNotFoundError)     a file that should be there is not
    │   ├── MismatchedCheckpointError  (ValueError)    a file is of another object than the one to be loaded
    │   ├── CheckpointWriteError       (OSError)       the system refused to write: a full disk, say
    │   └── UnsafeCheckpointError      (pickle.UnpicklingError) reading a file would run code from it
    ├── OptimizerStepError          (RuntimeError)  an optimizer step cannot be made the way it was asked for
    ├── LaunchError                 (RuntimeError)  processes could not be started
    └── RankTraceback             what another process printed: the cause of an error

Each one also subclasses the builtin that callers already catch at that place.
"""

import pickle
from collections.abc import Sequence

__all__ = [
    "AbsentRankError",
    "AccelerateError",
    "CheckpointError",
    "CheckpointWriteError",
    "ConfigurationError",
    "DistributedOperationException",
    "EnvironmentVariableError",
    "LaunchError",
    "MismatchedCheckpointError",
    "MissingCheckpointFileError",
    "MissingConfigurationError",
    "MissingPackageError",
    "NotInitializedError",
    "NothingGivenError",
    "OptimizerStepError",
    "RankTraceback",
    "UnsafeCheckpointError",
    "listing",
]


class AccelerateError(Exception):
    """Root of all errors that this package raises on purpose."""


class ConfigurationError(AccelerateError, ValueError):
    """What was asked for contradicts itself, or this machine cannot do it."""


class EnvironmentVariableError(ConfigurationError):
    """An environment variable holds text that cannot be read, or is set without its partner."""


class NothingGivenError(ConfigurationError, IndexError):
    """A call that works on objects was given none."""


class MissingConfigurationError(ConfigurationError, FileNotFoundError):
    """A configuration file that was asked for is not there."""


class NotInitializedError(AccelerateError, RuntimeError):
    """Something needs the current run, and neither `PartialState()` nor `Accelerator()` was called."""


class MissingPackageError(AccelerateError, ImportError):
    """An optional library is needed for what was asked, and is not installed."""


class DistributedOperationException(AccelerateError):
    """Ranks disagree about the operation, structure, shape or dtype of a collective."""


class AbsentRankError(DistributedOperationException, RuntimeError):
    """A collective failed because ranks did not come to it in time, or the connection to them is lost."""


class CheckpointError(AccelerateError, RuntimeError):
    """A checkpoint cannot be written, or is damaged or incomplete."""


class MissingCheckpointFileError(CheckpointError, FileNotFoundError):
    """A checkpoint folder lacks a file that what is being loaded needs."""


class MismatchedCheckpointError(CheckpointError, ValueError):
    """A file of a checkpoint is of another object than the one that is to be loaded."""


class CheckpointWriteError(CheckpointError, OSError):
    """The system refused to write a file of a checkpoint: the disk is full, say.

    Args:
        message: what could not be written, and why.
        number: `errno` of the system's error.
        path: the file.
    """

    def __init__(self, message: str, number: int | None = None, path: str | None = None) -> None:
        super().__init__(message)
        self.errno = number
        self.filename = path

    def __str__(self) -> str:
        return str(self.args[0])


class UnsafeCheckpointError(CheckpointError, pickle.UnpicklingError):
    """Reading a file would import or call something that is not on the list of safe names."""


class OptimizerStepError(AccelerateError, RuntimeError):
    """An optimizer step, or what belongs to it, cannot be made at this point or in this way."""


class LaunchError(AccelerateError, RuntimeError):
    """Processes could not be started, or the launcher itself failed."""


class RankTraceback(AccelerateError):
    """The traceback of another process, as text: the cause of an exception that came from there."""


def listing(problems: Sequence[str]) -> str:
    """Return one problem as it is, and several as a numbered list: the message of one error."""
    if len(problems) == 1:
        return problems[0]
    lines = [f"  {number}. {text}" for number, text in enumerate(problems, start=1)]
    return "\n".join([f"{len(problems)} problems, nothing was started:", *lines])
