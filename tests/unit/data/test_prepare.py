"""From a user's loader to the loader of a rank: every row of the table, and what is kept."""

import json
import random
from itertools import chain
from pathlib import Path

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from accelerate.data.prepare import prepare_data_loader
from accelerate.data.rounds import BatchSamplerShard
from accelerate.data.samplers import SeedableRandomSampler
from accelerate.data.shard import DataLoaderShard
from accelerate.errors import ConfigurationError
from accelerate.options.enums import RNGType
from accelerate.state import PartialState

TEN = range(10)


def read(loader):
    return [batch.tolist() for batch in loader]


def on_ranks(make, ranks=2, **kwargs):
    """Return what each rank reads of the loader that `make()` gives, each rank having made its own."""
    return [
        read(prepare_data_loader(make(), num_processes=ranks, process_index=i, **kwargs))
        for i in range(ranks)
    ]


def test_one_process_wraps_the_loader_itself():
    loader = DataLoader(TEN, batch_size=4)
    prepared = prepare_data_loader(loader)
    assert type(prepared) is DataLoaderShard
    assert isinstance(prepared, DataLoader)
    assert prepared.base_dataloader is loader
    assert prepared.device is None
    assert prepared.rng_types == []
    assert read(prepared) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_a_prepared_loader_is_returned_as_it_is():
    prepared = prepare_data_loader(DataLoader(TEN))
    assert prepare_data_loader(prepared) is prepared


def test_the_place_is_that_of_the_current_run():
    PartialState(cpu=True)
    prepared = prepare_data_loader(
        DataLoader(TEN, batch_size=4), put_on_device=True, device=torch.device("cpu")
    )
    assert len(prepared) == 3
    assert prepared.device == torch.device("cpu")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [[[0, 1, 2, 3], [8, 9, 0, 1]], [[4, 5, 6, 7], [2, 3, 4, 5]]]),
        ({"even_batches": False}, [[[0, 1, 2, 3], [8, 9]], [[4, 5, 6, 7]]]),
        ({"split_batches": True}, [[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], [0, 1]]]),
        ({"split_batches": True, "even_batches": False}, [[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7]]]),
    ],
)
def test_batches_are_dealt_to_the_ranks(settings, expected):
    assert on_ranks(lambda: DataLoader(TEN, batch_size=4), **settings) == expected
    assert (
        on_ranks(lambda: DataLoader(TEN, batch_sampler=BatchSampler(TEN, 4, False)), **settings) == expected
    )
    in_sampler_slot = BatchSampler(TEN, 4, False)
    assert (
        on_ranks(lambda: DataLoader(torch.arange(10), sampler=in_sampler_slot, batch_size=None), **settings)
        == expected
    )


def test_drop_last():
    loader = DataLoader(TEN, batch_size=4, drop_last=True)
    assert on_ranks(lambda: loader) == [[[0, 1, 2, 3]], [[4, 5, 6, 7]]]
    prepared = prepare_data_loader(loader, num_processes=2, process_index=0)
    assert {prepared.remainder for _ in prepared} == {-1}


def test_a_batch_sampler_in_the_sampler_slot_is_replaced_there():
    loader = DataLoader(torch.arange(10), sampler=BatchSampler(TEN, 4, False), batch_size=None)
    prepared = prepare_data_loader(loader, num_processes=2, process_index=1)
    assert prepared.batch_sampler is None
    assert type(prepared.sampler) is BatchSamplerShard
    assert (len(prepared), prepared.total_batch_size) == (2, 8)
    assert {prepared.remainder for _ in prepared} == {2}
    assert type(loader.sampler) is BatchSampler  # the given loader is as it was


def test_items_that_are_batches_already_are_dealt_whole():
    def loader():
        return DataLoader([torch.arange(n) for n in (3, 1, 2)], batch_size=None)

    assert on_ranks(loader) == [[[0, 1, 2], [0, 1]], [[0], [0, 1, 2]]]
    assert on_ranks(loader, even_batches=False) == [[[0, 1, 2], [0, 1]], [[0]]]


