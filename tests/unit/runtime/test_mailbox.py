import logging
import threading

import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from accelerate.runtime import mailbox as room
from accelerate.runtime.mailbox import Mailbox, Order

SITE = ("train.py", 7)
FIRST, SECOND = (*SITE, 1), (*SITE, 2)


def record(rank):
    return {"name": "tests.mailbox", "msg": f"from {rank}", "levelno": logging.WARNING}


@pytest.fixture
def lines(caplog):
    return lambda: [entry.msg for entry in caplog.records if entry.name == "tests.mailbox"]


def test_a_record_waits_for_the_lower_ranks():
    order = Order(4, hold=5.0)
    order.put(FIRST, 2, record(2), now=0.0)
    order.put(FIRST, 1, record(1), now=0.0)
    assert order.ready(0.0) == []
    order.put(FIRST, 0, None, now=1.0)
    assert order.ready(1.0) == [record(1), record(2)]
    order.put(FIRST, 3, record(3), now=2.0)
    assert order.ready(2.0) == [record(3)]


def test_a_rank_without_a_record_holds_nobody_back():
    order = Order(3)
    for rank in (2, 1, 0):
        order.put(FIRST, rank, record(rank) if rank == 2 else None, now=0.0)
    assert order.ready(0.0) == [record(2)]


def test_occasions_do_not_wait_for_each_other():
    order = Order(2)
    order.put(FIRST, 1, record("first"), now=0.0)
    order.put(SECOND, 1, record("second"), now=0.0)
    order.put(SECOND, 0, None, now=0.0)
    assert order.ready(0.0) == [record("second")]


def test_a_rank_that_never_comes_costs_a_delay_and_no_memory():
    order = Order(3, hold=5.0)
    order.put(FIRST, 2, record(2), now=0.0)
    order.put(FIRST, 1, record(1), now=4.0)
    assert order.ready(4.9) == []
    assert order.ready(5.0) == [record(1), record(2)]
    assert order._occasions == {}
    for number in range(100):
        order.put((*SITE, number), 0, None, now=6.0)
    order.ready(11.0)
    assert order._occasions == {}


@given(st.permutations(range(5)), st.data())
def test_every_record_comes_once_and_in_the_order_of_ranks(arrival, data):
    order, seen = Order(5, hold=1.0), []
    for rank in arrival:
        order.put(FIRST, rank, None if rank == 0 else record(rank), now=0.0)
        if data.draw(st.booleans()):
            seen += order.ready(0.0)
    assert seen + order.ready(0.0) == [record(rank) for rank in range(1, 5)]
    assert order._occasions == {}


def test_rank_0_logs_what_others_post(lines):
    store = dist.HashStore()
    other, main = Mailbox(store, 1, 2), Mailbox(store, 0, 2, hold=0.2)
    other.come(SITE, record(1))
    assert lines() == []
    main.close()
    assert lines() == ["from 1"]
    main.close()
    assert lines() == ["from 1"]


def test_rank_0_lets_others_come_to_its_last_line(lines):
    store = dist.HashStore()
    main, other = Mailbox(store, 0, 3), [Mailbox(store, rank, 3) for rank in (1, 2)]
    main.come(SITE, None)
    closing = threading.Thread(target=main.close)
    closing.start()
    other[1].come(SITE, record(2))
    closing.join(0.2)
    assert closing.is_alive()
    other[0].come(SITE, record(1))
    closing.join(5.0)
    assert not closing.is_alive()
    assert lines() == ["from 1", "from 2"]


def test_rank_0_waits_for_nobody_who_has_left(lines):
    store = dist.HashStore()
    main, other = Mailbox(store, 0, 2, hold=1000.0), Mailbox(store, 1, 2)
    main.come(SITE, None)
    other.close()
    other.close()
    main.close()
    assert lines() == []


def test_rank_0_waits_no_longer_than_others_have_their_chance(lines):
    store = dist.HashStore()
    main, other = Mailbox(store, 0, 3, hold=0.2), Mailbox(store, 2, 3)
    other.come(SITE, record(2))
    main.close()
    assert lines() == ["from 2"]


def test_after_an_error_rank_0_is_not_patient(lines):
    store = dist.HashStore()
    main, other = Mailbox(store, 0, 3, hold=1000.0), Mailbox(store, 2, 3)
    other.come(SITE, record(2))
    main.close(patient=False)
    assert lines() == ["from 2"]


def test_after_the_end_each_rank_logs_for_itself(lines):
    store = dist.HashStore()
    other, main = Mailbox(store, 1, 2), Mailbox(store, 0, 2)
    main.close()
    other.come(SITE, record(1))
    assert lines() == ["from 1"]
    other.come(SITE, None)
    assert lines() == ["from 1"]


class ClosedMeanwhile(Mailbox):
    """Rank 0 leaves the run while this rank posts: the look before says no, the look after says yes."""

    def __init__(self, store, main, collected):
        super().__init__(store, 1, 2)
        self.main, self.collected, self.num_looks = main, collected, 0

    def _is_closed(self):
        self.num_looks += 1
        if self.num_looks == 2 and self.collected:
            self.main._collect()
        return self.num_looks == 2


@pytest.mark.parametrize("collected", [True, False])
def test_a_letter_on_the_way_at_the_end_is_logged_once(lines, collected):
    store = dist.HashStore()
    main = Mailbox(store, 0, 2, hold=0.2)
    main._thread.join()  # without a group it ends at once: nobody else collects
    ClosedMeanwhile(store, main, collected).come(SITE, record(1))
    main.close()
    assert lines() == ["from 1"]


class Gone:
    """A store whose process has ended."""

    def __getattr__(self, name):
        raise RuntimeError("Connection reset by peer")

    def check(self, keys):
        raise RuntimeError("Connection reset by peer")


def test_without_the_store_each_rank_logs_for_itself(lines):
    other = Mailbox(dist.HashStore(), 1, 2)
    other._store = Gone()
    other.come(SITE, record(1))
    assert lines() == ["from 1"]


def test_the_end_without_the_store_lets_out_what_has_come(lines):
    store = dist.HashStore()
    main, other = Mailbox(store, 0, 3), Mailbox(store, 2, 3)
    main._thread.join()  # without a group it ends at once
    other.come(SITE, record(2))
    main._collect()
    main._store = Gone()
    main.close()
    assert lines() == ["from 2"]


def test_a_handler_may_log_in_order_itself(lines):
    store = dist.HashStore()
    main, other = Mailbox(store, 0, 2, hold=0.2), Mailbox(store, 1, 2)
    came = []

    class Nested(logging.Handler):
        def emit(self, entry):
            main.come(("nested.py", 1), None)
            came.append(entry.msg)

    handler = Nested()
    logging.getLogger("tests.mailbox").addHandler(handler)
    try:
        other.come(SITE, record(1))
        main.close()
    finally:
        logging.getLogger("tests.mailbox").removeHandler(handler)
    assert came == ["from 1"]


def test_only_rank_0_has_a_thread():
    before = threading.active_count()
    Mailbox(dist.HashStore(), 1, 2)
    assert threading.active_count() == before


def test_there_is_none_before_a_run_of_several_ranks():
    assert room.mailbox() is None
    room.close()


def test_the_thread_ends_with_the_group():
    main = Mailbox(dist.HashStore(), 0, 2)  # there is no group
    main._thread.join(5.0)
    assert not main._thread.is_alive()
