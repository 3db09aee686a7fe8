"""The contract of Strategy, over every strategy that runs here, on real gloo ranks."""

import pytest

from accelerate.strategies.base import Strategy
from accelerate.strategies.ddp import DDP
from accelerate.strategies.fsdp2 import FSDP2
from accelerate.strategies.select import STRATEGIES
from tests.contract import strategy_checks

RANKS = {Strategy: [1], DDP: [2, 3]}
# Their gradients are parts, which the checks do not read; see tests/distributed/test_fsdp.
SHARDED = {FSDP2}
CASES = [(kind, ranks) for kind, counts in RANKS.items() for ranks in counts]


def test_every_strategy_is_covered():
    assert set(STRATEGIES.values()) == set(RANKS) | SHARDED


@pytest.mark.parametrize(("kind", "num_ranks"), CASES)
@pytest.mark.parametrize("check", strategy_checks.CHECKS, ids=lambda check: check.__name__)
def test_contract(rank_pool, kind, num_ranks, check):
    rank_pool.run(check, num_ranks=num_ranks)


@pytest.mark.parametrize(("kind", "num_ranks"), CASES)
def test_saving(rank_pool, kind, num_ranks, tmp_path):
    rank_pool.run(
        strategy_checks.what_it_does_not_write_it_does_not_claim, str(tmp_path), num_ranks=num_ranks
    )


def chosen() -> str:
    return type(strategy_checks.make()).__name__


@pytest.mark.parametrize(("kind", "num_ranks"), CASES)
def test_the_table_chooses_it(rank_pool, kind, num_ranks):
    assert rank_pool.run(chosen, num_ranks=num_ranks) == [kind.__name__] * num_ranks
