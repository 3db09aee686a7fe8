"""The rank pool itself: what comes back, what is shown when a rank fails, and that nothing leaks."""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.support.rank_pool import RankError, RankPool

LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@pytest.fixture(scope="module")
def pool() -> Any:
    """Give a pool of this file's own, since its tests kill workers."""
    pool = RankPool()
    yield pool
    pool.close()


def rank() -> int:
    return int(os.environ["RANK"])


def world() -> int:
    return int(os.environ["WORLD_SIZE"])


def joined() -> None:
    dist.init_process_group("gloo")


def launcher_variables(offset: int, *, scale: int = 1) -> tuple[int, dict[str, str]]:
    return offset + scale * rank(), {name: os.environ[name] for name in LAUNCHER_VARIABLES}


def summed(value: float) -> torch.Tensor:
    joined()
    tensor = torch.full((3,), value * (rank() + 1))
    dist.all_reduce(tensor)
    return tensor


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
def test_values_come_back_in_rank_order_with_a_launchers_variables(pool: RankPool, num_ranks: int) -> None:
    results = pool.run(launcher_variables, 10, scale=2, num_ranks=num_ranks)
    assert [value for value, _ in results] == [10 + 2 * r for r in range(num_ranks)]
    assert len({variables.pop("MASTER_PORT") for _, variables in results}) == 1
    for r, (_, variables) in enumerate(results):
        assert variables == {
            "RANK": str(r),
            "WORLD_SIZE": str(num_ranks),
            "LOCAL_RANK": str(r),
            "LOCAL_WORLD_SIZE": str(num_ranks),
            "MASTER_ADDR": "127.0.0.1",
        }


@pytest.mark.parametrize("num_ranks", [2, 3, 4])
def test_ranks_form_a_gloo_group(pool: RankPool, num_ranks: int) -> None:
    total = 0.5 * sum(range(1, num_ranks + 1))
    results = pool.run(summed, 0.5, num_ranks=num_ranks)
    assert all(torch.equal(result, torch.full((3,), total)) for result in results)


def test_workers_are_kept_and_groups_are_new_each_time(pool: RankPool) -> None:
    first = pool.run(launcher_variables, 0)
    pids = pool.pids()
    second = pool.run(launcher_variables, 0)
    assert pool.pids() == pids
    assert first[0][1]["MASTER_PORT"] != second[0][1]["MASTER_PORT"]


def test_the_number_of_ranks_is_checked(pool: RankPool) -> None:
    for num_ranks in (0, 5):
        with pytest.raises(ValueError, match=f"num_ranks={num_ranks}: the pool has 1 to 4 ranks"):
            pool.run(joined, num_ranks=num_ranks)


# Failures


def all_raise() -> None:
    print("about to fail")
    raise KeyError(f"key of rank {rank()}")


def test_every_ranks_traceback_and_output_is_shown_and_the_workers_stay(pool: RankPool) -> None:
    pool.run(joined, num_ranks=3)
    pids = pool.pids()
    with pytest.raises(RankError, match=r"all_raise on 3 ranks: rank \d raised KeyError") as caught:
        pool.run(all_raise, num_ranks=3)
    assert sorted(failure.rank for failure in caught.value.failures) == [0, 1, 2]
    assert {failure.error_type for failure in caught.value.failures} == {"KeyError"}
    for failure in caught.value.failures:
        assert f"KeyError: 'key of rank {failure.rank}'" in failure.details
        assert "in all_raise" in failure.details
        assert "rank_worker" not in failure.details
        assert failure.output == "about to fail\n"
    assert pool.pids() == pids


def one_raises_while_the_others_wait() -> None:
    joined()
    if rank() == 1:
        raise RuntimeError("the cause")
    wait_in_a_collective()


def wait_in_a_collective() -> None:
    dist.all_reduce(torch.ones(1))


def test_a_raising_rank_ends_its_waiting_peers_within_seconds(pool: RankPool) -> None:
    pool.run(joined, num_ranks=3)
    begin = time.monotonic()
    with pytest.raises(RankError, match="rank 1 raised RuntimeError") as caught:
        pool.run(one_raises_while_the_others_wait, num_ranks=3, timeout=60)
    assert time.monotonic() - begin < 20
    cause, *others = caught.value.failures
    assert (cause.rank, cause.error_type) == (1, "RuntimeError")
    assert "RuntimeError: the cause" in cause.details
    assert [failure.rank for failure in others] == [0, 2]
    for failure in others:
        assert "was still running" in failure.summary
        assert "in wait_in_a_collective" in failure.details
    message = str(caught.value)
    assert message.index("RuntimeError: the cause") < message.index("in wait_in_a_collective")
    assert pool.run(summed, 1.0, num_ranks=3)[0].tolist() == [6.0] * 3


