"""Which indices each rank gets: against recordings of the reference, and as properties."""

import json
import pickle
from itertools import chain, cycle, islice
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler, SequentialSampler

from accelerate.data.rounds import BatchSamplerShard
from accelerate.data.samplers import SeedableRandomSampler, get_sampler
from accelerate.errors import ConfigurationError

RECORDING = Path(__file__).parents[2] / "reference" / "data" / "samplers.json"


class Opaque(BatchSampler):
    """Same batches as its parent, but nobody may know that."""

    def __iter__(self):
        yield from super().__iter__()


class Sizes(Sampler):
    """Batches of given sizes, as a bucketing sampler makes them."""

    def __init__(self, sizes, **attributes):
        self.sizes = sizes
        self.__dict__.update(attributes)

    def __iter__(self):
        start = 0
        for size in self.sizes:
            yield list(range(start, start + size))
            start += size

    def __len__(self):
        return len(self.sizes)


def shards(batch_sampler, ranks, **kwargs):
    return [BatchSamplerShard(batch_sampler, ranks, rank, **kwargs) for rank in range(ranks)]


def sequential(length, batch_size, drop_last=False, kind=BatchSampler):
    return kind(SequentialSampler(range(length)), batch_size, drop_last)


@pytest.mark.parametrize("kind", [BatchSampler, Opaque])
def test_the_batches_are_those_of_the_reference(kind):
    cases = json.loads(RECORDING.read_text())["cases"]
    assert len(cases) > 400
    for (length, batch_size, ranks, drop_last, split, even), batches, lengths in cases:
        ours = shards(
            sequential(length, batch_size, bool(drop_last), kind),
            ranks,
            split_batches=bool(split),
            even_batches=bool(even),
        )
        label = f"{length=} {batch_size=} {ranks=} {drop_last=} {split=} {even=}"
        assert [list(shard) for shard in ours] == batches, label
        if kind is BatchSampler:
            assert [len(shard) for shard in ours] == [len(rank) for rank in batches], label
        # The reference counts a batch on ranks for which nothing is left of the last one; we do not.
        if not (split and not even):
            assert [len(shard) for shard in ours] == lengths, label


geometry = st.fixed_dictionaries(
    {
        "length": st.integers(0, 50),
        "share": st.integers(1, 5),
        "ranks": st.integers(1, 5),
        "split": st.booleans(),
        "kind": st.sampled_from([BatchSampler, Opaque]),
    }
)


def deal(case, *, even, drop_last=False):
    batch_size = case["share"] * (case["ranks"] if case["split"] else 1)
    inner = sequential(case["length"], batch_size, drop_last, case["kind"])
    return shards(inner, case["ranks"], split_batches=case["split"], even_batches=even)


@settings(deadline=None)
@given(geometry)
def test_even_batches_are_alike_on_all_ranks_and_fill_is_cyclic(case):
    ours = deal(case, even=True)
    dealt = [list(shard) for shard in ours]
    assert len({len(batches) for batches in dealt}) == 1
    assert {len(batch) for batches in dealt for batch in batches} <= {case["share"]}
    # Round by round, rank by rank: the samples in order, and then fill from the first round.
    seen = [index for batches in zip(*dealt, strict=True) for batch in batches for index in batch]
    first = range(min(case["length"], case["share"] * case["ranks"]))
    assert seen == list(islice(chain(range(case["length"]), cycle(first)), len(seen)))
    assert len(seen) - case["length"] < case["share"] * case["ranks"]


@settings(deadline=None)
@given(geometry)
def test_without_even_batches_each_sample_is_dealt_once(case):
    dealt = [list(shard) for shard in deal(case, even=False)]
    assert sorted(chain.from_iterable(chain.from_iterable(dealt))) == list(range(case["length"]))
    assert all(batches for batches in chain.from_iterable(dealt))


