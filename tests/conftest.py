"""Fixtures for every test, and the guard that keeps tests from leaking into each other."""

import os
import signal
from collections.abc import Iterator

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; the tests run several processes
os.environ.pop("PYTHONUNBUFFERED", None)  # with it a print is several writes, which ranks on one pipe mix up
# torch asks for the name of the other side of each connection; where a name server loses questions (some
# machines' do), the rank that asked stands still for the resolver's 5 s, longer than many a test may take.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:5")
from tests.support.isolation import undo_leaks, watched_variables
from tests.support.rank_pool import RankPool

# A shell has what runs in the background ignore interrupts, `nohup` hangups; launches would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def rank_pool() -> Iterator[RankPool]:
    """Give the pool of ranks that lives as long as the test run; see `RankPool.run`."""
    pool = RankPool()
    yield pool
    pool.close()


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """Fail a test that leaves variables or a process group to the next one; reset the current run."""
    before = watched_variables()
    yield
    leaks = undo_leaks(before)
    if leaks:
        pytest.fail("the test left something behind: " + "; ".join(leaks), pytrace=False)
