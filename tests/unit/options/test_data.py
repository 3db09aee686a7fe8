import pytest

from accelerate.errors import MissingPackageError
from accelerate.options import data
from accelerate.options.data import DataLoaderConfiguration


def test_defaults_and_order() -> None:
    assert repr(DataLoaderConfiguration()) == (
        "DataLoaderConfiguration(split_batches=False, dispatch_batches=None, even_batches=True, "
        "use_seedable_sampler=False, data_seed=None, non_blocking=False, use_stateful_dataloader=False)"
    )
    assert DataLoaderConfiguration(True, False, False, True, 3, True) == DataLoaderConfiguration(
        split_batches=True,
        dispatch_batches=False,
        even_batches=False,
        use_seedable_sampler=True,
        data_seed=3,
        non_blocking=True,
    )


def test_fields_are_assigned_later_by_clients() -> None:
    configuration = DataLoaderConfiguration()
    configuration.data_seed = 1
    configuration.non_blocking = True
    assert configuration == DataLoaderConfiguration(data_seed=1, non_blocking=True)


@pytest.mark.parametrize("installed", [True, False])
def test_stateful_loaders_need_torchdata(installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "is_torchdata_stateful_dataloader_available", lambda: installed)
    if installed:
        assert DataLoaderConfiguration(use_stateful_dataloader=True).use_stateful_dataloader
        return
    with pytest.raises(
        MissingPackageError, match=r"use_stateful_dataloader=True\) needs torchdata 0.8.0"
    ) as caught:
        DataLoaderConfiguration(use_stateful_dataloader=True)
    assert isinstance(caught.value, ImportError)
