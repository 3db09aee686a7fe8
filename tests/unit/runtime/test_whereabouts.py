"""Notes of where ranks are: what they say, who reads them, and the thread that takes them to the store."""

import contextlib
import functools
import logging
import os
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from accelerate.runtime import whereabouts
from accelerate.runtime.whereabouts import Note, NoticeBoard, absence, call_site, format_ranks, format_site

HERE = Note(group="0", operation="reduce", number=13, site="train.py:90", inside=True)
AWAY = Note(
    group="0", operation="gather", number=12, site="train.py:88", position="train.py:95 in `backward`"
)


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([3], "rank 3"), ([1, 0], "ranks 0-1"), ([0, 2, 3, 4, 9], "ranks 0, 2-4, 9")],
)
def test_format_ranks(ranks, text):
    assert format_ranks(ranks) == text


def test_sites_are_relative_to_the_working_directory_or_whole(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert format_site((str(tmp_path / "a" / "train.py"), 3)) == f"a{os.sep}train.py:3"
    outside = str(tmp_path.parent / "train.py")
    assert format_site((outside, 3)) == f"{outside}:3"


def through_torch(function: Any) -> Any:
    """Call through a decorator of torch, as users do."""
    return torch.no_grad()(function)()


def test_the_call_site_is_the_users_line_behind_decorators_and_contexts():
    @contextlib.contextmanager
    def context():
        yield call_site()

    file, line = call_site()
    assert file == __file__
    assert through_torch(call_site)[0] == __file__
    assert functools.partial(call_site)()[1] == line + 3
    with context() as inside:
        assert inside[1] < line, "the generator itself is the user's"


def test_who_is_not_here_and_where_that_rank_is():
    text = absence(0, HERE, {0: HERE, 1: AWAY}, 3.0)
    assert text.startswith("reduce number 13 at train.py:90 has failed on rank 0 after 3.0 s.\n")
    assert (
        "\n  rank 1 is not here: its last call was gather number 12 at train.py:88; "
        "it was last seen at train.py:95 in `backward`.\n"
        "  This rank, 0, is in reduce number 13 at train.py:90.\n"
    ) in text
    assert "this run cannot continue" in text


@pytest.mark.parametrize(
    ("note", "words"),
    [
        (None, "rank 1 is not here: it has made no call yet."),
        (Note(position="a.py:1 in `f`"), "it has made no call yet; it was last seen at a.py:1 in `f`."),
        (Note(ended="at its end"), "it has made no call yet; it has left the run at its end."),
        (
            Note(group="0", operation="gather", number=12, site="a.py:1", ended="with ValueError"),
            "its last call was gather number 12 at a.py:1; it has left the run with ValueError.",
        ),
        (
            Note(group="0", operation="gather", number=13, site="a.py:1", inside=True),
            "rank 1 is not here: it is in gather number 13 at a.py:1.",
        ),
        (
            Note(group="1", operation="reduce", number=13, site="a.py:1", inside=True),
            "rank 1 is not here: it is in reduce number 13 at a.py:1.",
        ),
    ],
)
def test_what_is_said_of_a_rank_that_is_elsewhere(note, words):
    assert words in absence(0, HERE, {0: HERE, 1: note}, 3.0)


def test_ranks_at_one_place_are_named_together():
    text = absence(0, HERE, {0: HERE, 1: AWAY, 2: HERE, 3: AWAY, 4: HERE, 5: None, 6: None}, 3.0)
    assert (
        "ranks 1, 3 are not here: their last call was gather number 12 at train.py:88; they were last seen"
        in text
    )
    assert "ranks 5-6 are not here: they have made no call yet." in text
    assert "ranks 2, 4 are here too." in text
    assert "  rank 2 is here too.\n" in absence(0, HERE, {0: HERE, 1: AWAY, 2: HERE}, 3.0)


def test_when_all_are_here_or_nothing_is_known():
    assert "All ranks are in it" in absence(0, HERE, {0: HERE, 1: HERE}, 3.0)
    assert "Where the others are is not known" in absence(0, HERE, None, 3.0)


# ---- the board ---------------------------------------------------------------------------------------------


@pytest.fixture
def boards(monkeypatch, request):
    """Give a function that makes boards of several ranks in this process, over one store."""
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(whereabouts, "SETTLE", 0.0)
    monkeypatch.setattr(whereabouts, "LINGER", 0.0)
    store = dist.HashStore()
    made = []

    def make(rank: int, timeout: float = 1000.0) -> NoticeBoard:
        made.append(NoticeBoard(store, rank, timedelta(seconds=timeout)))
        return made[-1]

    yield make
    for board in made:
        board.close()


def wait_until(condition: Any) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def test_a_board_reads_what_others_have_left(boards):
    first, second = boards(0), boards(1)
    second.enter("0", (0, 1), "gather", 1, ("train.py", 5))
    second.leave()
    second.close("with ValueError")
    first.enter("0", (0, 1), "reduce", 2, ("train.py", 7))
    text = first.explain(1000.0)
    assert (
        "rank 1 is not here: its last call was gather number 1 at train.py:5; it has left the run with"
        in text
    )
    assert "This rank, 0, is in reduce number 2 at train.py:7." in text


def test_the_thread_publishes_what_has_changed(boards):
    first, second = boards(0), boards(1, timeout=0.2)
    second.enter("0", (0, 1), "gather", 1, ("train.py", 5))
    wait_until(lambda: first._read([1], first._main_store)[1] is not None)
    note = first._read([1], first._main_store)[1]
    assert note is not None
    assert note.inside
    assert f"{os.path.basename(__file__)}:" in note.position
    second.leave()
    wait_until(lambda: not first._read([1], first._main_store)[1].inside)


def test_a_rank_reads_only_the_notes_of_its_group(boards):
    first, _ = boards(0), boards(1)
    first.enter("pair", (0, 2), "gather", 1, ("train.py", 5))
    text = first.explain(1000.0)
    assert "rank 1" not in text
    assert "rank 2 is not here" in text


def test_a_run_that_is_short_opens_no_connection(boards, monkeypatch):
    def connect(store: Any) -> Any:
        pytest.fail("a name server may take seconds to let it come about")

    first, second = boards(0), boards(1)
    second.enter("0", (0, 1), "gather", 1, ("train.py", 5))
    with monkeypatch.context() as patch:
        patch.setattr(whereabouts, "own_connection", connect)
        second.close("with ValueError")
    assert not second._thread.is_alive()
    notes = first._read([1], first._main_store)
    assert notes[1] is not None
    assert notes[1].ended == "with ValueError"


def test_who_explains_opens_no_connection(boards, monkeypatch):
    def connect(store: Any) -> Any:
        pytest.fail("whoever kept the store may have left: that waits as long as the time-out")

    first, _ = boards(0), boards(1)
    first.enter("0", (0, 1), "gather", 1, ("train.py", 5))
    with monkeypatch.context() as patch:
        patch.setattr(whereabouts, "own_connection", connect)
        assert "rank 1 is not here" in first.explain(1000.0)


def test_a_store_that_cannot_be_cloned_is_used_itself():
    class Plain(dist.Store):
        pass

    store = Plain()
    assert whereabouts.own_connection(store) is store
    assert whereabouts.own_connection(dist.HashStore()) is not None


class Gone:
    """A store whose process has ended."""

    def __getattr__(self, name: str) -> Any:
        def fail(*args: Any) -> Any:
            raise dist.DistNetworkError("Broken pipe")

        return fail


def test_without_its_store_a_board_says_so_and_its_thread_ends(boards, monkeypatch):
    board = boards(1, timeout=0.2)
    monkeypatch.setattr(board, "_main_store", Gone())
    monkeypatch.setattr(board, "_thread_store", Gone())
    board.enter("0", (0, 1), "gather", 1, ("train.py", 5))
    assert "Where the others are is not known" in board.explain(1.0)
    board.close("at its end")
    thread = next((each for each in threading.enumerate() if each.name == "accelerate-whereabouts"), None)
    if thread is not None:
        thread.join(5)
        assert not thread.is_alive()


def test_the_lowest_waiting_rank_speaks_once(boards, caplog):
    caplog.set_level(logging.WARNING)
    first, second, third = boards(0, timeout=0.2), boards(1, timeout=0.2), boards(2)
    third.enter("0", (0, 1, 2), "gather", 1, ("train.py", 5))
    third.leave()
    third._publish(third._note(), third._main_store)
    for board in (first, second):
        board.enter("0", (0, 1, 2), "reduce", 2, ("train.py", 7))
        board._publish(board._note(), board._main_store)
    wait_until(lambda: first._warned is not None and second._warned is not None and caplog.messages)
    time.sleep(0.1)
    (message,) = caplog.messages
    assert message.startswith(
        "reduce number 2 at train.py:7 has waited 0 s. rank 2 is not here: its last call"
    )
    assert "rank 1" not in message


def test_nobody_speaks_when_all_are_here(boards, caplog):
    first, second = boards(0, timeout=0.2), boards(1, timeout=0.2)
    for board in (first, second):
        board.enter("0", (0, 1), "reduce", 2, ("train.py", 7))
        board._publish(board._note(), board._main_store)
    wait_until(lambda: first._warned is not None)
    time.sleep(0.1)
    assert caplog.messages == []
