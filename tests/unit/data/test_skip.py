"""The rest of a pass is the end of the whole one, and what is skipped is never loaded."""

import copy
import pickle
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    WeightedRandomSampler,
)

from accelerate.data.evenness import even_batches
from accelerate.data.order import OrderReader, samples_after
from accelerate.data.prepare import prepare_data_loader
from accelerate.data.rounds import BatchSamplerShard
from accelerate.data.samplers import SkipBatchSampler
from accelerate.data.shard import DataLoaderShard
from accelerate.data.skip import SkipDataLoader, skip_first_batches
from accelerate.errors import ConfigurationError
from accelerate.runtime.accumulation import accumulation


class Watched(Dataset):
    """Integers that remember which of them were read."""

    def __init__(self, length):
        self.length = length
        self.read = []

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        self.read.append(index)
        return index


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(7))


class Blocks(Sampler):
    """A batch sampler of the user's own, with batches of two sizes."""

    def __init__(self, length, batch_size):
        self.length = length
        self.batch_size = batch_size
        self.drop_last = False

    def __iter__(self):
        start = 0
        for number in range(len(self)):
            stop = min(self.length, start + self.batch_size - number % 2)
            yield list(range(start, stop))
            start = stop

    def __len__(self):
        size, batches, start = self.batch_size, 0, 0
        while start < self.length:
            start += size - batches % 2
            batches += 1
        return batches


def read(loader):
    return [batch.tolist() for batch in loader]


def prepared(length=10, rank=0, ranks=1, data=None, **settings):
    kwargs = {"batch_size": 3, **settings.pop("loader", {})}
    loader = DataLoader(range(length) if data is None else data, **kwargs)
    return prepare_data_loader(loader, num_processes=ranks, process_index=rank, **settings)


# --- Batches ----------------------------------------------------------------------------------------

SHARES = st.fixed_dictionaries(
    {
        "length": st.integers(0, 40),
        "size": st.integers(1, 5),
        "ranks": st.integers(1, 4),
        "skip": st.integers(0, 12),
        "drop_last": st.booleans(),
        "split": st.booleans(),
        "even": st.booleans(),
        "order": st.sampled_from(["counting", "shuffled", "weighted", "blocks"]),
    }
)


def batch_sampler_of(case):
    length, size = case["length"], case["size"] * (case["ranks"] if case["split"] else 1)
    if case["order"] == "blocks":
        return Blocks(length, size + 1 if size == 1 or not case["split"] else size)
    if case["order"] == "counting" or not length:
        return BatchSampler(SequentialSampler(range(length)), size, case["drop_last"])
    generator = torch.Generator().manual_seed(3)
    if case["order"] == "shuffled":
        return BatchSampler(RandomSampler(range(length), generator=generator), size, case["drop_last"])
    weighted = WeightedRandomSampler([1.0] * length, length, generator=generator)
    return BatchSampler(weighted, size, case["drop_last"])


@settings(max_examples=400, deadline=None)
@given(SHARES)
def test_what_is_left_is_the_end_of_the_whole(case):
    skip = case["skip"]
    for rank in range(case["ranks"]):
        sampler, twin = batch_sampler_of(case), batch_sampler_of(case)
        if case["split"] and sampler.batch_size % case["ranks"]:
            return
        options = {"num_processes": case["ranks"], "process_index": rank}
        options |= {"split_batches": case["split"], "even_batches": case["even"]}
        whole, shard = BatchSamplerShard(sampler, **options), BatchSamplerShard(twin, **options)
        expected = list(whole)
        rest = SkipBatchSampler(shard, skip)
        assert list(rest) == expected[skip:]
        assert rest.total_length == len(whole)
        assert len(rest) == max(0, len(whole) - skip)
        if expected[skip:]:
            assert shard.last_round == whole.last_round


@settings(max_examples=100, deadline=None)
@given(SHARES)
def test_a_bare_batch_sampler_is_skipped_alike(case):
    expected = list(batch_sampler_of(case))
    once = SkipBatchSampler(batch_sampler_of(case), case["skip"])
    assert list(once) == expected[case["skip"] :]
    twice = SkipBatchSampler(SkipBatchSampler(batch_sampler_of(case), 1), case["skip"])
    assert list(twice) == expected[case["skip"] + 1 :]
    assert len(twice) == max(0, len(expected) - 1 - case["skip"])


