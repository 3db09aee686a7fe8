"""A function as one rank of several forked processes, and what it raised, on its way back to the notebook.

Called by notebook.py and debug.py. Each process that fails leaves a file in a folder; when all have ended,
the first failure is raised in the process that started them, as the exception that it was.
"""

import logging
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from accelerate.compat import env
from accelerate.compat.system import physical_cores
from accelerate.errors import ConfigurationError, LaunchError, RankTraceback
from accelerate.runtime import process_group
from accelerate.state import AcceleratorState, GradientState

__all__ = [
    "RankFunction",
    "checked_arguments",
    "checked_count",
    "in_fresh_thread",
    "raise_first_failure",
    "silent_logger",
]

_STOP_TIMEOUT = 60.0  # seconds; longer than torch takes to kill what does not end
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class _Failure:
    """What one rank raised.

    Attributes:
        attempt: number of restarts before it.
        moment: seconds since the epoch.
        rank: who failed.
        text: its traceback.
        pickled: the exception; None where it cannot be pickled.
    """

    attempt: int
    moment: float
    rank: int
    text: str
    pickled: bytes | None


class RankFunction:
    """A function to be called in a forked process.

    Args:
        function: what is called there.
        folder: where a failure is noted.
        own_streams: whether what is printed goes to the process's own output, and not to the notebook's,
            so that it can be redirected.
    """

    def __init__(self, function: Callable[..., Any], folder: str, *, own_streams: bool = False) -> None:
        self.__qualname__ = self.__name__ = "RankFunction"  # torch elastic names what it starts
        self._function = function
        self._folder = folder
        self._own_streams = own_streams

    def __call__(self, *args: Any) -> None:
        """Forget the parent's run, call the function and leave the process group, or note the failure."""
        if self._own_streams:
            _write_to_own_streams()
        AcceleratorState._reset_state(True)
        GradientState._reset_state()
        env.put({"FORK_LAUNCHED": 1})
        try:
            _share_cores()
            self._function(*args)
            process_group.stop()
        except Exception as error:
            self._note(error)
            raise
        except BaseException as end:
            if isinstance(end, SystemExit) and end.code in (None, 0):
                return
            # torch takes these for a good end, or waits for a result that will not come.
            self._note(end)
            raise RuntimeError(f"ended by {end!r}") from end

    def _note(self, error: BaseException) -> None:
        failure = _Failure(
            attempt=env.get_int(["TORCHELASTIC_RESTART_COUNT"], 0),
            moment=time.time(),
            rank=env.get_int(["RANK"], 0),
            text=_traceback(error),
            pickled=_pickled(error),
        )
        _note_of(self._folder, os.getpid()).write_bytes(pickle.dumps(failure))


def checked_arguments(caller: str, function: Any, args: Any) -> tuple[Any, ...]:
    """Return what the function is to be called with.

    Raises:
        TypeError: `function` cannot be called, or `args` is no tuple or list.
    """
    if not callable(function):
        raise TypeError(f"{caller}({function!r}): give a function; it is called in each process")
    if not isinstance(args, tuple | list):
        raise TypeError(f"{caller}(args={args!r}): give a tuple, as in args=({args!r},)")
    return tuple(args)


def checked_count(caller: str, **given: Any) -> int:
    """Return a number of processes.

    Args:
        caller: the function of the user's call, for the message.
        given: its argument, by name.

    Raises:
        TypeError: it is no whole number.
        ConfigurationError: it is less than 1.
    """
    ((name, value),) = given.items()
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise TypeError(f"{caller}({name}={value!r}): give a whole number")
    if value < 1:
        raise ConfigurationError(f"{caller}({name}={value!r}): give at least 1")
    return int(value)