class Lengths(Sampler):
    """A batch sampler of the user's own: batches of different sizes, told the epoch."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        yield from ([0, 1, 2], [3], [4, 5, 6, 7], [8, 9], [self.epoch])

    def __len__(self):
        return 5


def test_a_batch_sampler_with_batches_of_different_sizes():
    make = lambda: DataLoader(TEN, batch_sampler=Lengths())  # noqa: E731
    assert on_ranks(make) == [[[0, 1, 2], [4, 5, 6, 7], [0]], [[3], [8, 9], [0, 1, 2]]]
    assert on_ranks(make, even_batches=False) == [[[0, 1, 2], [4, 5, 6, 7], [0]], [[3], [8, 9]]]
    prepared = prepare_data_loader(make(), num_processes=2, process_index=0)
    read(prepared)
    assert read(prepared)[-1] == [1]  # set_epoch reaches it


class Louder(DataLoader):
    """A subclass with an `__init__`, an attribute and an `__iter__` of its own."""

    def __init__(self, factor):
        super().__init__(TEN, batch_size=4)
        self.factor = factor

    def __iter__(self):
        for batch in super().__iter__():
            yield batch * self.factor


@pytest.mark.parametrize("seedable", [False, True])
def test_a_subclass_keeps_its_iter_and_its_attributes(seedable):
    loader = Louder(10)
    assert on_ranks(lambda: loader, use_seedable_sampler=seedable)[1] == [[40, 50, 60, 70], [20, 30, 40, 50]]
    prepared = prepare_data_loader(loader, num_processes=2, process_index=1)
    assert prepared.factor == 10
    assert isinstance(prepared, Louder)
    assert read(loader) == [[0, 10, 20, 30], [40, 50, 60, 70], [80, 90]]  # the given loader is as it was


def worker_init(_):
    random.seed(0)


@pytest.mark.parametrize("ranks", [1, 2])
def test_every_setting_of_the_loader_is_kept(ranks):
    settings = {
        "num_workers": 2,
        "collate_fn": torch.tensor,
        "pin_memory": False,
        "timeout": 20,
        "worker_init_fn": worker_init,
        "multiprocessing_context": "fork",
        "generator": torch.Generator().manual_seed(3),
        "prefetch_factor": 3,
        "persistent_workers": True,
        "pin_memory_device": "",
        "in_order": False,
    }
    loader = DataLoader(TEN, batch_size=4, shuffle=True, drop_last=True, **settings)
    prepared = prepare_data_loader(loader, num_processes=ranks, process_index=0)
    for name in ("dataset", "batch_size", "drop_last", *settings):
        assert getattr(prepared, name) is getattr(loader, name)


def test_workers_that_persist_belong_to_one_loader():
    loader = DataLoader(TEN, batch_size=4, num_workers=1, persistent_workers=True)
    read(loader)
    prepared = prepare_data_loader(loader, num_processes=2, process_index=1)
    assert read(prepared) == read(prepared) == [[4, 5, 6, 7], [2, 3, 4, 5]]
    assert read(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


# --- Order -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: RandomSampler(TEN),
        lambda: SubsetRandomSampler(TEN),
        lambda: WeightedRandomSampler([1.0] * 10, 10),
    ],
)
def test_samplers_of_torch_get_a_generator_that_ranks_share(make):
    sampler = make()
    loader = DataLoader(TEN, sampler=sampler, batch_size=4)
    prepared = prepare_data_loader(loader, num_processes=2, process_index=0, rng_types=["generator"])
    assert prepared.synchronized_generator is sampler.generator is not None
    assert prepared.rng_types == ["generator"]
    alone = make()
    prepared = prepare_data_loader(DataLoader(TEN, sampler=alone, batch_size=4), rng_types=["generator"])
    assert prepared.synchronized_generator is alone.generator is None
    assert prepared.rng_types == []


def test_a_generator_of_the_user_is_the_one_that_ranks_share():
    generator = torch.Generator()
    loader = DataLoader(TEN, batch_size=4, shuffle=True, generator=generator)
    prepared = prepare_data_loader(loader, num_processes=2, process_index=0)
    assert prepared.synchronized_generator is generator
    assert prepared.rng_types == ["generator"]


def test_a_generator_of_a_batch_sampler_of_the_user_is_shared():
    generator = torch.Generator()
    batches = Lengths()
    batches.generator = generator
    prepared = prepare_data_loader(DataLoader(TEN, batch_sampler=batches), num_processes=2, process_index=0)
    assert prepared.synchronized_generator is generator


@pytest.mark.parametrize("asked", [["generator", "torch"], [RNGType.GENERATOR, RNGType.TORCH]])
def test_a_state_without_generator_is_not_asked_for(asked):
    prepared = prepare_data_loader(DataLoader(TEN), rng_types=asked)
    assert [str(kind) for kind in prepared.rng_types] == ["torch"]
    assert len(asked) == 2  # the caller's list is as it was


RECORDING = Path(__file__).parents[2] / "reference" / "data" / "samplers.json"
SAMPLERS = {
    "shuffle": lambda: None,
    "subset": lambda: SubsetRandomSampler(range(7)),
    "weighted": lambda: WeightedRandomSampler([1.0] * 13, 8),
}


@pytest.mark.parametrize(("case", "passes", "drawn"), json.loads(RECORDING.read_text())["orders"])
def test_orders_and_the_use_of_random_numbers_are_those_of_the_reference(case, passes, drawn):
    kind, ranks, settings = case
    torch.manual_seed(3)
    sampler = SAMPLERS[kind]()
    loader = DataLoader(range(13), batch_size=3, shuffle=sampler is None, sampler=sampler)
    loader = prepare_data_loader(loader, num_processes=ranks, process_index=ranks - 1, **settings)
    assert [read(loader), read(loader)] == passes
    assert torch.randint(1000, (1,)).item() == drawn


def permutation(seed):
    return torch.randperm(10, generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize("ranks", [1, 2, 5])
@pytest.mark.parametrize(
    "make",
    [
        lambda: DataLoader(TEN, batch_size=2, shuffle=True),
        lambda: DataLoader(TEN, batch_sampler=BatchSampler(RandomSampler(TEN), 2, False)),
        lambda: DataLoader(TEN, batch_size=2, sampler=RandomSampler(TEN, generator=torch.Generator())),
        lambda: DataLoader(
            torch.arange(10), batch_size=None, sampler=BatchSampler(RandomSampler(TEN), 2, False)
        ),
    ],
)
def test_seedable_order_is_the_same_at_any_number_of_ranks(make, ranks):
    loaders = [
        prepare_data_loader(
            make(), num_processes=ranks, process_index=rank, use_seedable_sampler=True, data_seed=7
        )
        for rank in range(ranks)
    ]
    assert all(loader.rng_types == [] for loader in loaders)
    for epoch in range(2):
        dealt = [read(loader) for loader in loaders]
        order = [index for batches in zip(*dealt, strict=True) for batch in batches for index in batch]
        assert order[:10] == permutation(7 + epoch)


def test_seedable_order_of_items_without_batches():
    prepared = prepare_data_loader(
        DataLoader(TEN, batch_size=None, shuffle=True), use_seedable_sampler=True, data_seed=7
    )
    assert list(prepared) == permutation(7)


def test_the_given_loader_still_shuffles_by_itself_after_a_seedable_one_was_made():
    loader = DataLoader(TEN, batch_size=2, shuffle=True)
    prepare_data_loader(loader, use_seedable_sampler=True)
    assert type(loader.sampler) is type(loader.batch_sampler.sampler) is RandomSampler


class Bucketing(BatchSampler):
    """A user's batch sampler around a random sampler."""

    def __iter__(self):
        yield from super().__iter__()


