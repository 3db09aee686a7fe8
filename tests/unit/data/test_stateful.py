"""torchdata's loader inside a prepared one: its place is saved with ours, and one of its own is read."""

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from accelerate import DataLoaderConfiguration
from accelerate.data import stateful
from accelerate.data.adapter import DataLoaderAdapter
from accelerate.data.dispatch import DataLoaderDispatcher
from accelerate.data.prepare import prepare_data_loader
from accelerate.data.shard import DataLoaderShard
from accelerate.data.skip import skip_first_batches
from accelerate.errors import ConfigurationError, MissingPackageError

# torchdata calls what torch has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")

KINDS = [DataLoaderAdapter, DataLoaderShard, DataLoaderDispatcher]


@pytest.mark.parametrize("kind", KINDS)
def test_without_torchdata_it_is_an_error_that_says_what_to_install(monkeypatch, kind):
    monkeypatch.setattr(stateful, "is_torchdata_stateful_dataloader_available", lambda: False)
    with pytest.raises(MissingPackageError, match="pip install torchdata"):
        kind(range(3), use_stateful_dataloader=True)
    with pytest.raises(MissingPackageError, match="pip install torchdata"):
        prepare_data_loader(DataLoader(range(3)), use_stateful_dataloader=True)


def test_an_adapter_of_a_torch_loader_keeps_no_place():
    adapter = DataLoaderAdapter(range(3))
    for call in (adapter.state_dict, lambda: adapter.load_state_dict({})):
        with pytest.raises(ConfigurationError, match="this DataLoaderAdapter keeps no place"):
            call()


class Stream(IterableDataset):
    """Knows where it stands, as torchdata asks."""

    at = 0

    def __iter__(self):
        while self.at < 14:
            self.at += 1
            yield self.at - 1
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


LOADERS = {
    "in order": lambda workers: DataLoader(range(14), batch_size=2, num_workers=workers),
    "shuffled": lambda workers: DataLoader(range(14), batch_size=2, shuffle=True, num_workers=workers),
    "stream": lambda workers: DataLoader(Stream(), batch_size=2, num_workers=workers),
    "single": lambda workers: DataLoader(range(14), batch_size=None, num_workers=workers),
    "batches": lambda workers: DataLoader(
        range(14), batch_sampler=BatchSampler(SequentialSampler(range(14)), 4, True), num_workers=workers
    ),
}


def prepared(kind, workers=0, ranks=1, **settings):
    loader = prepare_data_loader(
        LOADERS[kind](workers),
        num_processes=ranks,
        process_index=ranks - 1,
        use_stateful_dataloader=True,
        use_seedable_sampler=True,
        **settings,
    )
    loader.rng_types = []
    return loader


def read(batches):
    return [torch.as_tensor(batch).tolist() for batch in batches]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", LOADERS)
def test_it_goes_on_behind_the_batch_in_hand(kind, workers, ranks):
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")
    loader = prepared(kind, workers, ranks)
    assert isinstance(loader.base_dataloader, torchdata.StatefulDataLoader)
    assert isinstance(loader, DataLoader)
    list(loader)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    following = [read(batches), read(loader)]
    resumed = prepared(kind, workers, ranks)
    resumed.load_state_dict(state)
    assert resumed.iteration == 1
    assert [read(resumed), read(resumed)] == following
    assert resumed.iteration == 3


@pytest.mark.parametrize("workers", [0, 1])
def test_a_state_of_torchdata_alone_is_understood(workers):
    pytest.importorskip("torchdata.stateful_dataloader")
    loader = prepared("in order", workers)
    batches = iter(loader)
    next(batches), next(batches)
    state = {key: value for key, value in loader.state_dict().items() if key != "accelerate"}
    resumed = prepared("in order", workers)
    resumed.load_state_dict(state)
    batches = iter(resumed)
    assert next(batches).tolist() == [4, 5]
    assert resumed.state_dict()["accelerate"]["batches"] == 3


def test_at_the_end_of_an_epoch_the_next_one_is_whole():
    pytest.importorskip("torchdata.stateful_dataloader")
    loader = prepared("in order")
    list(loader)
    resumed = prepared("in order")
    resumed.load_state_dict(loader.state_dict())
    assert (resumed.iteration, len(list(resumed))) == (1, 7)


def test_a_dispatched_loader_counts_its_rounds():
    pytest.importorskip("torchdata.stateful_dataloader")
    settings = {"put_on_device": True, "dispatch_batches": True}
    loader = prepared("stream", **settings)
    batches = iter(loader)
    next(batches)
    resumed = prepared("stream", **settings)
    resumed.load_state_dict(loader.state_dict())
    assert read(resumed)[0] == next(batches).tolist()


def test_a_loader_of_a_class_of_its_own_is_refused():
    pytest.importorskip("torchdata.stateful_dataloader")

    class Own(DataLoader):
        pass

    with pytest.raises(ConfigurationError, match="cannot take a Own"):
        prepare_data_loader(Own(range(3)), use_stateful_dataloader=True)


def test_the_configuration_asks_for_it():
    pytest.importorskip("torchdata.stateful_dataloader")
    assert DataLoaderConfiguration(use_stateful_dataloader=True).use_stateful_dataloader


def test_states_are_understood_with_and_without_torchdata():
    pytest.importorskip("torchdata.stateful_dataloader")
    loaders = [prepared("in order"), prepare_data_loader(LOADERS["in order"](0))]
    for saved in loaders:
        batches = iter(saved)
        next(batches), next(batches)
        for other in (prepared("in order"), prepare_data_loader(LOADERS["in order"](0))):
            other.load_state_dict(saved.state_dict())
            assert read(other)[0] == [4, 5]
            assert len(read(other)) == 7


def test_another_epoch_or_skipping_by_hand_gives_the_place_up():
    pytest.importorskip("torchdata.stateful_dataloader")
    loader = prepared("in order")
    batches = iter(loader)
    next(batches), next(batches)
    state = loader.state_dict()
    again = prepared("in order")
    again.load_state_dict(state)
    again.set_epoch(3)
    assert read(again)[0] == [0, 1]
    again.load_state_dict(state)
    assert read(skip_first_batches(again, 3))[0] == [6, 7]
    assert read(again)[0] == [0, 1]
    again.load_state_dict(state)
    assert again.state_dict()["_num_yielded"] == 2
