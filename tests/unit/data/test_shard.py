"""The loader of one rank: end, remainder, epochs, the accumulation window, the device, copies."""

import copy
import pickle
import weakref

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, Sampler, SequentialSampler

from accelerate.data.rounds import BatchSamplerShard
from accelerate.data.samplers import SeedableRandomSampler, get_sampler
from accelerate.data.shard import DataLoaderShard
from accelerate.errors import ConfigurationError
from accelerate.runtime.accumulation import accumulation
from accelerate.state import GradientState


def shard(length=10, **kwargs):
    return DataLoaderShard(range(length), **{"batch_size": 4, **kwargs})


def rank_shard(length, batch_sampler, rank=0, ranks=2, **kwargs):
    return DataLoaderShard(
        range(length), batch_sampler=BatchSamplerShard(batch_sampler, ranks, rank), **kwargs
    )


def read(loader):
    return [batch.tolist() for batch in loader]


# --- What it looks like ----------------------------------------------------------------------------


def test_it_stands_in_for_a_torch_loader():
    loader = shard()
    assert isinstance(loader, DataLoader)
    assert isinstance(loader, DataLoaderShard)
    assert type(loader) is DataLoaderShard
    assert loader.__class__ is DataLoader
    assert loader.num_workers == 0  # an attribute of the base loader
    assert len(loader) == 3
    assert (loader.total_batch_size, loader.total_dataset_length) == (4, 10)
    with pytest.raises(AttributeError, match="nothing"):
        loader.nothing  # noqa: B018


def test_an_empty_loader_stands_in_too():
    loader = shard(0)
    assert isinstance(loader, DataLoader)
    assert read(loader) == []
    assert not loader.end_of_dataloader
    assert accumulation.active_loader is None


def test_unknown_keywords_and_missing_features_are_refused():
    with pytest.raises(TypeError, match="colour"):
        shard(colour="red")


def test_sizes_are_those_of_all_ranks():
    batches = BatchSampler(SequentialSampler(range(10)), 4, False)
    assert rank_shard(10, batches).total_batch_size == 8
    split = BatchSamplerShard(batches, 2, 0, split_batches=True)
    assert DataLoaderShard(range(10), batch_sampler=split).total_batch_size == 4
    assert DataLoaderShard(range(10), batch_size=None).total_batch_size is None


# --- End and remainder -----------------------------------------------------------------------------


def test_the_end_is_known_while_the_last_batch_is_in_hand():
    loader = shard()
    seen = [(len(batch), loader.end_of_dataloader, accumulation.end_of_dataloader) for batch in loader]
    assert seen == [(4, False, False), (4, False, False), (2, True, True)]
    assert loader.end_of_dataloader  # the loader remembers, the window does not
    assert not accumulation.end_of_dataloader


def test_the_remainder_is_known_from_the_start():
    loader = shard()
    assert loader.remainder == -1
    assert [(loader.remainder, accumulation.remainder) for _ in loader] == [(2, 2)] * 3
    assert (loader.remainder, accumulation.remainder) == (2, -1)
    assert [shard(8).remainder for _ in range(1)] == [-1]


@pytest.mark.parametrize(
    ("loader", "remainder"),
    [
        (shard(8), 0),
        (shard(10, drop_last=True), -1),
        (shard(10, _drop_last=True), -1),
        (DataLoaderShard(range(10), batch_sampler=BatchSampler(range(10), 4, True)), -1),
        (DataLoaderShard(range(10), batch_sampler=BatchSampler(range(7), 4, False)), 3),
        (DataLoaderShard(range(10), batch_sampler=BatchSampler(iter(range(7)), 4, False)), -1),
        (DataLoaderShard(range(10), batch_size=None), -1),
        (rank_shard(10, BatchSampler(range(10), 4, False)), 2),
        (rank_shard(10, BatchSampler(range(7), 4, False)), 7),
        (rank_shard(10, BatchSampler(range(10), 4, True)), -1),
    ],
)
def test_the_remainder_counts_the_samples_that_are_drawn(loader, remainder):
    assert {loader.remainder for _ in loader} == {remainder}


class Sizes(Sampler):
    def __init__(self, sizes):
        self.sizes = sizes

    def __iter__(self):
        start = 0
        for size in self.sizes:
            yield list(range(start, start + size))
            start += size

    def __len__(self):
        return len(self.sizes)


def test_a_remainder_that_nobody_could_know_is_known_at_the_end():
    loader = rank_shard(13, Sizes([4, 3, 4]), rank=1)
    assert [(batch.tolist(), loader.remainder) for batch in loader] == [
        ([4, 5, 6], -1),
        ([0, 1, 2, 3], 4),
    ]


@pytest.mark.parametrize("workers", [0, 1])
def test_workers_read_ahead_without_moving_the_end(workers):
    loader = rank_shard(13, Sizes([4, 3, 4]), rank=1, num_workers=workers)
    assert [loader.remainder for _ in loader] == [-1, 4]


# --- The accumulation window -----------------------------------------------------------------------