def test_a_batch_sampler_of_the_user_stays_the_one_in_use():
    batches = Bucketing(RandomSampler(TEN), 5, False)
    prepared = prepare_data_loader(
        DataLoader(TEN, batch_sampler=batches), use_seedable_sampler=True, data_seed=7
    )
    assert prepared.batch_sampler is batches
    assert type(prepared.get_sampler()) is SeedableRandomSampler
    assert list(chain.from_iterable(read(prepared))) == permutation(7)


class Backwards(RandomSampler):
    """A user's sampler that happens to inherit from RandomSampler."""

    def __iter__(self):
        return iter(range(9, -1, -1))


@pytest.mark.parametrize("sampler", [SequentialSampler(TEN), Backwards(TEN), SubsetRandomSampler(TEN)])
def test_only_a_plain_random_sampler_becomes_seedable(sampler):
    prepared = prepare_data_loader(DataLoader(TEN, sampler=sampler), use_seedable_sampler=True)
    assert prepared.get_sampler() is sampler


def test_number_of_samples_and_replacement_are_kept():
    sampler = RandomSampler(TEN, replacement=True, num_samples=25)
    prepared = prepare_data_loader(DataLoader(TEN, sampler=sampler), use_seedable_sampler=True)
    assert len(prepared) == len(read(prepared)) == 25
    assert prepared.get_sampler().replacement


# --- Refusals --------------------------------------------------------------------------------------


class Stream(IterableDataset):
    def __iter__(self):
        return iter(TEN)


@pytest.mark.parametrize(
    ("loader", "settings", "message"),
    [
        (
            DataLoader(Stream()),
            {"dispatch_batches": True},
            "Using `dispatch_batches=True` requires `put_on_device=True`",
        ),
        (TEN, {}, r"prepare_data_loader\(range\(0, 10\)\): a torch.utils.data.DataLoader is needed"),
        (DataLoader(TEN), {"num_processes": 2, "process_index": 2}, "process_index=2, num_processes=2"),
        (
            DataLoader(TEN, batch_size=3),
            {"num_processes": 2, "process_index": 0, "split_batches": True},
            r"To use a `DataLoader` in `split_batches` mode, the batch size \(3\) needs to be a round "
            r"multiple of the number of processes \(2\).",
        ),
        (DataLoader(TEN, batch_size=None), {"split_batches": True}, "needs a batch size to split"),
        (
            DataLoader(TEN, sampler=DistributedSampler(TEN, num_replicas=2, rank=0)),
            {"num_processes": 2, "process_index": 0},
            "sharding it again would leave out samples",
        ),
    ],
)
def test_refusals(loader, settings, message):
    with pytest.raises(ConfigurationError, match=message):
        prepare_data_loader(loader, **settings)


def test_a_setting_without_effect_warns():
    with pytest.warns(UserWarning, match="slice_fn_for_dispatch is used by dispatch_batches=True only"):
        prepare_data_loader(DataLoader(TEN), slice_fn_for_dispatch=len)


def test_a_custom_sampler_that_is_already_distributed_over_one_rank_is_fine():
    sampler = DistributedSampler(TEN, num_replicas=1, rank=0, shuffle=False)
    assert on_ranks(lambda: DataLoader(TEN, sampler=sampler, batch_size=5)) == [
        [[0, 1, 2, 3, 4]],
        [[5, 6, 7, 8, 9]],
    ]
