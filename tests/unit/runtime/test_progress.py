import sys

import pytest

from accelerate.errors import ConfigurationError, MissingPackageError
from accelerate.runtime import progress
from accelerate.runtime.current import current
from accelerate.runtime.progress import tqdm


@pytest.fixture
def local_rank_1():
    current.start(cpu=True)
    current.local_process_index = 1


def test_it_iterates_and_shows_on_the_first_rank(capsys):
    assert list(tqdm(range(3), "steps")) == [0, 1, 2]
    assert "steps: 100%" in capsys.readouterr().err
    assert current.started


def test_it_iterates_and_hides_on_the_others(local_rank_1, capsys):
    assert list(tqdm(range(3), disable=False)) == [0, 1, 2]
    assert capsys.readouterr().err == ""


def test_every_rank_shows_it_on_request(local_rank_1, capsys):
    assert list(tqdm(range(3), main_process_only=False)) == [0, 1, 2]
    assert "3/3" in capsys.readouterr().err


def test_it_can_be_hidden_everywhere(capsys):
    assert list(tqdm(iterable=range(3), disable=True)) == [0, 1, 2]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("first", [True, False])
def test_the_former_first_argument_is_an_error_that_says_what_to_write(first):
    with pytest.raises(ConfigurationError, match=r"tqdm\(iterable, main_process_only=...\)") as caught:
        tqdm(first, range(3))
    assert isinstance(caught.value, ValueError)


def test_without_the_package(monkeypatch):
    monkeypatch.setattr(progress, "is_tqdm_available", lambda: False)
    with pytest.raises(MissingPackageError, match="pip install tqdm") as caught:
        tqdm(range(3))
    assert isinstance(caught.value, ImportError)


def test_the_function_is_what_the_door_gives_whatever_was_imported():
    import accelerate.utils.tqdm  # noqa: F401
    from accelerate.utils import tqdm as from_door

    assert from_door is tqdm is sys.modules["accelerate.utils.tqdm"].tqdm
