"""A loader that is brought where another one stood goes on as that one did, and says where it cannot."""

import copy
import io
import random
import time
from itertools import zip_longest

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)

from accelerate.data.prepare import prepare_data_loader
from accelerate.data.samplers import SeedableRandomSampler, get_sampler
from accelerate.data.shard import DataLoaderShard
from accelerate.data.skip import skip_first_batches
from accelerate.errors import CheckpointError

LENGTH = 23


class PythonRandom(Sampler):
    """Draws from the global random states of Python and numpy."""

    def __iter__(self):
        order = list(range(LENGTH))
        random.shuffle(order)
        np.random.shuffle(order)
        return iter(order)

    def __len__(self):
        return LENGTH


class Blocks(Sampler):
    """A batch sampler of the user's own with an epoch and batches of several sizes."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        while order:
            size = 1 + (order[0] + self.epoch) % 3
            yield order[:size]
            order = order[size:]

    def __len__(self):
        return len(list(iter(self)))


class Noisy(Dataset):
    """Each sample draws a random number, as an augmentation does."""

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        return index, torch.rand(()).item()


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        yield from range(LENGTH) if info is None else range(info.id, LENGTH, info.num_workers)


class ShuffledStream(IterableDataset):
    def __iter__(self):
        yield from torch.randperm(LENGTH).tolist()


class EpochStream(IterableDataset):
    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        yield from torch.randperm(LENGTH, generator=torch.Generator().manual_seed(self.epoch)).tolist()


def seeded():
    return torch.Generator().manual_seed(5)


KINDS = {
    "in order": lambda: {"batch_size": 3},
    "shuffled": lambda: {"batch_size": 3, "shuffle": True},
    "shuffled, dropped": lambda: {"batch_size": 3, "shuffle": True, "drop_last": True},
    "generator": lambda: {"batch_size": 3, "shuffle": True, "generator": seeded()},
    "replacement": lambda: {"batch_size": 3, "sampler": RandomSampler(range(LENGTH), True, 40)},
    "longer": lambda: {"batch_size": 3, "sampler": RandomSampler(range(LENGTH), num_samples=50)},
    "subset": lambda: {"batch_size": 3, "sampler": SubsetRandomSampler(range(3, LENGTH))},
    "weighted": lambda: {"batch_size": 3, "sampler": WeightedRandomSampler([1.0] * LENGTH, LENGTH)},
    "python": lambda: {"batch_size": 3, "sampler": PythonRandom()},
    "blocks": lambda: {"batch_sampler": Blocks()},
    "no batches": lambda: {"batch_size": None},
    "batch sampler as sampler": lambda: {
        "batch_size": None,
        "sampler": BatchSampler(SequentialSampler(range(LENGTH)), 4, False),
    },
}


class Indexable(Dataset):
    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        return torch.tensor(index)


def make(kind, ranks=1, workers=0, data=None, **settings):
    loader = DataLoader(Indexable() if data is None else data, num_workers=workers, **KINDS[kind]())
    loader = prepare_data_loader(loader, num_processes=ranks, process_index=ranks - 1, **settings)
    loader.rng_types = []  # there are no other ranks here
    return loader


def in_file(state):
    """Return a state as it comes out of a checkpoint."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def rest_of_run(loader, passes):
    return [[torch.as_tensor(batch).tolist() for batch in loader] for _ in range(passes)]


def run_to(loader, epoch, batches):
    """Train to the middle of an epoch and return the loader's state, and the whole run if nobody stops."""
    for _ in range(epoch):
        for _ in loader:
            torch.rand(3)
    iterator = iter(loader)
    for _ in range(batches):
        next(iterator)
        torch.rand(1)
    state = in_file(loader.state_dict())
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    following = [[torch.as_tensor(batch).tolist() for batch in iterator], *rest_of_run(loader, 1)]
    return state, states, following


def restore_globals(states):
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])


def scatter_globals():
    torch.manual_seed(99)
    random.seed(99)
    np.random.seed(99)