def test_a_skipping_sampler_has_the_attributes_of_the_one_inside():
    inner = BatchSampler(SequentialSampler(range(10)), 3, True)
    sampler = SkipBatchSampler(inner, 1)
    assert (sampler.batch_size, sampler.drop_last, sampler.sampler) == (3, True, inner.sampler)
    for twin in (copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))):
        assert list(twin) == [[3, 4, 5], [6, 7, 8]]
    with pytest.raises(AttributeError, match="nothing"):
        sampler.nothing  # noqa: B018


def test_hundred_thousand_batches_in_order_are_skipped_at_once():
    sampler = BatchSampler(SequentialSampler(range(3_300_000)), 32, False)
    start = time.process_time()
    assert next(iter(SkipBatchSampler(sampler, 100_000)))[0] == 3_200_000
    assert next(iter(SkipBatchSampler(BatchSamplerShard(sampler, 2, 1), 50_000)))[0] == 3_200_032
    assert time.process_time() - start < 0.01  # making the batches takes 0.1 s


class Chunks(Sampler):
    """A sampler that passes on what is in several lists, with samples of its own between them."""

    def __init__(self, lengths, own):
        self.lengths = lengths
        self.own = own

    def __iter__(self):
        start = 0
        for length in self.lengths:
            yield from list(range(start, start + length))
            start += length
            for _ in range(self.own):
                yield start
                start += 1

    def __len__(self):
        return sum(self.lengths) + self.own * len(self.lengths)


@given(st.lists(st.integers(0, 9), max_size=4), st.integers(0, 2), st.integers(0, 50), st.integers(0, 12))
def test_samples_that_come_from_lists_are_dropped_exactly(lengths, own, count, keep):
    sampler = Chunks(lengths, own)
    everything = list(sampler)
    reader = OrderReader(sampler)
    kept, beyond = reader.after(count, keep)
    assert kept == everything[: min(keep, count)]
    assert [*beyond, *reader] == everything[count:]
    assert list(samples_after(sampler, count)) == everything[count:]


def test_a_shuffled_order_is_drawn_and_no_more():
    order = RandomSampler(range(400_000))
    start = time.process_time()
    next(iter(order))
    drawn = time.process_time() - start
    start = time.process_time()
    next(iter(SkipBatchSampler(BatchSampler(order, 4, False), 99_000)))
    assert time.process_time() - start < 3 * drawn + 0.01


# --- Loaders ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_skipped_samples_are_not_loaded(workers):
    data = Watched(10)
    loader = DataLoader(data, batch_size=3, num_workers=workers)
    assert read(skip_first_batches(loader, 2)) == [[6, 7, 8], [9]]
    assert data.read == ([] if workers else [6, 7, 8, 9])  # workers have data of their own
    data.read.clear()
    rest = skip_first_batches(prepared(data=data, rank=1, ranks=2, loader={"batch_size": 2}), 1)
    assert read(rest) == [[6, 7], [0, 1]]
    assert data.read == [6, 7, 0, 1]


def test_a_torch_loader_stays_one_of_its_class():
    class Tenfold(DataLoader):
        def __iter__(self):
            return (batch * 10 for batch in super().__iter__())

    loader = Tenfold(range(6), batch_size=2)
    rest = skip_first_batches(loader, 1)
    assert type(rest) is Tenfold
    assert len(rest) == 2
    assert read(rest) == [[20, 30], [40, 50]]
    assert read(loader) == [[0, 10], [20, 30], [40, 50]]
    assert read(skip_first_batches(skip_first_batches(loader, 1), 1)) == [[40, 50]]


def test_a_loader_that_reads_single_items_or_batches_by_index():
    assert read(skip_first_batches(DataLoader(torch.arange(5), batch_size=None), 3)) == [3, 4]
    batches = BatchSampler(SequentialSampler(range(7)), 2, False)
    loader = DataLoader(torch.arange(7), sampler=batches, batch_size=None)
    assert read(skip_first_batches(loader, 2)) == [[4, 5], [6]]


def test_persistent_workers_stay_with_the_original():
    loader = DataLoader(range(8), batch_size=2, num_workers=1, persistent_workers=True)
    assert len(read(loader)) == 4
    rest = skip_first_batches(loader, 3)
    assert read(rest) == read(rest) == [[6, 7]]
    assert len(read(loader)) == 4


