"""Rank 0 reads for all: every shape of batch arrives, every exception is raised everywhere, nothing hangs."""

import dataclasses
import time
from collections import UserDict, defaultdict, namedtuple

import pytest
import torch
import torch.distributed as dist
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import DataLoader, Dataset, IterableDataset

from accelerate.data import mail
from accelerate.data.dispatch import DataLoaderDispatcher
from accelerate.data.prepare import prepare_data_loader
from accelerate.data.skip import skip_first_batches
from accelerate.runtime.accumulation import accumulation
from accelerate.runtime.collectives import gather
from accelerate.runtime.header import GlooChannel
from accelerate.state import PartialState
from tests.support.rank_pool import RankError


class Stream(IterableDataset):
    def __init__(self, length, fails_at=None):
        self.length = length
        self.fails_at = fails_at

    def __iter__(self):
        for index in range(self.length):
            if index == self.fails_at:
                raise KeyError(f"sample {index}")
            yield index


class Given(IterableDataset):
    """Batches as they stand; for loaders without a batch size."""

    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        return iter(self.batches)


def dispatched(loader, **settings):
    state = PartialState(cpu=True)
    loader = prepare_data_loader(loader, state.device, put_on_device=True, dispatch_batches=True, **settings)
    assert type(loader) is DataLoaderDispatcher
    return loader


def read(length, size, **settings):
    drop_last = settings.pop("drop_last", False)
    workers = settings.pop("num_workers", 0)
    loader = dispatched(
        DataLoader(Stream(length), batch_size=size, drop_last=drop_last, num_workers=workers), **settings
    )
    seen, remainders = [], []
    for batch in loader:
        seen.append(batch.tolist())
        remainders.append((loader.end_of_dataloader, loader.remainder))
    assert accumulation.active_loader is None
    return seen, remainders


@pytest.mark.parametrize(
    ("length", "size", "settings", "expected"),
    [
        (10, 4, {}, [[[0, 1, 2, 3], [8]], [[4, 5, 6, 7], [9]]]),
        (10, 4, {"num_workers": 1}, [[[0, 1, 2, 3], [8]], [[4, 5, 6, 7], [9]]]),
        (10, 4, {"split_batches": True}, [[[0, 1], [4, 5], [8]], [[2, 3], [6, 7], [9]]]),
        (9, 4, {}, [[[0, 1, 2, 3], [8]], [[4, 5, 6, 7], [0]]]),
        (15, 4, {}, [[[0, 1, 2, 3], [8, 9, 10, 11]], [[4, 5, 6, 7], [12, 13, 14, 0]]]),
        (9, 4, {"drop_last": True}, [[[0, 1, 2, 3]], [[4, 5, 6, 7]]]),
        (9, 4, {"even_batches": False}, [[[0, 1, 2, 3], [8]], [[4, 5, 6, 7]]]),
        (1, 4, {}, [[[0]], [[0]]]),
        (0, 4, {}, [[], []]),
        (1, 4, {"even_batches": False}, [[[0]], []]),
    ],
)
def test_what_each_rank_gets(rank_pool, length, size, settings, expected):
    results = rank_pool.run(read, length, size, **settings)
    assert [seen for seen, _ in results] == expected
    for seen, remainders in results:
        assert [end for end, _ in remainders] == [False] * (len(seen) - 1) + [True] * bool(seen)


def test_the_remainder_is_the_size_of_the_last_round(rank_pool):
    for _, remainders in rank_pool.run(read, 9, 4):
        assert remainders == [(False, -1), (True, 1)]


@pytest.mark.parametrize("ranks", [3, 4])
def test_more_ranks(rank_pool, ranks):
    results = [seen for seen, _ in rank_pool.run(read, 23, 2, num_ranks=ranks)]
    assert len({len(seen) for seen in results}) == 1
    assert {index for seen in results for batch in seen for index in batch} == set(range(23))