def sleep_forever_on_rank_0() -> None:
    print("going to sleep")
    if rank() == 0:
        the_long_sleep()


def the_long_sleep() -> None:
    time.sleep(1000)


def test_a_timeout_names_the_function_that_hangs(pool: RankPool) -> None:
    pool.run(joined)
    with pytest.raises(RankError, match=r"rank 0 timed out after 0\.5 s") as caught:
        pool.run(sleep_forever_on_rank_0, timeout=0.5)
    (failure,) = caught.value.failures
    assert failure.rank == 0
    assert "in the_long_sleep" in failure.details
    assert "in the_long_sleep" in str(caught.value)
    assert failure.output == "going to sleep\n"
    assert pool.run(rank) == [0, 1]


def vanish(code: int) -> None:
    joined()
    if rank() == 0:
        os._exit(code)
    wait_in_a_collective()


def test_a_rank_that_exits_is_reported_and_replaced(pool: RankPool) -> None:
    with pytest.raises(RankError, match="rank 0 ended with exit code 3"):
        pool.run(vanish, 3)
    assert pool.run(rank) == [0, 1]


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_rank_is_reported_and_replaced(pool: RankPool) -> None:
    with pytest.raises(RankError, match="ended with exit code -9") as caught:
        pool.run(kill_self)
    assert len(caught.value.failures) == 2
    assert pool.run(rank) == [0, 1]


def test_a_worker_that_died_between_calls_is_replaced(pool: RankPool) -> None:
    pool.run(rank)
    victim = pool.pids()[1]
    os.kill(victim, signal.SIGKILL)
    os.waitid(os.P_PID, victim, os.WEXITED | os.WNOWAIT)
    assert pool.run(rank) == [0, 1]
    assert victim not in pool.pids()


def leave_sys_exit() -> None:
    sys.exit(5)


def test_sys_exit_in_a_rank_is_a_failure_not_an_end(pool: RankPool) -> None:
    pool.run(rank)
    pids = pool.pids()
    with pytest.raises(RankError, match="raised SystemExit"):
        pool.run(leave_sys_exit)
    assert pool.pids() == pids


def fail_an_assert() -> None:
    answer = 41
    assert answer == 42


def test_a_failed_assert_shows_its_local_variables(pool: RankPool) -> None:
    with pytest.raises(RankError, match="answer = 41"):
        pool.run(fail_an_assert)


def cannot_join_on_rank_0() -> None:
    if rank() == 0:
        with socket.socket() as taken:
            taken.bind(("", 0))
            os.environ["MASTER_PORT"] = str(taken.getsockname()[1])
            joined()


def test_a_group_that_could_not_be_made_does_not_spoil_the_next(pool: RankPool) -> None:
    pool.run(rank)
    pids = pool.pids()
    with pytest.raises(RankError, match="rank 0 raised DistNetworkError"):
        pool.run(cannot_join_on_rank_0)
    assert pool.run(summed, 1.0, timeout=10)[0].tolist() == [3.0] * 3
    assert pool.pids() == pids


# What cannot be sent


def test_an_unpicklable_function_or_argument_is_refused_at_once(pool: RankPool) -> None:
    def nested() -> None:
        raise AssertionError("never called")

    for call in ((lambda: None,), (nested,), (rank, threading.Lock())):
        with pytest.raises(TypeError, match="cannot be sent to the ranks") as caught:
            pool.run(*call)
        assert "top level of a module" in str(caught.value)


def return_a_lock() -> Any:
    return threading.Lock()


def test_an_unpicklable_value_is_named(pool: RankPool) -> None:
    with pytest.raises(RankError, match="the function returned lock, which cannot be pickled"):
        pool.run(return_a_lock)


