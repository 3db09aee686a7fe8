"""Shares of a stream, shards of one, and the rest of one, without other ranks."""

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from accelerate.data.prepare import prepare_data_loader
from accelerate.data.shard import DataLoaderShard
from accelerate.data.skip import SkipDataLoader, skip_first_batches
from accelerate.data.streams import IterableDatasetShard, iterate_stream_from, own_part, with_dataset
from accelerate.errors import ConfigurationError


class Stream(IterableDataset):
    def __init__(self, length):
        self.length = length
        self.read = []

    def __iter__(self):
        info = get_worker_info()
        for index in range(self.length) if info is None else range(info.id, self.length, info.num_workers):
            self.read.append(index)
            yield index


class Sized(Stream):
    def __len__(self):
        return self.length


def shares(length, **settings):
    return [
        list(IterableDatasetShard(Stream(length), num_processes=2, process_index=rank, **settings))
        for rank in range(2)
    ]


# What the reference gives, run as a black box.
@pytest.mark.parametrize(
    ("length", "drop_last", "split", "expected"),
    [
        (0, False, False, [[], []]),
        (1, False, False, [[0, 0, 0, 0], [0, 0, 0, 0]]),
        (1, False, True, [[0, 0], [0, 0]]),
        (1, True, True, [[], []]),
        (5, False, False, [[0, 1, 2, 3], [4, 0, 1, 2]]),
        (5, False, True, [[0, 1, 4, 0], [2, 3, 1, 2]]),
        (5, True, False, [[], []]),
        (9, False, False, [[0, 1, 2, 3, 8, 0, 1, 2], [4, 5, 6, 7, 3, 4, 5, 6]]),
        (9, True, False, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (11, False, True, [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 0]]),
        (11, True, True, [[0, 1, 4, 5], [2, 3, 6, 7]]),
    ],
)
def test_shares_are_those_of_the_reference(length, drop_last, split, expected):
    assert shares(length, batch_size=4, drop_last=drop_last, split_batches=split) == expected


@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("split", [True, False])
def test_the_length_is_that_of_the_share(drop_last, split, even):
    for length in range(20):
        for rank in range(2):
            shard = IterableDatasetShard(Sized(length), 4, drop_last, 2, rank, split)
            shard.even_batches = even
            assert len(shard) == len(list(shard))


def test_real_items_of_the_last_round_are_counted():
    shard = IterableDatasetShard(Stream(9), batch_size=4, num_processes=2)
    assert (list(shard), shard.last_round) == ([0, 1, 2, 3, 8, 0, 1, 2], 1)
    shard.dataset = Stream(8)
    assert (list(shard), shard.last_round) == ([0, 1, 2, 3], None)


def test_number_and_place_are_live():
    shard = IterableDatasetShard(Stream(12), batch_size=2, num_processes=2)
    items = iter(shard)
    assert [next(items), next(items)] == [0, 1]
    shard.num_processes, shard.process_index = 1, 0
    assert list(items) == [4, 5, 6, 7, 8, 9, 10, 11]


def test_attributes_and_epochs_are_the_datasets():
    class Epochs(Stream):
        epoch = 0

        def set_epoch(self, epoch):
            self.epoch = epoch

    shard = IterableDatasetShard(Epochs(4), batch_size=2)
    shard.set_epoch(3)
    assert (shard.epoch, shard.dataset.epoch, shard.length) == (3, 3, 4)
    with pytest.raises(AttributeError):
        shard.nothing  # noqa: B018
    loader = prepare_data_loader(DataLoader(Epochs(4), batch_size=2), num_processes=2, process_index=0)
    list(loader), list(loader)
    assert loader.dataset.dataset.epoch == 1
    loader.dataset.dataset.set_epoch(7)  # a user's own call wins
    list(loader)
    assert loader.dataset.dataset.epoch == 7


