"""A run that was stopped in the middle of an epoch goes on with the next unseen sample, by itself."""

import warnings
from itertools import chain

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed

LENGTH = 47


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        return iter(range(LENGTH) if info is None else range(info.id, LENGTH, info.num_workers))


def accelerated(config, batch_size, kind, workers=0):
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**config))
    set_seed(11)
    data = {"shuffled": range(LENGTH), "in order": range(LENGTH), "stream": Stream()}[kind]
    loader = DataLoader(data, batch_size=batch_size, shuffle=kind == "shuffled", num_workers=workers)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return accelerator, *accelerator.prepare(model, optimizer, loader)


def train(config, batch_size, kind, folder, stop_at=None, workers=0):
    """Read two epochs; return all samples in the order of one process, with the weights at the end."""
    accelerator, model, optimizer, loader = accelerated(config, batch_size, kind, workers)
    if stop_at is None and folder is not None:
        set_seed(5, device_specific=True)
        with warnings.catch_warnings():
            # A rank that was not there at the save has no random states in the checkpoint.
            warnings.filterwarnings("ignore", "Random states of rank")
            accelerator.load_state(folder)
    seen = []
    for epoch in range(loader.iteration, 2):
        seen.append([])
        for index, batch in enumerate(loader):
            seen[-1] += accelerator.gather_for_metrics(batch).tolist()
            accelerator.backward(model(batch.float().view(-1, 1) / LENGTH).square().mean())
            optimizer.step()
            optimizer.zero_grad()
            if (epoch, index) == stop_at:
                accelerator.save_state(folder)
                return seen, None
    return seen, [weight.tolist() for weight in accelerator.get_state_dict(model).values()]


CONFIGS = [
    ({}, "shuffled"),
    ({"use_seedable_sampler": True}, "shuffled"),
    ({"dispatch_batches": True}, "in order"),
    ({}, "stream"),
    ({"dispatch_batches": False}, "stream"),
    ({"even_batches": False}, "in order"),
]


@pytest.mark.parametrize(("config", "kind"), CONFIGS)
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("stop_at", [(0, 2), (1, 1)])
def test_the_same_run_goes_on(rank_pool, tmp_path, config, kind, ranks, stop_at):
    if ranks > 1 and "even_batches" in config:
        config = {**config, "split_batches": True}
    whole, weights = rank_pool.run(train, config, 4, kind, None, num_ranks=ranks)[0]
    before, _ = rank_pool.run(train, config, 4, kind, str(tmp_path), stop_at, num_ranks=ranks)[0]
    after, resumed = rank_pool.run(train, config, 4, kind, str(tmp_path), num_ranks=ranks)[0]
    assert before[-1] + after[0] == whole[stop_at[0]]
    assert [*before[:-1], before[-1] + after[0], *after[1:]] == whole
    for epoch in whole:
        assert sorted(epoch) == list(range(LENGTH))
    torch.testing.assert_close(resumed, weights)


@pytest.mark.parametrize(("config", "kind"), CONFIGS[:5])
@pytest.mark.parametrize(("stopped", "resumed"), [(1, 2), (2, 1), (4, 2)])
def test_another_number_of_ranks_goes_on(rank_pool, tmp_path, config, kind, stopped, resumed):
    whole, _ = rank_pool.run(train, config, 8 // stopped, kind, None, num_ranks=stopped)[0]
    before, _ = rank_pool.run(train, config, 8 // stopped, kind, str(tmp_path), (0, 2), num_ranks=stopped)[0]
    after, _ = rank_pool.run(train, config, 8 // resumed, kind, str(tmp_path), num_ranks=resumed)[0]
    assert list(chain(before[0], after[0])) == whole[0]
    assert sorted(after[1]) == list(range(LENGTH))
    # One process draws each order from the global random states, several from a generator of the sampler.
    assert after[1] == whole[1] or (config == {} and stopped == 1)


def read_dispatched(file, stops):
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(DataLoader(Stream(), batch_size=4, num_workers=2))
    if stops:
        batches = iter(loader)
        for _ in range(2):
            next(batches)
        torch.save(loader.state_dict(), file)
    else:
        loader.load_state_dict(torch.load(file))
        batches = loader
    return [index for batch in batches for index in accelerator.gather(batch).tolist()]


def test_the_main_process_reads_on_for_another_number_of_ranks(rank_pool, tmp_path):
    following = rank_pool.run(read_dispatched, tmp_path / "state", True, num_ranks=1)[0]
    resumed = rank_pool.run(read_dispatched, tmp_path / "state", False, num_ranks=2)[0]
    assert resumed[:-8] == following[: len(resumed) - 8]
    assert len(following) == LENGTH - 8 <= len(resumed)
