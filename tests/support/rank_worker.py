"""One worker process of the rank pool: a script that `rank_pool.Worker` starts.

[Note: a call, seen from a worker]
Over one duplex pipe, in this order:
    pool -> worker   request: surroundings (path, folder, environment, warning filters) and a pickled call
    worker -> pool   outcome: RETURNED with the pickled value, or RAISED with the name and the traceback
    pool -> worker   RESET: every rank has answered, or those that have not are gone
    worker -> pool   complaints: what the call left behind and the reset could not mend
The reset waits for the pool's word, so that no rank closes its sockets while a peer still reads from them.
The end of the pipe means that the pool is gone: the worker then ends itself and whatever it started.
"""

import contextlib
import faulthandler
import gc
import os
import pickle
import queue
import random
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any

RETURNED, RAISED, RESET = "returned", "raised", b"reset"
STACK_SIGNAL = signal.SIGUSR1


def main() -> None:
    """Serve calls until the pool goes away. Arguments: pipe's file descriptor, file for stack dumps."""
    connection = Connection(int(sys.argv[1]))
    stacks = open(sys.argv[2], "a")  # noqa: SIM115  faulthandler writes to it as long as the process lives
    faulthandler.register(STACK_SIGNAL, file=stacks, all_threads=True)
    faulthandler.enable()
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, requests), daemon=True).start()
    import torch
    import torch.distributed

    settled = Settled(torch)
    connection.send_bytes(pickle.dumps([]))
    while True:
        connection.send_bytes(pickle.dumps(_call(requests.get())))
        if requests.get() != RESET:
            raise AssertionError("the pool sent a request before RESET")
        connection.send_bytes(pickle.dumps(settled.restore()))


def _receive(connection: Connection, requests: "queue.SimpleQueue[bytes]") -> None:
    """Pass on what the pool sends; a thread of its own, so that the pool's end is seen during a call too."""
    while True:
        try:
            requests.put(connection.recv_bytes())
        except (EOFError, OSError):
            os.killpg(os.getpid(), signal.SIGKILL)


def _call(request: bytes) -> tuple[str, Any, str]:
    surroundings, call = pickle.loads(request)
    sys.path[:] = surroundings["path"]
    os.chdir(surroundings["folder"])
    os.environ.clear()
    os.environ.update(surroundings["environment"])
    try:
        _set_warning_filters(pickle.loads(surroundings["filters"]))
        function, args, kwargs = pickle.loads(call)
        return RETURNED, _pickled(function(*args, **kwargs)), ""
    except BaseException as error:
        return RAISED, type(error).__name__, _formatted(error)
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()


def _set_warning_filters(filters: list[Any]) -> None:
    warnings.resetwarnings()
    for action, message, category, module, line in reversed(filters):
        warnings.simplefilter(action, category, line)
        if message or module:  # the public functions take text only and compile it again with other flags
            warnings.filters[0] = (action, message, category, module, line)  # type: ignore[index]


def _pickled(value: object) -> bytes:
    try:
        return pickle.dumps(value)
    except Exception as error:
        raise TypeError(
            f"the function returned {type(value).__name__}, which cannot be pickled ({error}): "
            "return tensors, numbers, text, or containers of them"
        ) from None


def _formatted(error: BaseException) -> str:
    """Return the traceback from the called function on; a failed assert also shows the local variables."""
    assert error.__traceback__ is not None
    inner = error.__traceback__.tb_next or error.__traceback__
    with_locals = isinstance(error, AssertionError)
    lines = traceback.TracebackException(type(error), error, inner, capture_locals=with_locals).format()
    return "".join(lines)


def reset_accelerate() -> None:
    """Forget the current run in every room that keeps state, as far as the rooms are loaded."""
    resets: dict[str, Callable[[Any], None]] = {
        "accelerate.state": lambda module: module.AcceleratorState._reset_state(),
        "accelerate.runtime.current": lambda module: module.current.reset(),
        "accelerate.runtime.accumulation": lambda module: module.accumulation.reset(),
    }
    for name, reset in resets.items():
        if name in sys.modules:
            reset(sys.modules[name])


class Settled:
    """How the process is before any call, and the way back to it. Made once by `main`."""

    def __init__(self, torch: ModuleType) -> None:
        self.torch = torch
        self.num_threads = torch.get_num_threads()
        self.threads = set(threading.enumerate())
        self.signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        self.excepthook = sys.excepthook
        self.former_groups: list[Any] = []
        self._garbage()

    def restore(self) -> list[str]:
        """Undo what a call may have left, and return what could not be undone."""
        complaints = []
        for step in (self._groups, reset_accelerate, self._process, self._torch, self._garbage):
            try:
                step()
            except BaseException as error:
                complaints.append(f"{step.__name__.strip('_')} could not be reset:\n{_formatted(error)}")
        left = [t.name for t in set(threading.enumerate()) - self.threads if not t.daemon and t.is_alive()]
        if left:
            complaints.append(f"threads still running: {', '.join(sorted(left))}")
        return complaints

    def _groups(self) -> None:
        # A thread of gloo may still let go of the closure of a communication hook. Were that the last
        # reference to the group, the thread would join itself and the process abort: keep one until later.
        self.former_groups = list(self.torch.distributed.distributed_c10d._world.pg_map)
        if self.torch.distributed.is_initialized():
            self.torch.distributed.destroy_process_group()
        # An init_process_group that fails leaves its number taken: the next group would wait for peers
        # under a name that they do not use.
        self.torch.distributed.distributed_c10d._world.group_count = 0

    def _process(self) -> None:
        for number, handler in self.signals.items():
            signal.signal(number, handler)
        sys.excepthook = self.excepthook

    def _torch(self) -> None:
        torch = self.torch
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
        if torch.are_deterministic_algorithms_enabled():  # asking is free, telling imports half of torch
            torch.use_deterministic_algorithms(False)
        if torch.get_num_threads() != self.num_threads:
            torch.set_num_threads(self.num_threads)
        torch.manual_seed(0)
        random.seed(0)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(0)

    def _garbage(self) -> None:
        gc.collect()
        gc.freeze()  # what survives is modules, for good: the next collection need not walk them again


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