def test_a_function_that_the_ranks_cannot_import_is_a_failure(
    pool: RankPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("only_here")
    module.function = type("f", (), {})  # type: ignore[attr-defined]
    module.function.__module__ = "only_here"
    module.function.__qualname__ = "function"
    monkeypatch.setitem(sys.modules, "only_here", module)
    with pytest.raises(RankError, match="No module named 'only_here'"):
        pool.run(module.function)


# State


def make_a_mess() -> None:
    joined()
    os.environ["ACCELERATE_MESS"] = os.environ["MESS"] = "1"
    os.chdir("/")
    random.seed(7)
    torch.manual_seed(7)
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    warnings.simplefilter("ignore")
    sys.path.append("/nowhere")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.excepthook = lambda *_: None


def surroundings() -> dict[str, Any]:
    return {
        "joined": dist.is_initialized(),
        "environment": sorted(name for name in os.environ if "MESS" in name),
        "folder": os.getcwd(),
        "random": random.random(),
        "torch": torch.rand(1).item(),
        "dtype": torch.get_default_dtype(),
        "grad": torch.is_grad_enabled(),
        "path": list(sys.path),
        "signal": signal.getsignal(signal.SIGTERM),
        "hook": sys.excepthook is sys.__excepthook__,
        "filters": len(warnings.filters),
    }


def test_a_call_leaves_nothing_to_the_next(pool: RankPool) -> None:
    pool.run(rank)
    pids = pool.pids()
    pool.run(make_a_mess)
    messy_then_clean = pool.run(surroundings)
    pool.run(rank)
    assert messy_then_clean == pool.run(surroundings)
    assert pool.pids() == pids
    state = messy_then_clean[0]
    assert state["joined"] is False
    assert state["environment"] == []
    assert state["folder"] == os.getcwd()
    assert state["dtype"] is torch.float32
    assert state["grad"] is True
    assert state["path"] == sys.path
    assert state["signal"] == signal.SIG_DFL
    assert state["hook"] is True
    assert state["filters"] == len(warnings.filters)


def start_a_run() -> tuple[bool, ...]:
    from accelerate.state import GradientState, set_up_training

    set_up_training("no", cpu=True)
    GradientState()
    return what_is_left()


def what_is_left() -> tuple[bool, ...]:
    from accelerate.runtime.accumulation import accumulation
    from accelerate.runtime.current import current
    from accelerate.state import AcceleratorState

    return bool(current.__dict__), bool(accumulation.__dict__), bool(AcceleratorState._shared_state)


def test_the_state_of_accelerate_is_reset(pool: RankPool) -> None:
    assert pool.run(start_a_run) == [(True, True, True)] * 2
    assert pool.run(what_is_left) == [(False, False, False)] * 2


def start_a_thread() -> None:
    threading.Thread(target=the_long_sleep, name="forgotten").start()


def test_a_thread_left_behind_is_a_failure_and_costs_the_worker(pool: RankPool) -> None:
    with pytest.raises(RankError, match="threads still running: forgotten"):
        pool.run(start_a_thread)
    assert pool.run(rank) == [0, 1]


def see(name: str) -> tuple[str | None, str]:
    return os.environ.get(name), os.getcwd()


def test_ranks_see_the_environment_and_folder_of_the_test(
    pool: RankPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pool.run(rank)
    monkeypatch.setenv("SEEN_BY_RANKS", "yes")
    monkeypatch.chdir(tmp_path)
    assert pool.run(see, "SEEN_BY_RANKS") == [("yes", str(tmp_path))] * 2


def warn() -> str:
    warnings.warn("careful", UserWarning, stacklevel=1)
    return "warned"


def test_a_warning_in_a_rank_is_an_error(pool: RankPool) -> None:
    with pytest.raises(RankError, match="UserWarning: careful"):
        pool.run(warn)


@pytest.mark.filterwarnings("ignore:careful")
def test_a_tests_own_warning_filter_holds_in_the_ranks(pool: RankPool) -> None:
    assert pool.run(warn) == ["warned"] * 2


def write_from_below() -> None:
    os.write(1, b"from the file descriptor\n")
    subprocess.run(["echo", "from a child"], check=True)
    raise RuntimeError


def test_output_below_python_is_captured_and_belongs_to_one_call(pool: RankPool) -> None:
    for _ in range(2):
        with pytest.raises(RankError) as caught:
            pool.run(write_from_below)
        assert caught.value.failures[0].output == "from the file descriptor\nfrom a child\n"


# The end of the pool


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def gone(pids: list[int]) -> bool:
    end = time.monotonic() + 10
    while any(map(alive, pids)):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")


@needs_proc
def test_close_ends_the_workers_and_the_pool_can_start_again() -> None:
    pool = RankPool()
    try:
        assert pool.run(rank) == [0, 1]
        pids = pool.pids()
        pool.close()
        assert gone(pids)
        assert pool.run(rank, num_ranks=1) == [0]
    finally:
        pool.close()


HOLD_A_POOL = """
import time
from tests.distributed import test_rank_pool
from tests.support.rank_pool import RankPool

pool = RankPool()
pool.run(test_rank_pool.rank)
print(*pool.pids(), flush=True)
pool.run(test_rank_pool.start_a_child_and_sleep, timeout=1000)
"""


def start_a_child_and_sleep() -> None:
    subprocess.Popen(["sleep", "1000"])
    the_long_sleep()


@needs_proc
def test_workers_die_with_the_process_that_holds_the_pool() -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_A_POOL],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        assert holder.stdout is not None
        pids = [int(pid) for pid in holder.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(alive, pids))
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert gone(pids)