Point = namedtuple("Point", ["x", "name"])


@dataclasses.dataclass
class Example:
    ids: torch.Tensor
    text: str
    missing: object = None


class Encoding(UserDict):
    pass


def batches():
    lists = defaultdict(list)
    lists["a"] = [torch.tensor([1, 2]), "b"]
    return [
        {"x": torch.arange(3), "text": ["a", "b", "c"], "none": None, "deep": [{"y": torch.ones(2, 2)}]},
        {"x": torch.arange(30).view(5, 6), "text": ["ä"] * 5, "none": None, "deep": [{"y": torch.ones(1)}]},
        Point(torch.tensor(1.5, dtype=torch.float16), "p"),
        Example(ids=torch.zeros(0, 3, dtype=torch.int8), text="empty"),
        Encoding({"input_ids": torch.tensor([[True, False]])}),
        lists,
        pack_sequence([torch.arange(3.0), torch.arange(2.0)]),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        torch.ones(2, 2).to_sparse(),
        "only text",
        None,
        [torch.ones(3, dtype=torch.complex64).conj(), torch.tensor(7)],
        {"x": torch.arange(3), "objects": [{1, 2}, Ellipsis]},
        {"x": torch.arange(3), "objects": [{1, 2}, Ellipsis]},
    ]


def words(batch):
    """Return what can be compared between processes."""
    if isinstance(batch, torch.Tensor):
        data = batch.to_padded_tensor(-1) if batch.is_nested else batch.to_dense()
        return [str(batch.dtype), str(batch.layout), list(data.shape), data.tolist()]
    if isinstance(batch, PackedSequence):
        return ["packed", words(batch.data), words(batch.batch_sizes)]
    if dataclasses.is_dataclass(batch):
        return [type(batch).__name__, words(vars(batch))]
    if isinstance(batch, (dict, UserDict)):
        return [type(batch).__name__, {key: words(value) for key, value in batch.items()}]
    if isinstance(batch, (list, tuple)):
        return [type(batch).__name__, [words(item) for item in batch]]
    return batch


def every_kind():
    loader = dispatched(DataLoader(Given(batches()), batch_size=None, collate_fn=lambda batch: batch))
    return [words(batch) for batch in loader]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("ranks", [1, 2])
