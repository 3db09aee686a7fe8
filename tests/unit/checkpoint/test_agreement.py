"""A step ends alike on all ranks: with the answers of all, or with an error that names who failed."""

import pytest

from accelerate.checkpoint.agreement import Ranks
from accelerate.errors import CheckpointError, ConfigurationError
from accelerate.runtime.world import World


class Played(Ranks):
    """A rank whose peers say what the test says."""

    def __init__(self, *others):
        super().__init__(World(rank=0, size=1 + len(others), local_size=1))
        self.others = others

    def exchange(self, message, *, patient=False):
        return [message, *self.others]


def test_one_rank_keeps_its_own_error():
    with pytest.raises(OSError, match=r"^full$"), Ranks(World()).step("", ""):
        raise OSError("full")


def test_all_answers_are_there_after_the_block():
    with Played((None, "b"), (None, "c")).step("while testing", "Nothing.") as step:
        step.value = "a"
    assert step.answers == ["a", "b", "c"]


def test_another_ranks_failure_is_an_error_here():
    step = Played((None, 0), (("OSError", "full"), None)).step("while testing", "Nothing was done.")
    with pytest.raises(CheckpointError) as raised, step:
        pass
    assert str(raised.value) == "rank 2 failed while testing: OSError: full\nNothing was done."


def test_ranks_that_fail_alike_share_a_sentence():
    full = (("OSError", "full"), None)
    step = Played(full, full).step("while testing", "Nothing was done.")
    said = r"^rank 0 failed .*: KeyError: 'x'; ranks 1, 2 failed while"
    with pytest.raises(CheckpointError, match=said), step:
        raise KeyError("x")


def test_the_cause_is_kept_on_the_rank_that_failed():
    step = Played((None, 0)).step("while testing", "Nothing was done.")
    with pytest.raises(CheckpointError) as raised, step:
        raise OSError("full")
    assert isinstance(raised.value.__cause__, OSError)


def test_what_all_ranks_raise_is_raised_as_it_is():
    wrong = (("ConfigurationError", "wrong on rank 1"), None)
    with pytest.raises(ConfigurationError, match=r"^wrong here$"), Played(wrong).step("", ""):
        raise ConfigurationError("wrong here")


def test_an_interruption_is_not_told_but_goes_through():
    with pytest.raises(KeyboardInterrupt), Played().step("", ""):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("rank", "local_rank", "once", "each"), [(0, 0, True, True), (1, 1, False, False), (2, 0, False, True)]
)
def test_who_leads(rank, local_rank, once, each):
    ranks = Ranks(World(rank=rank, size=4, local_rank=local_rank, local_size=2))
    assert (ranks.leads(False), ranks.leads(True)) == (once, each)
