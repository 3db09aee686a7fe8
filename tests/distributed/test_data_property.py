"""Prepared loaders of any shape: ranks read the dataset, in the order of one process, and go on anywhere.

A sample of the cases; `make data-sweep` draws many more.
"""

import os
from dataclasses import dataclass
from itertools import chain, zip_longest

import pytest
import torch
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset

from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import gather_object
from tests.support.drawn import hold

FULL = os.environ.get("DATA_SWEEP") == "full"
COUNT = 1000 if FULL else 50
SEED = 5


class Stream(IterableDataset):
    def __init__(self, length):
        self.length = length

    def __iter__(self):
        return iter(range(self.length))


@dataclass(frozen=True)
class Case:
    """A loader, how it is prepared, and where its pass is stopped."""

    length: int
    batch_size: int
    kind: str
    dispatch: bool
    workers: int
    drop_last: bool
    even: bool
    split: bool
    stop: float

    def prepared(self):
        """Return an Accelerator of this rank with a new loader."""
        settings = DataLoaderConfiguration(
            split_batches=self.split,
            dispatch_batches=self.dispatch,
            even_batches=self.even,
            use_seedable_sampler=self.kind == "seedable",
        )
        accelerator = Accelerator(cpu=True, dataloader_config=settings)
        torch.manual_seed(SEED)
        loader = DataLoader(
            Stream(self.length) if self.kind == "stream" else range(self.length),
            batch_size=self.batch_size * (accelerator.num_processes if self.split else 1),
            shuffle=self.kind in ("shuffled", "seedable")
            and self.length > 0,  # torch refuses to shuffle nothing
            drop_last=self.drop_last,
            num_workers=0 if self.kind == "stream" else self.workers,
        )
        return accelerator, accelerator.prepare(loader)


CASES = st.builds(
    Case,
    length=st.integers(0, 50),
    batch_size=st.integers(1, 8),
    kind=st.sampled_from(["in order", "shuffled", "seedable", "stream"]),
    dispatch=st.booleans(),
    workers=st.sampled_from([0] * 12 + [1, 2]) if FULL else st.just(0),
    drop_last=st.booleans(),
    even=st.booleans(),
    split=st.booleans(),
    stop=st.floats(0, 1),
)


def order_of_one_process(case):
    """Return the samples of a pass as one process reads them, None where their order may differ."""
    if case.kind == "shuffled":
        return None
    if case.kind != "seedable":
        return list(range(case.length))
    generator = torch.Generator()
    generator.manual_seed(SEED)
    return torch.randperm(case.length, generator=generator).tolist()


def reads_the_dataset(case):
    accelerator, loader = case.prepared()
    batches, metrics, last = [], [], []
    for batch in loader:
        batches.append(batch.tolist())
        last.append(loader.end_of_dataloader)
        if case.even:
            metrics += accelerator.gather_for_metrics(batch).tolist()
    ranks = gather_object([batches])  # from here on no rank waits for another one
    assert last == [False] * (len(last) - 1) + [True] * bool(last)
    if case.kind != "stream":
        # Rank 0 alone knows whether a dispatched loader has a last batch for every rank.
        assert len(loader) - len(batches) in ((0, 1) if case.dispatch and not case.even else (0,))
    whole = case.length
    if case.drop_last:
        whole -= case.length % (case.batch_size * accelerator.num_processes)
        assert {len(batch) for batch in batches} <= {case.batch_size}
    if case.even or case.drop_last:
        assert len({len(mine) for mine in ranks}) == 1
    steps = zip_longest(*ranks, fillvalue=[])
    seen = metrics if case.even else list(chain.from_iterable(chain.from_iterable(steps)))
    assert len(seen) == len(set(seen)) == whole, (seen, whole)
    order = order_of_one_process(case)
    if order is not None:
        assert seen == order[:whole], (seen, order)


def goes_on_anywhere(case):
    _, loader = case.prepared()
    batches = [batch.tolist() for batch in loader]
    fewest = min(gather_object([len(batches)]))
    if not fewest:
        return
    stop = min(int(case.stop * fewest), fewest - 1)
    _, first = case.prepared()
    seen = []
    passing = iter(first)
    for _ in range(stop):
        seen.append(next(passing).tolist())
    state = first.state_dict()
    del passing
    _, second = case.prepared()
    # In a pass, what its order depends on is in the state; between passes that may be the global generator.
    torch.manual_seed(SEED + (stop > 0))
    second.load_state_dict(state)
    seen += [batch.tolist() for batch in second]
    assert seen == batches, (stop, seen, batches)


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
def test_the_ranks_read_the_dataset(rank_pool, num_ranks):
    hold(rank_pool, num_ranks, reads_the_dataset, CASES, count=COUNT, timeout=20 * COUNT)


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_a_pass_goes_on_where_it_was_stopped(rank_pool, num_ranks):
    hold(rank_pool, num_ranks, goes_on_anywhere, CASES, count=COUNT, timeout=20 * COUNT)
