"""`gather_for_metrics` gives each sample of the data exactly once, however it was read and in what form."""

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Sampler, SequentialSampler

from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed


class Stream(IterableDataset):
    def __init__(self, length):
        self.length = length

    def __iter__(self):
        return iter(range(self.length))


class Ragged(Sampler):
    """A batch sampler without a batch size, with batches of several sizes."""

    def __init__(self, length):
        self.length = length

    def __iter__(self):
        start = 0
        while start < self.length:
            size = 1 + start % 3
            yield list(range(start, min(self.length, start + size)))
            start += size

    def __len__(self):
        return sum(1 for _ in self)


class Named(Dataset):
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return {"index": index, "name": f"sample {index}", "row": torch.tensor([index, -index])}


def gathered(length, config, what, skip, kind, workers):
    set_seed(3)
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**config))
    size = 4 if config.get("split_batches") and accelerator.num_processes != 3 else 3
    if kind == "ragged":
        loader = DataLoader(Named(length), batch_sampler=Ragged(length), num_workers=workers)
    elif kind == "stream":
        loader = DataLoader(Stream(length), batch_size=size, num_workers=workers)
    elif kind == "batch sampler":
        batches = BatchSampler(SequentialSampler(range(length)), size, False)
        loader = DataLoader(Named(length), batch_sampler=batches, num_workers=workers)
    else:
        loader = DataLoader(Named(length), batch_size=size, shuffle=kind == "shuffled", num_workers=workers)
    loader = accelerator.prepare(loader)
    loader = accelerator.skip_first_batches(loader, skip) if skip else loader
    return [index for batch in loader for index in indices(accelerator, batch, what)]


def indices(accelerator, batch, what):
    index = batch if isinstance(batch, torch.Tensor) else batch["index"]
    if what == "tensor":
        return accelerator.gather_for_metrics(index).tolist()
    if what == "nested":
        result = accelerator.gather_for_metrics({"a": [index, (index * 2,)], "rows": index.view(-1, 1)})
        assert torch.equal(result["a"][1][0], result["a"][0] * 2)
        assert torch.equal(result["rows"].flatten(), result["a"][0])
        return result["a"][0].tolist()
    if what == "strings":
        names = [f"{number}" for number in index.tolist()]
        return [int(name) for name in accelerator.gather_for_metrics(names)]
    if what == "objects":
        objects = [{"at": number} for number in index.tolist()]
        return [item["at"] for item in accelerator.gather_for_metrics(objects, use_gather_object=True)]
    scalars = accelerator.gather_for_metrics(torch.tensor(len(index)))
    assert scalars.numel() == accelerator.num_processes
    return accelerator.gather_for_metrics(index).tolist()


WHAT = ["tensor", "nested", "strings", "objects", "scalar"]


@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("config", [{}, {"split_batches": True}, {"dispatch_batches": True}])
@pytest.mark.parametrize("kind", ["in order", "shuffled"])
def test_each_sample_once(rank_pool, what, ranks, config, kind):
    for length in (1, 13, 24):
        for result in rank_pool.run(gathered, length, config, what, 0, kind, 0, num_ranks=ranks):
            assert sorted(result) == list(range(length))


@pytest.mark.parametrize("what", ["tensor", "objects"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("in order", {}),
        ("in order", {"dispatch_batches": True}),
        ("in order", {"dispatch_batches": True, "split_batches": True}),
        ("batch sampler", {"use_seedable_sampler": True}),
        ("stream", {}),
        ("stream", {"split_batches": True}),
    ],
)
def test_the_rest_of_a_pass(rank_pool, kind, config, workers, what):
    for skip in (1, 2):
        # Each worker would read the whole of this stream.
        workers = min(workers, 1) if kind == "stream" else workers
        result = rank_pool.run(gathered, 15, config, what, skip, kind, workers)[0]
        start = skip * (4 if config.get("split_batches") else 6)
        assert result == list(range(start, 15))


@pytest.mark.parametrize("what", WHAT)
def test_batches_of_several_sizes(rank_pool, what):
    if what in ("strings", "objects"):
        assert sorted(rank_pool.run(gathered, 15, {}, what, 0, "ragged", 0)[0]) == list(range(15))
    dispatched = {"dispatch_batches": True}
    for result in rank_pool.run(gathered, 15, dispatched, what, 0, "ragged", 0):
        assert sorted(result) == list(range(15))


def uneven(length, what):
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(even_batches=False))
    loader = accelerator.prepare(DataLoader(Named(length), batch_size=2))
    return [index for batch in loader for index in indices(accelerator, batch, what)]


@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("length", [3, 4, 7])
def test_last_batches_of_unequal_sizes(rank_pool, what, length):
    for result in rank_pool.run(uneven, length, what):
        assert result == list(range(length))


def empty():
    accelerator = Accelerator(cpu=True)
    loaders = accelerator.prepare(DataLoader([], batch_size=2), DataLoader(Stream(0), batch_size=2))
    return [len(list(loader)) for loader in loaders], accelerator.gradient_state.in_dataloader


@pytest.mark.parametrize("ranks", [1, 2])
def test_empty_datasets(rank_pool, ranks):
    assert rank_pool.run(empty, num_ranks=ranks) == [([0, 0], False)] * ranks


def prepared_twice():
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(DataLoader(range(8), batch_size=2))
    again = accelerator.prepare(loader)
    return again is loader, [batch.tolist() for batch in again]


def test_a_loader_prepared_twice_is_dealt_once(rank_pool):
    assert rank_pool.run(prepared_twice) == [(True, [[0, 1], [4, 5]]), (True, [[2, 3], [6, 7]])]