def test_a_prepared_loader_keeps_what_it_was_prepared_for():
    generator = torch.Generator()
    loader = DataLoaderShard(
        range(10), "cpu", ["torch"], generator, batch_size=4, iteration=3, _non_blocking=True
    )
    rest = skip_first_batches(loader, 1)
    assert type(rest) is DataLoaderShard
    assert (rest.device, rest.rng_types, rest.synchronized_generator) == (
        torch.device("cpu"),
        ["torch"],
        generator,
    )
    assert (rest.iteration, rest._non_blocking, len(rest), len(loader)) == (3, True, 2, 3)
    assert (rest.total_batch_size, rest.total_dataset_length) == (4, 10)
    assert read(rest) == [[4, 5, 6, 7], [8, 9]]
    assert read(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@settings(max_examples=150, deadline=None)
@given(SHARES.filter(lambda case: case["order"] != "weighted"), st.booleans())
def test_the_end_and_the_remainder_are_those_of_the_whole(case, seedable):
    for rank in range(case["ranks"]):
        sampler = batch_sampler_of(case)
        if case["split"] and sampler.batch_size % case["ranks"]:
            return
        loader = prepare_data_loader(
            DataLoader(range(case["length"]), batch_sampler=sampler),
            num_processes=case["ranks"],
            process_index=rank,
            split_batches=case["split"],
            even_batches=case["even"],
            use_seedable_sampler=seedable,
            data_seed=5,
            rng_types=[],
        )
        rest = skip_first_batches(loader, case["skip"])
        seen = []
        for each in (loader, rest):
            sampler.sampler.generator.manual_seed(3) if case["order"] == "shuffled" and case[
                "length"
            ] else None
            each.set_epoch(2)
            seen.append([(b.tolist(), each.end_of_dataloader, each.remainder) for b in each])
        assert seen[1] == seen[0][case["skip"] :]


def test_the_window_sees_the_rest_and_its_end():
    rest = skip_first_batches(prepared(), 2)
    seen = [(accumulation.active_loader is rest, accumulation.end_of_dataloader) for _ in rest]
    assert seen == [(True, False), (True, True)]
    assert accumulation.active_loader is None


def test_too_many_are_nothing_left():
    for loader in (DataLoader(range(4)), prepared(4), [1, 2]):
        rest = skip_first_batches(loader, 9)
        assert list(rest) == []
        assert len(rest) == 0


def test_zero_is_the_whole():
    loader = prepared()
    rest = skip_first_batches(loader)
    assert rest is not loader
    assert read(rest) == read(loader)


# --- Order ------------------------------------------------------------------------------------------


def test_a_shuffled_pass_goes_on_when_it_starts_with_the_same_random_state():
    for loader in (DataLoader(range(20), batch_size=3, shuffle=True), prepared(20, loader={"shuffle": True})):
        torch.manual_seed(5)
        whole = read(loader)
        torch.manual_seed(5)
        assert read(skip_first_batches(loader, 2)) == whole[2:]


def test_a_sampler_that_draws_when_it_is_asked_to_start_draws_at_the_same_moment():
    class Eager(Sampler):
        def __iter__(self):
            return iter(torch.randperm(20).tolist())

        def __len__(self):
            return 20

    loader = DataLoader(range(20), batch_size=3, sampler=Eager())
    torch.manual_seed(5)
    whole = read(loader)
    torch.manual_seed(5)
    assert read(skip_first_batches(loader, 2)) == whole[2:]


def test_a_seedable_order_goes_on_and_the_next_epoch_is_the_next():
    def fresh():
        return prepared(20, rank=1, ranks=2, loader={"shuffle": True}, use_seedable_sampler=True, data_seed=7)

    uninterrupted = fresh()
    epochs = [read(uninterrupted) for _ in range(4)]
    resumed = fresh()
    resumed.set_epoch(1)
    rest = skip_first_batches(resumed, 1)
    torch.manual_seed(99)
    assert read(rest) == epochs[1][1:]
    assert (resumed.iteration, rest.iteration) == (2, 2)
    assert [read(resumed), read(resumed)] == epochs[2:]
    again = skip_first_batches(skip_first_batches(resumed, 1), 1)
    again.set_epoch(0)
    assert resumed.iteration == 0
    assert read(again) == epochs[0][2:]
    assert (resumed.iteration, again.iteration) == (1, 1)


def test_a_rest_that_is_left_early_does_not_count():
    loader = prepared()
    for _ in skip_first_batches(loader, 1):
        break
    assert loader.iteration == 0


class Epochs(Sampler):
    """A sampler of the user's own that is told epochs."""

    def __init__(self):
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter(range(10 * self.epoch, 10 * self.epoch + 10))

    def __len__(self):
        return 10


def test_a_users_sampler_is_told_the_epochs_by_both_loaders():
    loader = prepared(data=range(100), loader={"sampler": Epochs(), "batch_size": 5})
    rest = skip_first_batches(loader, 1)
    firsts = [read(each)[0][0] for each in (loader, rest, loader, loader, rest)]
    assert firsts == [0, 15, 20, 30, 45]


def test_preparing_a_loader_that_skips():
    plain = skip_first_batches(DataLoader(range(20), batch_size=3, shuffle=True), 2)
    loaders = [
        prepare_data_loader(
            plain, num_processes=2, process_index=rank, use_seedable_sampler=True, data_seed=3
        )
        for rank in range(2)
    ]
    order = torch.randperm(20, generator=torch.Generator().manual_seed(3)).tolist()[6:]
    first, second = (read(loader) for loader in loaders)
    assert first == [order[0:3], order[6:9], [*order[12:14], order[0]]]
    assert second == [order[3:6], order[9:12], order[1:4]]
    assert [loader.remainder for loader in loaders] == [2, 2]
    assert type(plain.batch_sampler.batch_sampler.sampler) is RandomSampler  # the user's stays as it was


# --- Anything that can be iterated ------------------------------------------------------------------


def test_a_stream_is_read_and_dropped():
    rest = skip_first_batches(DataLoader(Stream(), batch_size=2), 1)
    assert type(rest) is SkipDataLoader
    assert isinstance(rest, DataLoader)
    assert read(rest) == read(rest) == [[2, 3], [4, 5], [6]]
    assert read(skip_first_batches(rest, 1)) == [[4, 5], [6]]


def test_any_iterable():
    rest = skip_first_batches(["a", "b", "c"], 1)
    assert type(rest) is SkipDataLoader
    assert isinstance(rest, SkipDataLoader)
    assert not isinstance(rest, list)
    assert list(rest) == list(rest) == ["b", "c"]
    assert len(rest) == 2
    assert list(skip_first_batches((n for n in range(3)), 1)) == [1, 2]
    assert [rest.end_of_dataloader for _ in rest] == [False, True]


def test_a_skipping_loader_made_by_hand_loads_only_what_is_left():
    data = Watched(7)
    loader = SkipDataLoader(data, skip_batches=2, batch_size=2)
    assert len(loader) == 2
    assert isinstance(loader, DataLoader)
    seen = [(batch.tolist(), loader.end_of_dataloader, loader.remainder) for batch in loader]
    assert seen == [([4, 5], False, -1), ([6], True, -1)]
    assert data.read == [4, 5, 6]
    assert accumulation.active_loader is None
    for twin in (copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        assert read(twin) == [[4, 5], [6]]


def test_a_later_pass_takes_the_window_over():
    loader = SkipDataLoader(range(6), skip_batches=1, batch_size=2)
    first = iter(loader)
    next(first)
    second = iter(loader)
    next(second)
    first.close()
    assert accumulation.active_loader is loader
    second.close()
    assert accumulation.active_loader is None


def test_a_shard_made_by_hand_that_skips_loads_only_what_is_left():
    data = Watched(7)
    loader = DataLoaderShard(data, skip_batches=2, batch_size=2)
    assert (len(loader), read(loader)) == (2, [[4, 5], [6]])
    assert data.read == [4, 5, 6]
    assert read(DataLoaderShard(Stream(), skip_batches=1, batch_size=2)) == [[2, 3], [4, 5], [6]]


def test_what_cannot_be_skipped():
    with pytest.raises(ConfigurationError, match=r"num_batches=-1.*0 or more"):
        skip_first_batches([1], -1)
    with pytest.raises(TypeError, match=r"skip_first_batches\(3, ….*iterable"):
        skip_first_batches(3, 1)
    with pytest.raises(TypeError):
        skip_first_batches([1], 1.5)


def test_evenness_can_be_changed_for_the_rest():
    rest = skip_first_batches(prepared(7, rank=1, ranks=2, loader={"batch_size": 2}), 1)
    assert read(rest) == [[6, 0]]
    with even_batches([rest], False):
        assert read(rest) == [[6]]
    assert read(rest) == [[6, 0]]
