"""Streams that each rank reads by itself: shares of rounds, shards of its own, ends that are not alike."""

from itertools import chain

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.data.prepare import prepare_data_loader
from accelerate.data.shard import DataLoaderShard
from accelerate.state import PartialState


class Stream(IterableDataset):
    def __init__(self, length):
        self.length = length

    def __iter__(self):
        info = get_worker_info()
        yield from range(self.length) if info is None else range(info.id, self.length, info.num_workers)


class Sharded(IterableDataset):
    """Stands in for the stream of the `datasets` library: some files, of unequal lengths."""

    def __init__(self, files):
        self.files = files

    @property
    def num_shards(self):
        return len(self.files)

    def shard(self, num_shards, index):
        return Sharded(self.files[index::num_shards])

    def __iter__(self):
        info = get_worker_info()
        files = self.files if info is None else self.files[info.id :: info.num_workers]
        for file in files:
            yield from file


def prepared(loader, **settings):
    PartialState(cpu=True)
    loader = prepare_data_loader(loader, put_on_device=True, dispatch_batches=False, **settings)
    assert type(loader) is DataLoaderShard
    return loader


def read(stream, settings, **kwargs):
    loader = prepared(DataLoader(stream, **kwargs), **settings)
    passes = []
    for _ in range(2):
        passes.append([])
        for batch in loader:
            passes[-1].append((torch.as_tensor(batch).tolist(), loader.end_of_dataloader))
    assert passes[0] == passes[1]
    assert [end for _, end in passes[0]] == [False] * (len(passes[0]) - 1) + [True] * bool(passes[0])
    return [batch for batch, _ in passes[0]]


@pytest.mark.parametrize(
    ("length", "settings", "kwargs", "expected"),
    [
        (9, {}, {"batch_size": 4}, [[[0, 1, 2, 3], [8, 0, 1, 2]], [[4, 5, 6, 7], [3, 4, 5, 6]]]),
        (9, {"even_batches": False}, {"batch_size": 4}, [[[0, 1, 2, 3], [8]], [[4, 5, 6, 7]]]),
        (9, {"split_batches": True}, {"batch_size": 4}, [[[0, 1], [4, 5], [8, 0]], [[2, 3], [6, 7], [1, 2]]]),
        (9, {}, {"batch_size": 4, "drop_last": True}, [[[0, 1, 2, 3]], [[4, 5, 6, 7]]]),
        (9, {}, {"batch_size": 2, "num_workers": 2}, [[[0, 2], [1, 3], [8, 0]], [[4, 6], [5, 7], [2, 4]]]),
        (3, {}, {"batch_size": None}, [[0, 2], [1, 0]]),
        (0, {}, {"batch_size": 4}, [[], []]),
        (0, {}, {"batch_size": 4, "num_workers": 2}, [[], []]),
    ],
)
def test_shares(rank_pool, length, settings, kwargs, expected):
    assert rank_pool.run(read, Stream(length), settings, **kwargs) == expected


FILES = [[0, 1, 2, 3, 4], [10, 11], [20], [30], [40]]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_shards_of_unequal_length_end_together(rank_pool, workers):
    mine, other = rank_pool.run(read, Sharded(FILES), {}, batch_size=2, num_workers=workers)
    assert len(mine) == len(other)
    assert {index for batch in mine for index in batch} == {0, 1, 2, 3, 4, 20, 40}
    assert {index for batch in other for index in batch} == {10, 11, 30}


def test_shards_end_alone_where_nothing_is_filled_up(rank_pool):
    mine, other = rank_pool.run(read, Sharded(FILES), {"even_batches": False}, batch_size=2)
    assert mine == [[0, 1], [2, 3], [4, 20], [40]]
    assert other == [[10, 11], [30]]


def test_a_rank_without_any_sample_gets_the_first_batch_of_another(rank_pool):
    assert rank_pool.run(read, Sharded([[], [1, 2, 3]]), {}, batch_size=2) == [
        [[1, 2], [1, 2]],
        [[1, 2], [3]],
    ]
    assert rank_pool.run(read, Sharded([[], []]), {}, batch_size=2) == [[], []]