@pytest.mark.parametrize("seedable", [False, True])
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("place", [(0, 0), (0, 2), (1, 1), (1, 3)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_run_goes_on(kind, place, ranks, seedable):
    scatter_globals()
    state, states, following = run_to(make(kind, ranks, use_seedable_sampler=seedable), *place)
    after = torch.rand(1)
    scatter_globals()
    torch.rand(7)
    loader = make(kind, ranks, use_seedable_sampler=seedable)
    loader.load_state_dict(state)
    restore_globals(states)
    assert loader.iteration == place[0]
    assert rest_of_run(loader, 2) == following
    assert torch.equal(torch.rand(1), after)
    assert loader.iteration == place[0] + 2


@pytest.mark.parametrize("kind", ["shuffled", "blocks", "in order"])
def test_augmentations_go_on_as_they_would_have(kind):
    scatter_globals()
    loader = make(kind, data=Noisy())
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state, random_state = in_file(loader.state_dict()), torch.get_rng_state()
    following = [batch[1].tolist() for batch in iterator]
    loader = make(kind, data=Noisy())
    loader.load_state_dict(state)
    torch.set_rng_state(random_state)
    resumed = [batch[1].tolist() for batch in loader]
    # A batch sampler of the user's own is read one ahead.
    assert resumed[:: len(resumed) - 1] == following[:: len(following) - 1] or kind == "blocks"
    assert (resumed == following) == (kind != "blocks")


@pytest.mark.parametrize("stopped", [0, 2])
@pytest.mark.parametrize("resumed", [0, 1])
def test_the_number_of_workers_may_change(stopped, resumed):
    scatter_globals()
    state, states, following = run_to(make("shuffled", workers=stopped), 0, 3)
    loader = make("shuffled", workers=resumed)
    loader.load_state_dict(state)
    restore_globals(states)
    assert rest_of_run(loader, 1) == following[:1]


def in_rounds(loaders):
    """Return what ranks read, in the order of one process."""
    rounds = zip_longest(*loaders, fillvalue=torch.tensor([], dtype=torch.int64))
    return [index for batches in rounds for batch in batches for index in batch.tolist()]


SHARED = ["in order", "generator", "longer", "shuffled", "subset", "weighted", "replacement"]


@pytest.mark.parametrize("sampler", SHARED)
@pytest.mark.parametrize(("ranks", "others"), [(1, 2), (2, 1), (2, 4), (4, 1)])
def test_the_number_of_ranks_may_change(sampler, ranks, others):
    def all_ranks(count, state):
        loaders = []
        for rank in range(count):
            settings = {**KINDS[sampler](), "batch_size": 8 // count}
            torch.manual_seed(8)  # ranks would share a generator
            loader = prepare_data_loader(
                DataLoader(Indexable(), **settings),
                num_processes=count,
                process_index=rank,
                even_batches=False,
            )
            loader.rng_types = []
            if state is not None:
                loader.load_state_dict(state)
            loaders.append(loader)
        return loaders

    loaders = all_ranks(ranks, None)
    iterators = [iter(loader) for loader in loaders]
    for iterator in iterators:
        next(iterator)
    state = in_file(loaders[0].state_dict())
    expected = in_rounds(iterators)
    assert len(expected) >= 12
    assert in_rounds(all_ranks(others, state)) == expected


def test_another_global_batch_is_refused_where_it_stands_between():
    state, _, _ = run_to(make("in order"), 0, 1)
    with pytest.raises(CheckpointError, match=r"stands behind 3 samples, and this loader reads 6 at a time"):
        make("in order", ranks=2).load_state_dict(state)
    with pytest.raises(CheckpointError, match="no state of a prepared loader"):
        make("in order").load_state_dict({"a": 1})


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("kind", [Stream, EpochStream, ShuffledStream])
@pytest.mark.parametrize("batches", [0, 1, 2])
def test_streams_go_on(kind, batches, ranks, workers):
    if kind is ShuffledStream and ranks > 1:
        return  # ranks would not agree about the order

    def stream():
        loader = DataLoader(kind(), batch_size=3, num_workers=workers)
        return prepare_data_loader(loader, num_processes=ranks, process_index=ranks - 1)

    scatter_globals()
    state, states, following = run_to(stream(), 0, batches)
    torch.rand(5)
    loader = stream()
    loader.load_state_dict(state)
    restore_globals(states)
    if kind is not ShuffledStream or batches:
        assert rest_of_run(loader, 1) == following[:1]


def test_streams_of_workers_say_that_the_place_is_not_exact():
    def stream(workers):
        return prepare_data_loader(DataLoader(Stream(), batch_size=3, num_workers=workers))

    state, _, _ = run_to(stream(2), 0, 2)
    with pytest.warns(UserWarning, match="not exact: its state was saved with 1 ranks of 2 workers"):
        stream(0).load_state_dict(state)


def test_another_kind_of_order_is_warned_about():
    state, _, _ = run_to(make("generator"), 0, 2)
    with pytest.warns(UserWarning, match="was drawn from a generator"):
        make("shuffled", use_seedable_sampler=True).load_state_dict(state)


# --- Where a loader stands -------------------------------------------------------------------------


def test_a_saved_state_is_not_changed_by_loading_it():
    loader = make("shuffled")
    state, _, _ = run_to(loader, 0, 2)
    again = make("shuffled")
    again.load_state_dict(state)
    first, second = in_file(again.state_dict()), state
    assert {**first, "order": 0} == {**second, "order": 0}
    assert torch.equal(first["order"]["torch"], second["order"]["torch"])


def test_a_place_at_the_end_of_an_epoch_leaves_an_empty_pass():
    state, _, following = run_to(make("in order"), 0, 8)
    assert following[0] == []
    loader = make("in order")
    loader.load_state_dict(state)
    assert rest_of_run(loader, 2) == following


def test_a_finished_epoch_is_followed_by_a_whole_one():
    loader = make("in order")
    list(loader)
    state = loader.state_dict()
    assert (state["epoch"], state["batches"]) == (1, 0)
    other = make("in order")
    other.load_state_dict(state)
    assert (other.iteration, len(list(other))) == (1, 8)


def test_skipping_by_hand_counts_from_the_start_of_the_epoch():
    scatter_globals()
    state, states, following = run_to(make("shuffled"), 1, 3)
    loader = make("shuffled")
    loader.load_state_dict(state)
    restore_globals(states)
    rest = skip_first_batches(loader, 3)
    assert rest_of_run(rest, 1) == following[:1]
    assert rest_of_run(loader, 1) == following[1:]
    assert loader.iteration == 3


def test_a_loader_that_always_skips_some_counts_them():
    loader = DataLoaderShard(range(LENGTH), batch_size=3, skip_batches=2)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    assert state["batches"] == 3
    other = DataLoaderShard(range(LENGTH), batch_size=3, skip_batches=2)
    other.load_state_dict(state)
    assert next(iter(other)).tolist() == [9, 10, 11]
    assert next(iter(other)).tolist() == [6, 7, 8]


def test_the_place_is_known_while_the_rest_is_read():
    loader = make("in order")
    iterator = iter(skip_first_batches(loader, 3))
    next(iterator)
    assert loader.state_dict()["batches"] == 4


def test_another_epoch_begins_at_its_start():
    state, _, _ = run_to(make("in order"), 1, 3)
    loader = make("in order")
    loader.load_state_dict(state)
    loader.set_epoch(1)
    assert loader.state_dict()["batches"] == 3
    loader.set_epoch(2)
    assert loader.state_dict()["batches"] == 0
    assert len(list(loader)) == 8


def test_a_pass_that_was_left_keeps_its_place_unless_it_was_inside_another():
    outer, inner = make("in order"), make("in order")
    for _ in inner:
        break
    assert inner.state_dict()["batches"] == 1
    for _ in outer:
        for _ in inner:
            break
        assert (outer.state_dict()["batches"], inner.state_dict()["batches"]) == (1, 0)
        break


def test_copies_count_for_themselves():
    loader = make("in order")
    twin = copy.copy(loader)
    list(loader)
    assert (loader.iteration, twin.iteration) == (1, 0)


def test_a_stopped_loader_can_be_brought_back_in_the_same_process():
    loader = make("shuffled", use_seedable_sampler=True)
    state, _, following = run_to(loader, 0, 2)
    loader.load_state_dict(state)
    assert rest_of_run(loader, 2) == following


def test_the_seed_of_the_order_is_restored():
    loader = make("shuffled", use_seedable_sampler=True, data_seed=3)
    state, _, following = run_to(loader, 1, 2)
    other = make("shuffled", use_seedable_sampler=True, data_seed=4)
    other.load_state_dict(state)
    assert isinstance(get_sampler(other), SeedableRandomSampler)
    assert rest_of_run(other, 2) == following


# --- What it costs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("shuffle", "limit"), [(False, 0.001), (True, 0.02)])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_hundred_thousand_batches_are_left_out_in_no_time(shuffle, limit, ranks):
    def loader():
        made = DataLoader(range(110_000 * ranks), shuffle=shuffle)
        prepared = prepare_data_loader(made, num_processes=ranks, process_index=0)
        prepared.rng_types = []
        return prepared

    times = []
    for _ in range(5):
        first = loader()
        next(iter(first))
        state = {**first.state_dict(), "batches": 100_000, "position": 100_000 * ranks}
        resumed = loader()
        resumed.load_state_dict(state)
        start = time.process_time()
        next(iter(resumed))
        times.append(time.process_time() - start)
    assert min(times) < limit


def test_a_stream_is_passed_over_at_its_own_speed():
    class Long(IterableDataset):
        def __iter__(self):
            return iter(range(400_100))

    raw, skipping = [], []
    for _ in range(3):
        start = time.process_time()
        for _ in Long():
            pass
        raw.append(time.process_time() - start)
        loader = prepare_data_loader(DataLoader(Long(), batch_size=4))
        start = time.process_time()
        next(iter(skip_first_batches(loader, 100_000)))
        skipping.append(time.process_time() - start)
    assert min(skipping) < 1.5 * min(raw) + 0.002