def test_a_generator_is_seeded_with_the_epoch():
    class Shuffled(Stream):
        def __init__(self):
            self.generator = torch.Generator()

        def __iter__(self):
            return iter(torch.randperm(6, generator=self.generator).tolist())

    shard = IterableDatasetShard(Shuffled(), batch_size=2)
    first = list(shard)
    assert list(shard) == first
    shard.set_epoch(1)
    assert list(shard) != first


def test_a_batch_that_cannot_be_split_is_refused():
    with pytest.raises(ConfigurationError, match=r"batch size \(3\) needs to be a round multiple"):
        IterableDatasetShard(Stream(3), batch_size=3, num_processes=2, split_batches=True)


class Files(IterableDataset):
    def __init__(self, names, old=False):
        self.names = names
        if old:
            self.n_shards = len(names)
        else:
            self.num_shards = len(names)

    def shard(self, num_shards, index):
        return Files(self.names[index::num_shards])

    def __iter__(self):
        return iter(self.names)


def test_shards_of_its_own():
    assert list(own_part(Files("abcde"), 2, 1)) == ["b", "d"]
    assert list(own_part(Files("abcde", old=True), 2, 0)) == ["a", "c", "e"]
    assert own_part(Files("a"), 2, 1) is None
    assert own_part(Stream(4), 2, 1) is None


def test_a_prepared_part_knows_what_all_ranks_read():
    loader = prepare_data_loader(DataLoader(Files("abcd"), batch_size=3), num_processes=2, process_index=1)
    assert type(loader) is DataLoaderShard
    assert loader.dataset.names == "bd"
    assert loader.total_batch_size == 6
    assert [list(batch) for batch in loader] == [["b", "d"]]


def test_with_split_batches_the_loader_reads_its_share():
    loader = prepare_data_loader(
        DataLoader(Stream(8), batch_size=4), num_processes=2, process_index=1, split_batches=True
    )
    assert (loader.batch_size, loader.total_batch_size) == (2, 4)
    assert [batch.tolist() for batch in loader] == [[2, 3], [6, 7]]


class Doubling(DataLoader):
    """A loader of the user's own."""

    def __iter__(self):
        for batch in super().__iter__():
            yield batch * 2


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_subclass_keeps_its_iter(ranks):
    loader = prepare_data_loader(Doubling(Stream(4), batch_size=2), num_processes=ranks, process_index=0)
    assert isinstance(loader, Doubling)
    assert next(iter(loader)).tolist() == [0, 2]


def test_another_dataset_leaves_the_given_loader_alone():
    loader = DataLoader(Stream(3), batch_size=2)
    clone = with_dataset(loader, Stream(1))
    assert (len(list(clone)), len(list(loader))) == (1, 2)


def collate(items):
    return list(items)


@pytest.mark.parametrize("keep", [0, 1, 2])
@pytest.mark.parametrize("skip", [0, 2, 4, 9])
@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("size", [3, None])
def test_the_rest_is_the_end_of_the_whole(size, workers, skip, keep):
    def loader():
        own = {"collate_fn": collate} if size else {}
        return DataLoader(Stream(20), batch_size=size, num_workers=workers, **own)

    whole = list(loader())
    kept = min(keep, skip)
    assert list(iterate_stream_from(loader(), skip, keep)) == whole[:kept] + whole[skip:]


def test_what_is_left_out_is_not_collated():
    collated = []

    def note(items):
        collated.append(items)
        return items

    loader = DataLoader(Stream(20), batch_size=4, collate_fn=note)
    rest = skip_first_batches(loader, 3)
    assert type(rest) is SkipDataLoader
    assert list(rest) == [[12, 13, 14, 15], [16, 17, 18, 19]]
    assert collated == [[12, 13, 14, 15], [16, 17, 18, 19]]
    prepared = prepare_data_loader(loader, num_processes=2, process_index=1)
    collated.clear()
    assert list(skip_first_batches(prepared, 1)) == [[12, 13, 14, 15], [0, 1, 2, 3]]
    assert len(collated) == 2