@settings(deadline=None)
@given(geometry, st.booleans())
def test_drop_last_drops_only_the_last_round(case, even):
    dealt = [list(shard) for shard in deal(case, even=even, drop_last=True)]
    round_size = case["share"] * case["ranks"]
    whole = case["length"] // round_size * round_size
    assert sorted(chain.from_iterable(chain.from_iterable(dealt))) == list(range(whole))
    assert len({len(batches) for batches in dealt}) == 1


@settings(deadline=None)
@given(geometry, st.booleans(), st.booleans())
def test_len_is_the_number_of_batches(case, even, drop_last):
    case = {**case, "kind": BatchSampler}
    for shard in deal(case, even=even, drop_last=drop_last):
        assert len(shard) == len(list(shard))


variable = st.lists(st.integers(1, 6), max_size=12)


@settings(deadline=None)
@given(variable, st.integers(1, 4), st.booleans())
def test_batches_without_declared_size_are_dealt_whole(sizes, ranks, even):
    inner = Sizes(sizes)
    dealt = [list(shard) for shard in shards(inner, ranks, even_batches=even)]
    expected = list(inner)
    if even and sizes:
        rounds = -(-len(sizes) // ranks)
        expected = list(islice(chain(expected, cycle(expected[:ranks])), rounds * ranks))
    assert [batch for i in range(len(sizes)) for batches in dealt for batch in batches[i : i + 1]] == expected


@settings(deadline=None)
@given(variable, st.integers(1, 4), st.booleans(), st.booleans())
def test_batches_smaller_than_declared_are_not_lost(sizes, ranks, even, split):
    inner = Sizes(sizes, batch_size=6 if not split else 12 if ranks == 4 else 6)
    ours = shards(inner, ranks, even_batches=even, split_batches=split)
    dealt = [list(shard) for shard in ours]
    seen = list(chain.from_iterable(chain.from_iterable(dealt)))
    assert set(seen) == set(range(sum(sizes)))
    if even:
        assert len({len(batches) for batches in dealt}) == 1
    else:
        assert len(seen) == sum(sizes)


def test_batches_larger_than_declared_are_split_without_loss():
    dealt = [list(shard) for shard in shards(Sizes([7, 3], batch_size=4), 2, split_batches=True)]
    assert dealt == [[[0, 1, 2, 3], [7, 8]], [[4, 5, 6, 0], [9, 0]]]


def test_the_real_length_of_a_filled_last_round_is_known_after_the_pass():
    for kind in (BatchSampler, Opaque):
        shard = BatchSamplerShard(sequential(10, 4, kind=kind), 2, 1)
        assert shard.last_round is None
        list(shard)
        assert shard.last_round == 2
    shard = BatchSamplerShard(Sizes([4, 3, 4, 2], batch_size=4), 2, 0)
    assert list(shard) == [[0, 1, 2, 3], [7, 8, 9, 10]]
    assert shard.last_round == 6
    full = BatchSamplerShard(sequential(8, 4, kind=Opaque), 2, 0)
    list(full)
    assert full.last_round is None


def test_more_ranks_than_samples():
    assert [list(s) for s in shards(sequential(1, 4), 3)] == [[[0, 0, 0, 0]]] * 3
    assert [list(s) for s in shards(sequential(1, 1), 3, even_batches=False)] == [[[0]], [], []]
    assert [list(s) for s in shards(sequential(0, 4), 3)] == [[], [], []]


def test_num_processes_and_process_index_are_read_while_iterating():
    shard = BatchSamplerShard(sequential(12, 2), 2, 1)
    batches = iter(shard)
    assert next(batches) == [2, 3]
    shard.num_processes, shard.process_index = 1, 0
    assert list(batches) == [[4, 5], [6, 7], [8, 9], [10, 11]]
    assert len(shard) == 6
    assert shard.round_size == 2


def test_other_attributes_are_those_of_the_inner_batch_sampler():
    inner = sequential(10, 4)
    inner.marked = True
    shard = BatchSamplerShard(inner, 2, 1)
    assert shard.sampler is inner.sampler
    assert shard.marked
    assert (shard.batch_size, shard.drop_last, shard.total_length, shard.round_size) == (4, False, 3, 8)
    with pytest.raises(AttributeError, match="nothing"):
        shard.nothing  # noqa: B018
    assert list(pickle.loads(pickle.dumps(shard))) == list(shard)


@pytest.mark.parametrize("inner", [sequential(10, 3), Sizes([2, 2])])
def test_splitting_needs_a_batch_size_that_ranks_can_share(inner):
    with pytest.raises(ConfigurationError, match="needs to be a round multiple of the number of processes"):
        BatchSamplerShard(inner, 2, 0, split_batches=True)


def test_a_lengthless_sampler_is_dealt_without_asking_for_its_length():
    endless = BatchSampler(cycle([0, 1, 2]), 2, False)
    assert list(islice(BatchSamplerShard(endless, 2, 1), 2)) == [[2, 0], [0, 1]]


# --- SeedableRandomSampler -------------------------------------------------------------------------


def permutation(length, seed):
    return torch.randperm(length, generator=torch.Generator().manual_seed(seed)).tolist()


def test_order_is_a_function_of_seed_and_epoch():
    sampler = SeedableRandomSampler(range(10), data_seed=7)
    assert [list(sampler), list(sampler)] == [permutation(10, 7), permutation(10, 8)]
    assert sampler.epoch == 2
    sampler.set_epoch(0)
    assert list(sampler) == permutation(10, 7)


def test_an_abandoned_pass_does_not_advance_the_epoch():
    sampler = SeedableRandomSampler(range(10), data_seed=7)
    next(iter(sampler))
    assert list(sampler) == permutation(10, 7)


def test_the_seed_is_that_of_torch_unless_given():
    torch.manual_seed(5)
    assert SeedableRandomSampler(range(10)).initial_seed == 5
    assert SeedableRandomSampler(range(10), data_seed=None).initial_seed == 5
    assert SeedableRandomSampler(range(10), data_seed=0).initial_seed == 0


def test_the_global_random_state_is_neither_read_nor_changed():
    sampler = SeedableRandomSampler(range(10), data_seed=7)
    state = torch.get_rng_state()
    list(sampler)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_largest_seed_of_torch_has_a_next_epoch():
    sampler = SeedableRandomSampler(range(10), data_seed=2**64 - 1)
    assert list(sampler) == permutation(10, 2**64 - 1)
    assert list(sampler) == permutation(10, 0)


def test_arguments_are_those_of_a_random_sampler():
    generator = torch.Generator()
    sampler = SeedableRandomSampler(range(10), True, 5, generator, data_seed=3)
    assert sampler.generator is generator
    assert len(list(sampler)) == len(sampler) == 5


def test_a_default_device_changes_nothing():
    expected = permutation(10, 7)
    with torch.device("meta"):
        assert list(SeedableRandomSampler(range(10), data_seed=7)) == expected


# --- get_sampler -----------------------------------------------------------------------------------


def test_get_sampler_finds_the_innermost_sampler():
    random = RandomSampler(range(10))
    batches = BatchSampler(random, 4, False)
    assert get_sampler(DataLoader(range(10), sampler=random)) is random
    assert get_sampler(DataLoader(range(10), sampler=random, batch_size=None)) is random
    assert get_sampler(DataLoader(range(10), sampler=batches, batch_size=None)) is random
    assert get_sampler(DataLoader(range(10), batch_sampler=BatchSamplerShard(batches, 2, 0))) is random
    assert get_sampler(DataLoader(range(10), batch_sampler=Sizes([2, 3]))) is None
    assert get_sampler(DataLoader(range(10), batch_sampler=BatchSamplerShard(Sizes([2, 3]), 2, 0))) is None