def in_fresh_thread(run: Callable[[], Result], interrupt: Callable[[], None]) -> Result:
    """Return what `run`, which forks processes, gives in a thread of its own.

    The threads with which a process computes in parallel are lost when it is forked, and a child that waits
    for them waits for ever. They belong to the thread that used them: one that is new has none to lose.

    Args:
        run: makes processes and waits for them.
        interrupt: ends the processes; called when this thread gets an interrupt meanwhile.
    """
    results: list[Result] = []
    errors: list[BaseException] = []
    done = threading.Event()  # a join that is interrupted takes the thread for ended, in some Pythons

    def work() -> None:
        try:
            results.append(run())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    with warnings.catch_warnings():
        # Python 3.12 warns of any fork beside threads; what is forked here has been made for it.
        warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)
        thread = threading.Thread(target=work, name="ranks", daemon=True)
        thread.start()
        try:
            done.wait()
        except BaseException:
            interrupt()
            done.wait(_STOP_TIMEOUT)
            raise
    if errors:
        raise errors[0]
    return results[0]


@contextmanager
def silent_logger(name: str) -> Iterator[None]:
    """Keep torch's own account of a failure off the screen, on which the exception will stand."""
    logger = logging.getLogger(name)
    former, silence = logger.propagate, logging.NullHandler()
    logger.propagate = False
    logger.addHandler(silence)
    try:
        yield
    finally:
        logger.propagate = former
        logger.removeHandler(silence)


def raise_first_failure(folder: str, num_ranks: int, processes: Sequence[Any], first_rank: int = 0) -> None:
    """Raise what the rank that failed first has raised.

    Args:
        folder: where the failures were noted.
        num_ranks: ranks of all machines, for messages.
        processes: those of this machine, in the order of ranks, all of them ended.
        first_rank: rank of the first one.

    Raises:
        LaunchError: a rank was ended from outside, its exception cannot be sent, or it called `sys.exit`.
    """
    # Who dies without a word is the reason why others lose the connection, and say so.
    for rank, process in enumerate(processes, first_rank):
        is_noted = _note_of(folder, process.pid).exists()
        if process.exitcode not in (None, 0, -signal.SIGTERM) and not is_noted:
            raise LaunchError(f"rank {rank} of {num_ranks} {_ending(process.exitcode)}")
    failures = [pickle.loads(file.read_bytes()) for file in Path(folder).glob("*.failure")]
    if not failures:
        raise LaunchError(f"a rank of {num_ranks} was ended by SIGTERM, from outside")
    last = max(failure.attempt for failure in failures)
    first = min((failure for failure in failures if failure.attempt == last), key=lambda one: one.moment)
    cause = RankTraceback(f"rank {first.rank} of {num_ranks}:\n{first.text}")
    error = None if first.pickled is None else pickle.loads(first.pickled)
    if isinstance(error, Exception):
        raise error from cause
    raise LaunchError(f"rank {first.rank} of {num_ranks} failed: {first.text.splitlines()[-1]}") from cause


def _note_of(folder: str, pid: int) -> Path:
    return Path(folder, f"{pid}.failure")


def _ending(exit_code: int) -> str:
    if exit_code >= 0:
        return f"ended with exit code {exit_code}, without an exception"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    hint = ": usually the machine ran out of memory" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}"


def _share_cores() -> None:
    if env.get("OMP_NUM_THREADS") in (None, "", "0"):
        torch.set_num_threads(max(1, physical_cores() // env.get_int(["LOCAL_WORLD_SIZE"], 1)))


def _traceback(error: BaseException) -> str:
    """Return the traceback from the user's function on."""
    own = str(Path(__file__).parent)
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(own) and trace.tb_next:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace)).rstrip()


def _pickled(error: BaseException) -> bytes | None:
    """Return the exception as bytes, if it comes out of them again: one with arguments of its own may not."""
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:  # whatever a user's class raises: then the traceback has to do
        return None
    return data


def _write_to_own_streams() -> None:
    """Let all that this process prints go where torch elastic has redirected Python's streams to.

    A kernel has put objects of its own in their places, which write to the notebook, and their descriptors,
    which are redirected, are not 1 and 2.
    """
    for name, number in (("stdout", 1), ("stderr", 2)):
        os.dup2(getattr(sys, name).fileno(), number)
        setattr(sys, name, os.fdopen(os.dup(number), "w", buffering=1))