def test_nested_loops_and_the_loop_around():
    outer, inner = shard(), shard(8)
    for _ in outer:
        assert accumulation.active_loader is outer
        assert [accumulation.active_loader is inner for _ in inner] == [True, True]
        assert accumulation.active_loader is outer
    assert accumulation.active_loader is None


def test_breaking_out_ends_the_pass():
    loader = shard()
    for _ in loader:
        break
    assert accumulation.active_loader is None
    assert loader.iteration == 0
    assert read(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_an_exception_ends_the_pass():
    loader = shard()

    def train():
        for _ in loader:
            raise KeyError

    with pytest.raises(KeyError):
        train()
    assert accumulation.active_loader is None


def test_an_exception_of_the_dataset_ends_the_pass():
    loader = DataLoaderShard([0, 1, None], batch_size=1, collate_fn=lambda items: items[0] + 1)
    with pytest.raises(TypeError):
        list(loader)
    assert accumulation.active_loader is None


def test_abandoned_and_repeated_iterators():
    loader = shard()
    first = iter(loader)
    next(first)
    second = iter(loader)
    next(second)
    del first  # ends an older pass, not the one that is on
    assert accumulation.active_loader is loader
    assert loader.gradient_state.dataloader_references == [None, loader]
    del second
    assert accumulation.active_loader is None


def test_a_pass_begun_by_hand_twice_counts_once():
    loader = shard()
    loader.begin()
    loader.begin()
    assert loader.gradient_state.dataloader_references == [None, loader]


def test_an_iterator_that_was_never_used_changes_nothing():
    loader = shard()
    iterator = iter(loader)
    assert accumulation.active_loader is None
    del iterator
    assert read(loader)


def test_the_window_does_not_keep_a_loader_alive():
    loader = shard()
    loader.begin()
    reference = weakref.ref(loader)
    del loader
    assert reference() is None
    assert accumulation.active_loader is None


def test_the_public_view_is_an_attribute():
    loader = shard()
    assert isinstance(loader.gradient_state, GradientState)
    loader.begin()
    assert loader.gradient_state.active_dataloader is loader
    loader.end()
    assert not loader.gradient_state.in_dataloader


# --- Epochs ----------------------------------------------------------------------------------------


class Told:
    """Keeps what `set_epoch` was called with."""

    def __init__(self):
        self.told = []

    def set_epoch(self, epoch):
        self.told.append(epoch)


class ToldSampler(Told, Sampler):
    def __iter__(self):
        return iter(range(10))

    def __len__(self):
        return 10


class ToldBatchSampler(Told, BatchSampler):
    def __init__(self, *args):
        BatchSampler.__init__(self, *args)
        Told.__init__(self)


class ToldDataset(Told, Dataset):
    def __getitem__(self, index):
        return index

    def __len__(self):
        return 10


@pytest.mark.parametrize("ranks", [1, 2])
def test_samplers_batch_samplers_and_datasets_are_told_the_epoch(ranks):
    sampler, dataset = ToldSampler(), ToldDataset()
    batches = ToldBatchSampler(sampler, 2, False)
    batch_sampler = BatchSamplerShard(batches, ranks, 0) if ranks > 1 else batches
    loader = DataLoaderShard(dataset, batch_sampler=batch_sampler)
    read(loader)
    read(loader)
    loader.set_epoch(7)
    assert sampler.told == batches.told == dataset.told == [0, 1, 7]
    read(loader)
    assert loader.iteration == 8


def test_passes_are_counted_when_they_are_read_to_the_end():
    loader = shard(sampler=SeedableRandomSampler(range(10), data_seed=3))
    orders = [read(loader), read(loader)]
    assert orders[0] != orders[1]
    assert loader.iteration == 2
    next(iter(loader))
    assert loader.iteration == 2
    loader.set_epoch(0)
    assert [read(loader), read(loader)] == orders
    loader.set_epoch(5)
    read(loader)
    assert loader.iteration == 6


def test_an_empty_pass_counts_so_that_ranks_stay_together():
    loader = shard(0)
    read(loader)
    assert loader.iteration == 1


def test_workers_that_read_ahead_do_not_change_the_order_of_the_next_pass():
    loader = shard(sampler=SeedableRandomSampler(range(10), data_seed=3), num_workers=1, prefetch_factor=4)
    first = next(
        iter(loader)
    ).tolist()  # the worker has asked for all indices; the sampler has come to its end
    assert read(loader)[0] == first


class OwnEpoch(Sampler):
    """As users write them: the order depends on an epoch that they set themselves."""

    epoch = -1

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter([self.epoch] * 4)

    def __len__(self):
        return 4


def test_calls_of_the_user_win():
    sampler = OwnEpoch()
    loader = DataLoaderShard(range(10), sampler=sampler, batch_size=4)
    for epoch in (5, 9, 1):
        sampler.set_epoch(epoch)
        assert read(loader) == [[epoch] * 4]


def test_a_sampler_that_nobody_else_tells_follows_the_passes():
    sampler = OwnEpoch()
    loader = DataLoaderShard(range(10), sampler=sampler, batch_size=4)
    assert [read(loader), read(loader)] == [[[0] * 4], [[1] * 4]]


# --- Device ----------------------------------------------------------------------------------------


class Movable:
    def __init__(self):
        self.moved = None

    def to(self, device, non_blocking=False):
        self.moved = (device.type, non_blocking)
        return self


def test_batches_are_moved():
    loader = shard(device="meta")
    assert {batch.device.type for batch in loader} == {"meta"}
    assert loader.device == torch.device("meta")
    assert {batch.device.type for batch in shard()} == {"cpu"}


@pytest.mark.parametrize(
    "collate", [lambda rows: {"x": torch.tensor(rows)}, lambda rows: [torch.tensor(rows)], torch.tensor]
)
def test_batches_that_are_there_already_are_not_touched(collate):
    made = []

    def remember(rows):
        made.append(collate(rows))
        return made[-1]

    loader = shard(device="cpu:0", collate_fn=remember)
    for index, batch in enumerate(loader):
        assert batch is made[index]


def test_other_leaves_are_moved_by_their_own_method():
    loader = shard(device="cpu", collate_fn=lambda rows: {"x": torch.tensor(rows), "y": Movable()})
    assert [batch["y"].moved for batch in loader] == [("cpu", False)] * 3
    loader = shard(device="cpu", _non_blocking=True, collate_fn=lambda rows: Movable())
    assert [batch.moved for batch in loader] == [("cpu", True)] * 3


# --- Samplers, skipping, copies --------------------------------------------------------------------


def test_the_sampler_can_be_found_and_replaced():
    sampler = SequentialSampler(range(10))
    loader = shard(shuffle=True)
    assert isinstance(loader.get_sampler(), RandomSampler)
    loader.set_sampler(sampler)
    assert loader.get_sampler() is loader.sampler is loader.batch_sampler.sampler is sampler
    assert read(loader)[0] == [0, 1, 2, 3]


def test_the_sampler_of_a_rank_can_be_found_and_replaced():
    loader = rank_shard(10, BatchSampler(RandomSampler(range(10)), 4, False), rank=1)
    loader.set_sampler(range(9, -1, -1))
    assert loader.get_sampler() == range(9, -1, -1)
    assert read(loader) == [[5, 4, 3, 2], [7, 6, 5, 4]]


@pytest.mark.parametrize("inner", [None, SequentialSampler(range(10))])
def test_the_sampler_of_a_loader_without_batches_can_be_replaced(inner):
    sampler = BatchSamplerShard(inner, 2, 1) if inner else None
    loader = DataLoaderShard(range(10), sampler=sampler, batch_size=None)
    loader.set_sampler(range(4))
    assert get_sampler(loader) == range(4)
    assert list(loader) == ([1, 3] if inner else [0, 1, 2, 3])


def test_a_batch_sampler_that_chooses_the_samples_itself_has_no_sampler():
    loader = rank_shard(5, Sizes([2, 3]))
    assert loader.get_sampler() is None
    with pytest.raises(ConfigurationError, match="has no `sampler` to replace"):
        loader.set_sampler(range(5))


def test_batches_are_skipped_at_the_start_of_each_pass():
    loader = shard(skip_batches=1)
    assert len(loader) == 2
    assert [read(loader), read(loader)] == [[[4, 5, 6, 7], [8, 9]]] * 2


class Uncopied(Sizes):
    def __deepcopy__(self, memo):
        return self


def test_how_the_inner_sampler_is_copied_is_its_own_affair():
    loader = rank_shard(9, Uncopied([4, 5]), rank=1)
    twin = copy.deepcopy(loader)
    assert twin.batch_sampler is not loader.batch_sampler
    assert twin.batch_sampler.batch_sampler is loader.batch_sampler.batch_sampler
    assert read(twin) == read(loader) == [[4, 5, 6, 7, 8]]


@pytest.mark.parametrize("duplicate", [lambda it: pickle.loads(pickle.dumps(it)), copy.copy, copy.deepcopy])
def test_copies_read_the_same(duplicate):
    generator = torch.Generator().manual_seed(1)
    loader = shard(
        sampler=RandomSampler(range(10), generator=generator), synchronized_generator=generator, iteration=3
    )
    twin = duplicate(loader)
    assert type(twin) is DataLoaderShard
    assert isinstance(twin, DataLoader)
    assert (twin.iteration, twin.total_batch_size) == (3, 4)
    state = generator.get_state()
    batches = read(loader)
    generator.set_state(state)
    assert read(twin) == batches


def test_a_failure_comes_behind_the_batch_before_it():
    loader = DataLoaderShard([0, 1, None], batch_size=1, collate_fn=lambda items: items[0] + 1, num_workers=1)
    seen = []
    batches = iter(loader)
    seen += [next(batches), next(batches)]
    assert not loader.end_of_dataloader
    with pytest.raises(TypeError):
        next(batches)
    assert seen == [1, 2]
    assert accumulation.active_loader is None