def test_too_few_shards_are_shared_by_rounds(rank_pool):
    assert rank_pool.run(read, Sharded([[0, 1, 2, 3]]), {}, batch_size=1) == [[[0], [2]], [[1], [3]]]


def metrics(stream, config, batch_size, workers, as_objects):
    config = DataLoaderConfiguration(**config)
    accelerator = Accelerator(cpu=True, dataloader_config=config)
    loader = accelerator.prepare(DataLoader(stream, batch_size=batch_size, num_workers=workers))
    gathered = []
    for batch in loader:
        if as_objects:
            gathered += accelerator.gather_for_metrics([f"sample {index}" for index in batch.tolist()])
        else:
            rows = accelerator.gather_for_metrics({"x": batch, "twice": (batch * 2).view(-1, 1)})
            assert (rows["twice"].flatten() == rows["x"] * 2).all()
            gathered += rows["x"].tolist()
    return gathered


@pytest.mark.parametrize("as_objects", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize(
    ("stream", "config", "workers"),
    [
        (Sharded(FILES), {"dispatch_batches": False}, 0),
        (Sharded(FILES), {"dispatch_batches": False}, 2),
        (Stream(11), {"dispatch_batches": False}, 0),
        (Stream(11), {"dispatch_batches": False}, 1),
        (Stream(11), {}, 0),
        (Stream(10), {}, 2),
        (Stream(0), {}, 0),
    ],
)
def test_metrics_see_each_sample_once(rank_pool, stream, config, workers, as_objects, ranks):
    results = rank_pool.run(metrics, stream, config, 2, workers, as_objects, num_ranks=ranks)
    expected = (
        list(range(stream.length)) if isinstance(stream, Stream) else sorted(chain.from_iterable(FILES))
    )
    names = [f"sample {index}" for index in expected]
    for result in results:
        assert sorted(result) == (sorted(names) if as_objects else expected)


def test_nothing_is_lost_where_several_workers_end(rank_pool):
    results = rank_pool.run(metrics, Stream(11), {"dispatch_batches": False}, 2, 2, False)
    assert set(results[0]) == set(range(11))


def lengths_differ():
    rank = PartialState(cpu=True).process_index
    with pytest.raises(ValueError, match="rank 0: 4, 2; rank 1: 6, 3"):
        prepare_data_loader(DataLoader(range(4 + 2 * rank), batch_size=2))
    return True


def test_datasets_of_different_lengths_are_refused_on_every_rank(rank_pool):
    assert rank_pool.run(lengths_differ) == [True, True]


def seeds(epochs):
    state = PartialState(cpu=True)
    torch.manual_seed(state.process_index)

    class Shuffled(IterableDataset):
        generator = torch.Generator()

        def __iter__(self):
            return iter(torch.randperm(8, generator=self.generator).tolist())

    loader = prepared(DataLoader(Shuffled(), batch_size=2))
    return [[batch.tolist() for batch in loader] for _ in range(epochs)]


def test_a_generator_of_the_stream_follows_the_epoch_on_all_ranks(rank_pool):
    mine, other = rank_pool.run(seeds, 2)
    for first, second in zip(mine, other, strict=True):
        assert sorted(chain.from_iterable(first + second)) == list(range(8))
    assert mine[0] != mine[1]


def joined(stream, config, even_batches):
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**config))
    model = torch.nn.Linear(1, 1)
    model, loader = accelerator.prepare(model, DataLoader(stream, batch_size=2))
    seen = []
    with accelerator.join_uneven_inputs([model], even_batches=even_batches):
        for batch in loader:
            seen += batch.tolist()
            accelerator.backward(model(batch.float().view(-1, 1)).sum())
    again = sum(len(batch) for batch in loader)
    return seen, again


@pytest.mark.parametrize("config", [{"dispatch_batches": False}, {}])
@pytest.mark.parametrize("stream", [Stream(5), Sharded(FILES)])
def test_uneven_inputs_are_joined(rank_pool, config, stream):
    results = rank_pool.run(joined, stream, config, False)
    assert sorted(index for seen, _ in results for index in seen) == sorted(stream)
    for seen, again in rank_pool.run(joined, stream, config, None):
        assert len(seen) == again  # completed, inside and behind
