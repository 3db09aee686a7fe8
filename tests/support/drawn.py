"""Cases that hypothesis draws, checked on all ranks of the pool at once, and a small one to show."""

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from accelerate.runtime.current import current
from tests.support.rank_pool import RankPool

SEED = 20
NUM_CASES = 50  # drawn for each check and number of ranks


def failing(check: Callable[[Any], None], drawn: list[Any]) -> dict[int, str]:
    """Run on every rank: return the cases, by index, for which the check fails, with the error."""
    current.start(cpu=True, timeout=timedelta(seconds=20))
    failures = {}
    for index, case in enumerate(drawn):
        try:
            check(case)
        except Exception as error:
            failures[index] = f"{type(error).__name__}: {error}"
    return failures


def repeatable(count: int) -> settings:
    """Return settings of hypothesis with which the same cases are drawn in every test run."""
    return settings(max_examples=count, database=None, deadline=None, suppress_health_check=list(HealthCheck))


@functools.cache
def drawn_from(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """Return the cases that hypothesis draws, the same in every test run."""
    drawn: list[Any] = []

    @seed(SEED)
    @repeatable(count)
    @given(strategy)
    def draw(case: Any) -> None:
        drawn.append(case)

    draw()
    return drawn


def hold(
    pool: RankPool,
    num_ranks: int,
    check: Callable[[Any], None],
    strategy: st.SearchStrategy[Any],
    *,
    count: int = NUM_CASES,
    timeout: float = 30.0,
) -> None:
    """Fail with a small case if `check` fails for any of those drawn.

    Args:
        pool: of ranks.
        num_ranks: how many of them take part.
        check: called with a case on every rank; it raises if the case is not as it should be. What it asks
            other ranks it asks before it raises, lest these wait.
        strategy: draws cases.
        count: how many of them.
        timeout: seconds for all of them.
    """
    found = pool.run(failing, check, drawn_from(strategy, count), num_ranks=num_ranks, timeout=timeout)
    if not any(found):
        return

    @seed(SEED)
    @repeatable(count)
    @given(strategy)
    def alone(case: Any) -> None:
        failures = pool.run(failing, check, [case], num_ranks=num_ranks)
        if any(failures):
            raise AssertionError(f"on each rank: {failures}")

    alone()
    pytest.fail(f"failed only after other cases, on each rank by their numbers: {found}")
