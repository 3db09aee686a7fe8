import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from accelerate.launching import watchdog
from accelerate.launching.guard import Signals, Watchdog

SLEEPER = "import time; time.sleep(60)"
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(60)
"""


class Ended(Exception):
    """Raised where a signal ends the launch."""


def start(code: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE, text=True
    )


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[str]"]:
    with start(SLEEPER) as process:
        yield process
        process.kill()


def test_the_first_signal_raises_and_the_next_forces() -> None:
    forced = []
    with Signals(Ended, lambda: forced.append(True)) as signals:
        with pytest.raises(Ended):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    assert signals.received is signal.SIGTERM
    assert forced == [True]


def test_a_deferred_signal_waits_for_the_end_of_the_block() -> None:
    done = []

    def work(signals: Signals) -> None:
        with signals.deferred():
            os.kill(os.getpid(), signal.SIGTERM)
            done.append(True)

    with Signals(Ended, lambda: None) as signals, pytest.raises(Ended):
        work(signals)
    assert done == [True]


def test_former_handlers_come_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with Signals(Ended, lambda: None):
        assert signal.getsignal(signal.SIGTERM) is not before[1]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals(Ended, lambda: None):
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_watchdog_leaves_ranks_alone_that_are_let_go(sleeper: "subprocess.Popen[str]") -> None:
    with Watchdog() as guard:
        guard.guard([sleeper.pid])
    time.sleep(0.1)
    assert sleeper.poll() is None


def test_the_watchdog_ends_ranks_when_its_pipe_ends(sleeper: "subprocess.Popen[str]") -> None:
    guard = Watchdog()
    guard.guard([sleeper.pid])
    stdin = guard._process.stdin
    assert stdin is not None
    stdin.close()  # as the kernel does when the launcher is killed
    assert sleeper.wait(10) == -signal.SIGTERM
    guard._process.wait(10)


def test_insisting_reaches_a_process_that_swallowed_the_first_signal() -> None:
    code = """
import signal, sys
seen = []
def swallow(number, frame):
    seen.append(number)
    if len(seen) == 3:
        sys.exit(7)
signal.signal(signal.SIGINT, swallow)
print("up", flush=True)
while True:
    signal.pause()
"""
    with start(code) as process, Watchdog() as guard:
        assert process.stdout is not None
        process.stdout.readline()
        guard.guard([process.pid])
        guard.insist(signal.SIGINT, 0.05)
        assert process.wait(10) == 7


def test_kill_is_at_once(sleeper: "subprocess.Popen[str]") -> None:
    with Watchdog() as guard:
        guard.guard([sleeper.pid])
        guard.kill()
        assert sleeper.wait(10) == -signal.SIGKILL


def test_end_asks_first_and_kills_who_does_not_listen() -> None:
    with start(STUBBORN) as process:
        assert process.stdout is not None
        process.stdout.readline()
        watchdog.end({process.pid}, grace=0.2)
        assert process.wait(10) == -signal.SIGKILL
    watchdog.end({process.pid}, grace=0.2)  # nobody is left: no error
