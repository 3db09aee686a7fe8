"""The dispatcher of a run of one process, and what it knows without reading."""

import copy
import pickle

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from accelerate import Accelerator
from accelerate.data.dispatch import DataLoaderDispatcher
from accelerate.data.prepare import prepare_data_loader
from accelerate.data.shard import DataLoaderShard
from accelerate.data.skip import skip_first_batches
from accelerate.runtime.accumulation import accumulation
from accelerate.state import PartialState


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(7))


def dispatched(loader=None, **settings):
    loader = DataLoader(Stream(), batch_size=3) if loader is None else loader
    return prepare_data_loader(
        loader, torch.device("cpu"), put_on_device=True, **{"dispatch_batches": True, **settings}
    )


def read(loader):
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize(
    ("data", "asked", "put", "kind"),
    [
        (Stream(), None, True, DataLoaderDispatcher),
        (Stream(), None, False, DataLoaderShard),
        (Stream(), False, True, DataLoaderShard),
        (range(7), None, True, DataLoaderShard),
        (range(7), True, True, DataLoaderDispatcher),
    ],
)
def test_who_reads(data, asked, put, kind):
    loader = prepare_data_loader(DataLoader(data), put_on_device=put, dispatch_batches=asked)
    assert type(loader) is kind
    assert isinstance(loader, DataLoader)
    assert isinstance(loader, kind)


def test_one_process_reads_everything():
    loader = dispatched()
    seen = [(batch.tolist(), loader.end_of_dataloader, loader.remainder) for batch in loader]
    assert seen == [([0, 1, 2], False, -1), ([3, 4, 5], False, -1), ([6], True, 1)]
    assert (loader.iteration, accumulation.active_loader) == (1, None)


def test_made_by_hand():
    loader = DataLoaderDispatcher(range(7), batch_size=3, skip_batches=1, iteration=2)
    assert read(loader) == [[3, 4, 5], [6]]
    assert (loader.iteration, len(loader), loader.total_dataset_length) == (3, 2, 7)
    assert loader.state.num_processes == 1
    assert (loader.submesh_tp, loader.submesh_dp, loader.submesh_fsdp) == (None, None, None)
    with pytest.raises(TypeError, match="colour"):
        DataLoaderDispatcher(range(3), colour="red")


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("split", [False, True])
def test_lengths(drop_last, split):
    loader = dispatched(DataLoader(range(7), batch_size=3, drop_last=drop_last), split_batches=split)
    assert len(loader) == len(list(loader)) == (2 if drop_last else 3)
    assert loader.total_batch_size == 3
    assert loader.remainder == (-1 if drop_last else 1)


def test_a_batch_sampler_of_ones_own():
    batches = BatchSampler(SequentialSampler(range(7)), 2, False)
    assert read(dispatched(DataLoader(range(7), batch_sampler=batches))) == [[0, 1], [2, 3], [4, 5], [6]]


def test_batches_go_to_the_device():
    loader = DataLoaderDispatcher.wrap(DataLoader(range(4), batch_size=2), device=torch.device("meta"))
    assert {batch.device.type for batch in loader} == {"meta"}


def test_copies_and_pickles():
    loader = dispatched()
    for twin in (copy.copy(loader), copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        assert type(twin) is DataLoaderDispatcher
        assert read(twin) == [[0, 1, 2], [3, 4, 5], [6]]


def test_nested_loops_breaks_and_exceptions():
    outer, inner = dispatched(), dispatched()
    for _ in outer:
        assert [accumulation.active_loader is inner for _ in inner] == [True] * 3
        assert accumulation.active_loader is outer
        break
    assert accumulation.active_loader is None
    abandoned = iter(outer)
    next(abandoned)
    assert read(outer) == [[0, 1, 2], [3, 4, 5], [6]]
    assert accumulation.active_loader is None
    del abandoned

    class Broken(IterableDataset):
        def __iter__(self):
            yield 1
            raise KeyError("two")

    batches = iter(dispatched(DataLoader(Broken())))
    assert next(batches).tolist() == [1]
    with pytest.raises(KeyError, match="two"):
        next(batches)
    assert accumulation.active_loader is None


def test_the_rest_is_a_dispatcher():
    loader = dispatched()
    rest = skip_first_batches(loader, 2)
    assert type(rest) is DataLoaderDispatcher
    assert read(rest) == [[6]]
    assert loader.iteration == rest.iteration == 1


def test_a_function_that_cuts_is_called_in_one_process_too():
    def cut(batch, part, process_index, num_processes):
        return batch[part] + 10

    loader = dispatched(slice_fn_for_dispatch=cut)
    assert read(loader)[0] == [10, 11, 12]


def test_one_of_an_ended_run_is_prepared_anew():
    accelerator = Accelerator(cpu=True)
    given = DataLoader(Stream(), batch_size=3)
    loader = accelerator.prepare(given)
    assert accelerator.prepare(loader) is loader
    accelerator.end_training()
    again = Accelerator(cpu=True).prepare(loader)
    assert again is not loader
    assert again.base_dataloader is given
    assert PartialState().num_processes == 1
