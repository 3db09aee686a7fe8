"""Resuming inside an epoch on real ranks: the samples go on, and metrics see each of the rest once."""

from itertools import chain

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from accelerate.accelerator import Accelerator
from accelerate.options.data import DataLoaderConfiguration

LENGTHS = (1, 5, 12, 13, 22)
SKIPS = (0, 1, 2, 9)


def prepared(length, accelerator, split_batches=False):
    size = 2 * accelerator.num_processes if split_batches else 2
    loader = DataLoader(TensorDataset(torch.arange(length)), batch_size=size, shuffle=True)
    return accelerator.prepare(loader)


def read(loader, accelerator):
    """Return this rank's batches, and what all ranks gather for a metric."""
    own, gathered = [], []
    for (rows,) in loader:
        own.append(rows.tolist())
        gathered.append(accelerator.gather_for_metrics(rows).tolist())
    return own, gathered


def whole_and_rests(split_batches, seedable):
    accelerator = Accelerator(
        cpu=True,
        dataloader_config=DataLoaderConfiguration(
            split_batches=split_batches, use_seedable_sampler=seedable, data_seed=3
        ),
    )
    torch.manual_seed(accelerator.process_index)
    outcomes = []
    for length in LENGTHS:
        loader = prepared(length, accelerator, split_batches)
        generator = loader.synchronized_generator
        start = None if generator is None else generator.get_state()
        own, gathered = read(loader, accelerator)
        for skip in SKIPS:
            if generator is not None:
                generator.set_state(start)
            loader.set_epoch(0)
            rest = accelerator.skip_first_batches(loader, skip)
            assert len(rest) == len(own[skip:])
            assert read(rest, accelerator) == (own[skip:], gathered[skip:])
            assert loader.iteration == rest.iteration == 1
        outcomes.append(gathered)
    return outcomes


@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize("split_batches", [False, True])
@pytest.mark.parametrize("seedable", [False, True])
def test_the_rest_of_an_epoch_is_exact(rank_pool, num_ranks, split_batches, seedable):
    for outcomes in rank_pool.run(whole_and_rests, split_batches, seedable, num_ranks=num_ranks):
        for length, gathered in zip(LENGTHS, outcomes, strict=True):
            assert sorted(chain.from_iterable(gathered)) == list(range(length))
            assert len(gathered) == -(-length // (2 * num_ranks))


def train(accelerator, model, optimizer, loader):
    losses = []
    for (rows,) in loader:
        with accelerator.accumulate(model):
            loss = model(rows[:, None].float()).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def interrupted(folder):
    """Train two epochs; return the losses from the middle of the first on, and those of a resumed run."""
    accelerator = Accelerator(
        cpu=True,
        gradient_accumulation_steps=2,
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True, data_seed=3),
    )

    def fresh():
        torch.manual_seed(1)
        model = torch.nn.Linear(1, 1)
        loader = DataLoader(TensorDataset(torch.arange(23) / 23), batch_size=2, shuffle=True)
        return accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.1), loader)

    model, optimizer, loader = fresh()
    before = []
    for index, (rows,) in enumerate(loader):
        with accelerator.accumulate(model):
            loss = model(rows[:, None].float()).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        before.append(loss.item())
        if index == 3:
            accelerator.save_state(folder)
    expected = before[4:] + train(accelerator, model, optimizer, loader)
    accelerator.free_memory()
    model, optimizer, loader = fresh()
    accelerator.load_state(folder)
    resumed = train(accelerator, model, optimizer, accelerator.skip_first_batches(loader, 4))
    return expected, resumed + train(accelerator, model, optimizer, loader)


def test_a_resumed_run_takes_the_same_steps(rank_pool, tmp_path):
    for expected, resumed in rank_pool.run(interrupted, str(tmp_path / "state"), num_ranks=2):
        assert resumed == expected
        assert len(expected) == 2 + 6