def test_every_kind_of_batch_arrives_as_it_is(rank_pool, ranks):
    expected = [words(batch) for batch in batches()]
    results = rank_pool.run(every_kind, num_ranks=ranks)
    assert [result[index] for index in range(len(expected) // ranks) for result in results] == expected


def objects_of_their_own():
    given = [{"x": torch.zeros(1), "seen": []} for _ in range(4)]
    loader = dispatched(DataLoader(Given(given), batch_size=None, collate_fn=lambda batch: batch))
    seen = []
    for batch in loader:
        batch["seen"].append(1)
        seen.append(len(batch["seen"]))
    return seen


def test_batches_share_no_objects(rank_pool):
    assert rank_pool.run(objects_of_their_own) == [[1, 1], [1, 1]]


def variable():
    lengths = [2, 7, 3, 3, 500, 1, 4, 4]
    given = [{"ids": torch.full((2, length), length)} for length in lengths]
    loader = dispatched(DataLoader(Given(given), batch_size=None))
    return [tuple(batch["ids"].shape) for batch in loader]


def test_shapes_may_differ_between_ranks_and_steps(rank_pool):
    assert rank_pool.run(variable) == [[(2, 2), (2, 3), (2, 500), (2, 4)], [(2, 7), (2, 3), (2, 1), (2, 4)]]


def fails(fails_at, num_workers=0):
    loader = dispatched(DataLoader(Stream(20, fails_at), batch_size=2, num_workers=num_workers))
    seen = []
    try:
        for batch in loader:
            seen.append(batch.tolist())
    except KeyError as error:
        again = gather(torch.ones(1)).tolist()
        return seen, str(error.args[0]), "fails" in repr(error.__cause__) or error.__cause__ is None, again
    return None


@pytest.mark.parametrize("fails_at", [0, 1, 9, 18])
def test_an_exception_of_the_dataset_is_raised_on_every_rank(rank_pool, fails_at):
    results = rank_pool.run(fails, fails_at)
    rounds = fails_at // 4
    for rank, (seen, message, _, again) in enumerate(results):
        assert message == f"sample {fails_at}"
        assert seen == [[4 * i + 2 * rank, 4 * i + 2 * rank + 1] for i in range(rounds)]
        assert again == [1, 1]


class Stubborn(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def raise_stubborn(items):
    raise Stubborn(1, 2)


def fails_stubbornly():
    loader = dispatched(DataLoader(Stream(4), collate_fn=raise_stubborn))
    try:
        next(iter(loader))
    except (Stubborn, RuntimeError) as error:
        return str(error), type(error).__name__
    return None


def test_an_exception_that_cannot_be_sent_is_told(rank_pool):
    mine, other = rank_pool.run(fails_stubbornly)
    assert mine == ("1 and 2", "Stubborn")
    assert other[0].startswith("Stubborn: 1 and 2")


def unpicklable():
    loader = dispatched(DataLoader(Stream(4), collate_fn=lambda items: {"f": lambda: items}))
    with pytest.raises(TypeError, match="cannot be sent to other ranks"):
        next(iter(loader))
    return True


def test_what_cannot_be_pickled_is_refused_on_every_rank(rank_pool):
    assert rank_pool.run(unpicklable) == [True, True]


class Dies(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        import os

        if index == 5:
            os._exit(3)
        return index


def worker_dies():
    loader = dispatched(DataLoader(Dies(), batch_size=1, num_workers=1))
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        list(loader)
    return True


def test_a_worker_that_dies_is_an_error_on_every_rank(rank_pool):
    assert rank_pool.run(worker_dies) == [True, True]


def left_early():
    loader = dispatched(DataLoader(Stream(20), batch_size=2))
    batch = next(iter(loader))
    again = [batch.tolist() for batch in loader]
    return batch.tolist(), again[:2], loader.iteration, accumulation.active_loader is None


def test_a_pass_that_was_left_early_is_followed_by_a_whole_one(rank_pool):
    assert rank_pool.run(left_early) == [
        ([0, 1], [[0, 1], [4, 5]], 1, True),
        ([2, 3], [[2, 3], [6, 7]], 1, True),
    ]


def skipped():
    loader = dispatched(DataLoader(Stream(22), batch_size=2))
    rest = skip_first_batches(loader, 2)
    assert type(rest) is DataLoaderDispatcher
    return [batch.tolist() for batch in rest]


def test_skipping(rank_pool):
    assert rank_pool.run(skipped) == [
        [[8, 9], [12, 13], [16, 17], [20]],
        [[10, 11], [14, 15], [18, 19], [21]],
    ]


def middle(batch, rows, process_index=None, num_processes=None):
    return batch[rows] * 100 + process_index * 10 + num_processes


def sliced():
    loader = dispatched(DataLoader(Stream(4), batch_size=2), slice_fn_for_dispatch=middle)
    return [batch.tolist() for batch in loader]


def test_a_function_of_the_users_cuts_batches(rank_pool):
    assert rank_pool.run(sliced) == [[[2, 102]], [[212, 312]]]


def collectives_of_a_step():
    given = [{f"x{i}": torch.zeros(4, dtype=torch.float32 if i % 2 else torch.int64) for i in range(8)}] * 40
    loader = iter(dispatched(DataLoader(Given(given), batch_size=None)))
    for _ in range(3):
        next(loader)
    with torch.profiler.profile() as profile:
        for _ in range(5):
            next(loader)
    return sum(event.count for event in profile.key_averages() if "gloo:" in event.key)


def test_a_step_is_one_collective(rank_pool):
    # The first or last of them may be outside the profile.
    assert set(rank_pool.run(collectives_of_a_step)) <= {4, 5}


def one_rank_leaves():
    rank = PartialState(cpu=True).process_index
    loader = dispatched(DataLoader(Stream(40), batch_size=1))
    for index, _ in enumerate(loader):
        if index == 3 and rank == 1:
            break
    dist.barrier()


def test_a_rank_that_leaves_alone_is_named_when_time_is_up(rank_pool):
    with pytest.raises(RankError):
        rank_pool.run(one_rank_leaves, timeout=8)


def fails_while_sending(at):
    rank = PartialState(cpu=True).process_index
    counted = iter(range(100))
    original = mail.read_head

    def read_head(row):
        if next(counted) == at:
            raise KeyError("a signal")
        return original(row)

    if rank == 0:
        mail.read_head = read_head
    seen = []
    try:
        for batch in dispatched(DataLoader(Stream(20), batch_size=2)):
            seen.append(batch.tolist())
    except KeyError as error:
        return error.args, len(seen), gather(torch.ones(1)).tolist()
    finally:
        mail.read_head = original
    return None


@pytest.mark.parametrize("at", [0, 1, 2])
def test_rank_0_tells_where_it_fails_outside_of_reading(rank_pool, at):
    mine, other = rank_pool.run(fails_while_sending, at)
    assert mine[0] == other[0] == ("a signal",)
    assert mine[2] == other[2] == [1, 1]  # all count the same calls
    assert mine[1] == at


def more_bytes_than_before():
    given = [{"x": torch.full((size,), size)} for size in (1, 1, 5000, 5000, 3, 3, 90000, 4, 100, 100)]
    loader = dispatched(DataLoader(Given(given), batch_size=None))
    return [(len(batch["x"]), int(batch["x"].sum())) for batch in loader]


def test_messages_of_any_length(rank_pool):
    expected = [[1, 5000, 3, 90000, 100], [1, 5000, 3, 4, 100]]
    results = rank_pool.run(more_bytes_than_before)
    assert results == [[(size, size * size) for size in sizes] for sizes in expected]


def seeded_order(data_seed):
    torch.manual_seed(PartialState(cpu=True).process_index)
    loader = DataLoader(range(12), batch_size=2, shuffle=True)
    loader = dispatched(loader, use_seedable_sampler=True, data_seed=data_seed)
    return [[batch.tolist() for batch in loader] for _ in range(2)]


def test_a_seedable_order_is_that_of_one_process(rank_pool):
    (alone,) = rank_pool.run(seeded_order, 5, num_ranks=1)
    mine, other = rank_pool.run(seeded_order, 5)
    for epoch in range(2):
        rounds = zip(mine[epoch], other[epoch], strict=True)
        assert [batch for round_ in rounds for batch in round_] == alone[epoch]


def without_headers():
    original = GlooChannel.gloo
    GlooChannel.gloo = None
    try:
        return [batch.tolist() for batch in dispatched(DataLoader(Stream(10), batch_size=4))]
    finally:
        GlooChannel.gloo = original


def test_the_default_group_carries_where_there_is_no_other(rank_pool):
    assert rank_pool.run(without_headers) == [[[0, 1, 2, 3], [8]], [[4, 5, 6, 7], [9]]]


class Slow(IterableDataset):
    def __iter__(self):
        for index in range(6):
            time.sleep(0.1)
            yield index


def overlap():
    loader = dispatched(DataLoader(Slow(), batch_size=1, num_workers=1))
    waits = []
    start = time.monotonic()
    for _ in loader:
        waits.append(time.monotonic() - start)
        time.sleep(0.3)
        start = time.monotonic()
    return waits[1:]


def test_the_next_batch_is_read_and_sent_while_one_is_used(rank_pool):
    for waits in rank_pool.run(overlap):
        assert max(waits) < 0.15
