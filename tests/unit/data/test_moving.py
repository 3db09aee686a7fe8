import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from accelerate.data.moving import OverlappedMover, mover
from accelerate.data.prepare import prepare_data_loader
from accelerate.devices.fake import FakeDevice
from accelerate.devices.streams import TorchSideStream
from accelerate.runtime.current import current

META = torch.device("meta")  # what was sent there shows


@pytest.fixture
def device():
    """A run on a device that can copy beside its work, and records that it does."""
    current.start(cpu=True)
    current.kind = FakeDevice()
    yield current.kind
    current.reset()


def test_it_overlaps_where_the_device_can_and_the_user_lets_it(device):
    assert isinstance(mover(META, non_blocking=True, pinned=False), OverlappedMover)
    assert isinstance(mover(META, non_blocking=False, pinned=True), OverlappedMover)
    assert not isinstance(mover(META, non_blocking=False, pinned=False), OverlappedMover)
    assert mover(None, non_blocking=True, pinned=True) is None


def test_a_processor_has_nothing_to_overlap():
    current.start(cpu=True)
    move = mover(torch.device("cpu"), non_blocking=True, pinned=True)
    batch = {"rows": torch.ones(2)}
    assert move(batch) is batch
    current.reset()


def test_the_work_waits_for_all_tensors_of_the_copy(device):
    move = mover(META, non_blocking=True, pinned=False)
    moved = move({"rows": torch.ones(2), "more": [torch.ones(1), "text"]})
    assert (moved["rows"].device, moved["more"][0].device, moved["more"][1]) == (META, META, "text")
    assert device.calls == [("enter side stream",), ("join side stream", 2)]


class Notes(Dataset):
    """Numbers, read in the order in which they are noted."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.tensor([index])


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(6).view(6, 1))


def copies(loader, device):
    """Return, for each batch of a pass, how many copies were begun and waited for when it was given out."""
    counts, ends = [], []
    for batch in loader:
        assert batch.device == META
        names = [call[0] for call in device.calls]
        counts.append((names.count("enter side stream"), names.count("join side stream")))
        ends.append(loader.end_of_dataloader)
    return counts, ends


def prepared(dataset, workers=0):
    loader = DataLoader(dataset, batch_size=2, num_workers=workers)
    return prepare_data_loader(loader, META, put_on_device=True, non_blocking=True)


@pytest.mark.parametrize("dataset", [Notes(), Stream()])
def test_without_workers_each_batch_is_copied_when_its_turn_comes(device, dataset):
    assert copies(prepared(dataset), device)[0] == [(1, 1), (2, 2), (3, 3)]


def test_with_workers_the_next_copy_is_under_way(device):
    counts, ends = copies(prepared(Notes(), workers=1), device)
    assert counts == [(2, 1), (3, 2), (3, 3)]
    assert ends == [False, False, True]


class Module:
    """Stands for `torch.cuda`: notes what its streams are asked."""

    def __init__(self):
        self.asked = []
        module = self

        class Stream:
            def __init__(self, device):
                module.asked.append(("new", device))

            def wait_stream(self, other):
                module.asked.append(("wait", type(other).__name__))

        self.Stream = Stream
        self._working = Stream("working")

    def stream(self, stream):
        self.asked.append(("enter",))
        return torch.no_grad()

    def current_stream(self, device):
        return self._working


def test_a_stream_of_torch_is_waited_for_and_keeps_its_memory(monkeypatch):
    module = Module()
    recorded = []
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: recorded.append(tensor.shape))
    stream = TorchSideStream(module, META)
    with stream.entered():
        copies = [torch.ones(3, device=META), torch.ones(4)]
    stream.join(copies)
    assert module.asked == [("new", "working"), ("new", META), ("enter",), ("wait", "Stream")]
    assert recorded == [torch.Size([3])]  # the other one does not lie on the device
