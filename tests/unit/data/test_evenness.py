import pytest
from torch.utils.data import DataLoader

from accelerate.data.evenness import even_batches
from accelerate.data.prepare import prepare_data_loader


def loader(**options):
    return prepare_data_loader(DataLoader(range(5), **options), num_processes=2, process_index=1)


def test_it_holds_inside_only_even_after_an_error():
    loaders = [loader(), loader(batch_size=None)]
    with pytest.raises(KeyError), even_batches(loaders, False):  # noqa: PT012
        assert [len(each) for each in loaders] == [2, 2]
        raise KeyError("inside")
    assert [len(each) for each in loaders] == [3, 3]


def test_each_loader_gets_its_own_back():
    first, second = loader(), loader()
    second.batch_sampler.even_batches = False
    with even_batches([first, second], True):
        assert (len(first), len(second)) == (3, 3)
    assert (len(first), len(second)) == (3, 2)


def test_none_changes_nothing():
    each = loader()
    with even_batches([each, DataLoader(range(3))], None):
        assert len(each) == 3


def test_loaders_that_cannot_change_are_warned_about():
    each = loader()
    with (
        pytest.warns(UserWarning, match=r"even_batches=False.*no effect on 1 of 2"),
        even_batches([DataLoader(range(5)), each], False),
    ):
        assert len(each) == 2
