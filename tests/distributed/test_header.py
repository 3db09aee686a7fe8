"""Ranks that do not agree, or stay away: every rank raises, soon, and says what each was doing and where."""

import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from accelerate import Accelerator
from accelerate.errors import AbsentRankError, DistributedOperationException
from accelerate.runtime import header
from accelerate.runtime.collectives import (
    broadcast,
    broadcast_object_list,
    chained_operation,
    current_ranks,
    gather,
    gather_object,
    pad_across_processes,
    reduce,
    verify_operation,
    wait_for_everyone,
)
from accelerate.runtime.current import current
from accelerate.runtime.header import GlooChannel
from accelerate.runtime.rank_group import RankGroup
from tests.support.rank_pool import RankPool

NUM_RANKS = pytest.mark.parametrize("num_ranks", [2, 3])
SHORT = timedelta(seconds=3)
Outcome = tuple[str, str, float]  # name of the exception, message, seconds


def join(timeout: timedelta = timedelta(seconds=20)) -> tuple[int, int]:
    """Start the current run; return rank and number of ranks."""
    current.start(cpu=True, timeout=timeout)
    return current.world.rank, current.world.size


def outcome(function: Callable[[], Any]) -> Outcome:
    """Call the function, and return what it raised and when."""
    start = time.monotonic()
    try:
        function()
    except Exception as error:
        return type(error).__name__, str(error), time.monotonic() - start
    return "", "", time.monotonic() - start


@contextmanager
def recorded(name: str) -> Iterator[list[str]]:
    """List what a logger says."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger(name).addHandler(handler)
    try:
        yield messages
    finally:
        logging.getLogger(name).removeHandler(handler)


# ---- planted mismatches ------------------------------------------------------------------------------------


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


def extra_call(rank: int) -> None:
    if rank == 1:
        gather(ones(4))  # the extra one: meets the gather of the others
    gather(ones(4))
    reduce(ones(4))


# name -> what a rank does, and what it must say of rank 0 and of rank 1 (the others do as rank 0)
PLANTED: dict[str, tuple[Callable[[int], Any], str, str]] = {
    "shape": (
        lambda rank: gather(ones(2 + (rank == 1), 3)),
        r"gather number \d+ at .*\n +of float32 \(2, 3\)",
        r"gather number \d+ at .*\n +of float32 \(3, 3\)",
    ),
    "shape inside": (
        lambda rank: broadcast({"same": ones(1), "other": [ones(2, 1 + (rank == 1))]}),
        r"\n +\['other'\]\[0\] float32 \(2, 1\)",
        r"\n +\['other'\]\[0\] float32 \(2, 2\)",
    ),
    "dtype": (
        lambda rank: reduce(ones(2, dtype=torch.float64 if rank == 1 else torch.float32)),
        r"\n +of float32 \(2,\)",
        r"\n +of float64 \(2,\)",
    ),
    "keys": (
        lambda rank: gather({"a" if rank == 1 else "b": ones(1)}),
        r"\n +\['b'\] float32 \(1,\)\n +\['a'\] is missing",
        r"\n +\['a'\] float32 \(1,\)\n +\['b'\] is missing",
    ),
    "order of keys": (
        lambda rank: gather(dict.fromkeys("ab" if rank == 1 else "ba", ones(1))),
        r"\n +\['b'\] float32 \(1,\)\n +\['a'\] float32",
        r"\n +\['a'\] float32 \(1,\)\n +\['b'\] float32",
    ),
    "length of a list": (
        lambda rank: broadcast([ones(1)] * (1 + (rank == 1))),
        r"\n +\[1\] is missing",
        r"\n +\[1\] float32 \(1,\)",
    ),
    "one tensor or a list": (
        lambda rank: reduce([ones(1)] if rank == 1 else ones(1)),
        r"\n +of float32 \(1,\)\n +\[0\] is missing",
        r"\n +\[0\] float32 \(1,\)",
    ),
    "no tensor": (
        lambda rank: gather({"a": ones(1), "b": None if rank == 1 else ones(1)}),
        r"\n +\['b'\] float32 \(1,\)",
        r"\n +cannot take part: `gather` was given NoneType at \['b'\]",
    ),
    "nothing": (
        lambda rank: gather([] if rank == 1 else [ones(1)]),
        r"\n +\[0\] float32 \(1,\)",
        r"\n +\[0\] is missing",
    ),
    "sparse": (
        lambda rank: reduce(ones(2, 2).to_sparse() if rank == 1 else ones(2, 2)),
        r"\n +of float32 \(2, 2\)",
        r"\n +cannot take part: .*to_dense",
    ),
    "operation": (
        lambda rank: gather(ones(2)) if rank == 1 else reduce(ones(2)),
        r"reduce\(reduction='mean'\) number \d+ at .*\n +of float32 \(2,\)",
        r"gather number \d+ at .*\n +of float32 \(2,\)",
    ),
    "reduction": (
        lambda rank: reduce(ones(2), "max" if rank == 1 else "sum"),
        r"reduce\(reduction='sum'\) number",
        r"reduce\(reduction='max'\) number",
    ),
    "unknown reduction": (
        lambda rank: reduce(ones(2), "maximum" if rank == 1 else "max"),
        r"reduce\(reduction='max'\) number",
        r"\n +cannot take part: .*reduction='maximum'.*: the reduction is one of",
    ),
    "source": (
        lambda rank: broadcast(ones(2), from_process=int(rank == 1)),
        r"broadcast\(from_process=0\) number",
        r"broadcast\(from_process=1\) number",
    ),
    "source that does not exist": (
        lambda rank: broadcast_object_list([1], from_process=7 if rank == 1 else 0),
        r"broadcast_object_list\(from_process=0\) number",
        r"\n +cannot take part: .*from_process=7",
    ),
    "dim": (
        lambda rank: pad_across_processes(ones(1 + rank, 1 + rank), dim=int(rank == 1)),
        r"pad_across_processes\(dim=0\) number",
        r"pad_across_processes\(dim=1\) number",
    ),
    "structure to pad": (
        lambda rank: pad_across_processes([ones(1)] * (1 + (rank == 1))),
        r"\n +\[1\] is missing",
        r"\n +\[1\] float32 \(1,\)",
    ),
    "value that does not fit": (
        lambda rank: pad_across_processes(ones(1, dtype=torch.int64), pad_index=0.5 if rank == 1 else 0),
        r"\n +of int64 \(1,\)",
        r"\n +cannot take part: .*pad_index=0.5",
    ),
    "extra call": (
        extra_call,
        r"reduce\(reduction='mean'\) number (\d+) at .*\n +of float32 \(4,\)",
        r"gather number (\d+) at .*\n +of float32 \(4,\)",
    ),
    "objects": (
        lambda rank: gather_object([rank]) if rank == 1 else broadcast_object_list([rank]),
        r"broadcast_object_list\(from_process=0\) number",
        r"gather_object number",
    ),
    "object that cannot be pickled": (
        lambda rank: gather_object(lambda: 0) if rank == 1 else gather_object(0),
        r"gather_object number",
        r"\n +cannot take part: `gather_object` was given what cannot be pickled",
    ),
    "object that is no list": (
        lambda rank: broadcast_object_list((1,) if rank == 1 else [1]),
        r"broadcast_object_list\(from_process=0\) number",
        r"\n +cannot take part: .*an object of type tuple",
    ),
    "barrier": (
        lambda rank: wait_for_everyone() if rank == 1 else gather(ones(1)),
        r"gather number \d+ at .*\n +of float32 \(1,\)",
        r"wait_for_everyone number",
    ),
}


def planted() -> dict[str, Outcome]:
    rank, _ = join()
    found = {}
    for name, (function, _, _) in PLANTED.items():
        wait_for_everyone()
        found[name] = outcome(lambda function=function: function(rank))
    return found


@pytest.fixture(scope="module", params=[2, 3])
def raised(request: pytest.FixtureRequest, rank_pool: RankPool) -> list[dict[str, Outcome]]:
    """Give what every rank raised for each planted mismatch."""
    return rank_pool.run(planted, num_ranks=request.param)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mismatch_is_seen_by_all_ranks_within_a_second(
    raised: list[dict[str, Outcome]], name: str
) -> None:
    _, of_rank_0, of_rank_1 = PLANTED[name]
    for kind, message, seconds in (found[name] for found in raised):
        assert kind == "DistributedOperationException"
        assert seconds < 1
        assert re.search(rf"  rank(s 0, 2| 0): (.*\n? *)?{of_rank_0}", message), message
        assert re.search(rf"  rank 1: (.*\n? *)?{of_rank_1}", message), message
        assert message.count("tests/distributed/test_header.py:") >= 2, message
        assert "This run cannot continue" in message
    assert len({found[name][1] for found in raised}) == 1, "not the same message on all ranks"


def test_an_extra_call_is_found_where_it_was_made(raised: list[dict[str, Outcome]]) -> None:
    first = extra_call.__code__.co_firstlineno
    _, message, _ = raised[0]["extra call"]
    assert re.search(
        rf"for the first time in call \d+: rank.* 0.* in gather at \S+:{first + 3}, "
        rf"rank 1 in gather at \S+:{first + 2}\.",
        message,
    ), message


def agreed_refusals() -> list[str]:
    join()
    kinds = []
    for function in (
        lambda: gather([ones(1), None]),
        lambda: reduce(ones(1), "middle"),
        lambda: broadcast(ones(1), from_process=9),
        lambda: broadcast_object_list(None),
        lambda: gather_object(lambda: 0),
        lambda: reduce(ones(1, dtype=torch.int64)),
    ):
        kinds.append(outcome(function)[0])
    assert gather(ones(1)).tolist() == [1.0] * current.num_processes, "the group cannot be used any more"
    return kinds


@NUM_RANKS
def test_what_all_ranks_refuse_alike_is_the_ordinary_error(rank_pool: RankPool, num_ranks: int) -> None:
    for kinds in rank_pool.run(agreed_refusals, num_ranks=num_ranks):
        assert kinds == ["TypeError", "ValueError", "ValueError", "TypeError", "TypeError", "RuntimeError"]


def what_may_differ() -> None:
    rank, size = join()
    # Containers of another class hold the same tensors; other ranks' requires_grad and layout do not matter.
    assert gather((ones(1),) if rank else [ones(1)])[0].shape == (size,)
    assert gather({1.0: ones(1)} if rank else {1.0: ones(1).requires_grad_()})[1.0].shape == (size,)
    assert gather(ones(3, 2).t() if rank else ones(2, 3)).shape == (2 * size, 3)
    assert gather({frozenset([rank]): ones(1)}), "an order of a set is no difference"
    # To be padded, tensors need not be alike in anything but their number.
    assert pad_across_processes(ones(rank + 1, rank + 2)).shape == (size, rank + 2)
    assert pad_across_processes(ones(1, dtype=torch.int8 if rank else torch.int64)).shape == (1,)
    assert pad_across_processes(ones(1) if rank else torch.tensor(1.0)).numel() == 1
    assert gather_object([rank] * rank) == [each for each in range(size) for _ in range(each)]


@NUM_RANKS
def test_what_may_differ_between_ranks(rank_pool: RankPool, num_ranks: int) -> None:
    rank_pool.run(what_may_differ, num_ranks=num_ranks)


def trigger_and_gather() -> Outcome:
    accelerator = Accelerator(cpu=True)
    accelerator.set_trigger()
    assert accelerator.check_trigger()
    if accelerator.is_main_process:
        return outcome(lambda: accelerator.gather(ones(1)))
    return outcome(accelerator.check_trigger)


def test_a_trigger_checked_by_one_rank_only(rank_pool: RankPool) -> None:
    for kind, message, _ in rank_pool.run(trigger_and_gather):
        assert kind == "DistributedOperationException"
        assert "rank 0: gather number 2" in message
        assert "rank 1: reduce(reduction='sum') number 2" in message


def many_leaves() -> Outcome:
    rank, _ = join()
    return outcome(lambda: gather([ones(1 + rank * (index > 40)) for index in range(2000)]))


def test_a_message_shows_a_few_of_many_differences(rank_pool: RankPool) -> None:
    for _, message, _ in rank_pool.run(many_leaves):
        assert "[41] float32 (1,)" in message
        assert "[48] float32 (2,)" in message
        assert "[40]" not in message
        assert "[49]" not in message
        assert len(message) < 2000


def a_part_disagrees() -> Outcome:
    rank, _ = join()
    members = [0, 2]
    group = dist.new_group(members, timeout=SHORT)
    if rank not in members:
        return "", "", 0.0
    assert isinstance(group, dist.ProcessGroup)
    ranks = RankGroup(size=2, rank=members.index(rank), device=torch.device("cpu"), group=group)
    ranks.gather(ones(1))
    return outcome(lambda: ranks.gather(ones(1 + rank)))


def test_a_group_of_some_ranks_has_headers_of_its_own(rank_pool: RankPool) -> None:
    first, outside, last = rank_pool.run(a_part_disagrees, num_ranks=3)
    assert outside[0] == ""
    assert first[0] == last[0] == "DistributedOperationException"
    assert "rank 1: gather number 2" in first[1]


# ---- which calls have a header -----------------------------------------------------------------------------


def on_an_accelerator() -> AbstractContextManager[Any]:
    """Make channels as those of accelerators are, where not every call has a header."""
    return mock.patch.object(header, "_is_cheap", return_value=False)


def headers_of(num_calls: int, *, debug: bool) -> list[int]:
    """Return the numbers of the calls that had a header."""
    if debug and os.environ["RANK"] == "1":
        os.environ["ACCELERATE_DEBUG_MODE"] = "true"
    with on_an_accelerator():
        _, size = join()
    told = []
    compare = GlooChannel._compare

    def count(channel: GlooChannel, *args: Any) -> None:
        told.append(channel.number)
        compare(channel, *args)

    with mock.patch.object(GlooChannel, "_compare", count):
        for _ in range(num_calls):
            assert pad_across_processes(ones(current.process_index + 1)).shape == (size,)
            wait_for_everyone()
    return told


def test_on_accelerators_some_calls_have_a_header(rank_pool: RankPool) -> None:
    for told in rank_pool.run(headers_of, 160, debug=False):
        assert told == [*range(1, 101), 200, 300]


def test_one_rank_in_debug_mode_gives_every_call_a_header(rank_pool: RankPool) -> None:
    for told in rank_pool.run(headers_of, 60, debug=True):
        assert told == list(range(1, 121))


def without_gloo() -> list[str]:
    def refuse(*args: Any) -> None:
        raise RuntimeError("no such interface")

    broken = mock.patch.object(dist, "ProcessGroupGloo", refuse)
    soon = mock.patch.object(header, "MEETING", timedelta(seconds=1))
    with (
        recorded("accelerate.runtime.header") as messages,
        broken if os.environ["RANK"] == "1" else nullcontext(),
        on_an_accelerator(),
        soon,
    ):
        rank, size = join()
    assert gather(ones(rank + 1)[:1]).shape == (size,)
    assert pad_across_processes(ones(rank + 1)).shape == (size,)
    wait_for_everyone()
    assert outcome(lambda: gather(None))[0] == "TypeError"
    return messages


def test_accelerators_that_gloo_cannot_connect_go_without_headers(rank_pool: RankPool) -> None:
    first, *others = rank_pool.run(without_gloo, num_ranks=3)
    (message,) = first
    assert "GLOO_SOCKET_IFNAME" in message
    assert others == [[], []]


def on_a_foreign_group() -> Outcome:
    dist.init_process_group("gloo", timeout=SHORT)
    rank, _ = join()
    if rank == 1:
        time.sleep(1)
        return "", "", 0.0
    return outcome(lambda: gather(ones(1)))


def test_a_group_that_somebody_else_made_is_connected_at_the_first_call(rank_pool: RankPool) -> None:
    waiting, other = rank_pool.run(on_a_foreign_group)
    assert waiting[0] == "AbsentRankError", "joining alone did not wait, but the first call did"
    assert "rank 1 is not here: it has made no call yet" in waiting[1]
    assert other[0] == ""


def many_sizes() -> None:
    rank, size = join()
    for count in (header.ROOM, header.ROOM + 1, 1000):
        padded = pad_across_processes([ones(1 + (rank + index) % size) for index in range(count)])
        assert [tensor.shape for tensor in padded] == [(size,)] * count


def test_more_sizes_than_a_header_holds(rank_pool: RankPool) -> None:
    rank_pool.run(many_sizes, num_ranks=3)


# ---- ranks that stay away ----------------------------------------------------------------------------------


def stays_away() -> Outcome:
    rank, _ = join(SHORT)
    gather(ones(1))
    if rank == 1:
        time.sleep(5)
        return "", "", 0.0
    return outcome(lambda: reduce(ones(1)))


@NUM_RANKS
def test_a_rank_that_stays_away_is_named_with_its_last_call(rank_pool: RankPool, num_ranks: int) -> None:
    line = stays_away.__code__.co_firstlineno
    for rank, (kind, message, seconds) in enumerate(rank_pool.run(stays_away, num_ranks=num_ranks)):
        if rank == 1:
            continue
        assert kind == "AbsentRankError"
        assert 2 < seconds < 6
        assert re.search(
            rf"rank 1 is not here: its last call was gather number 1 at \S+:{line + 2}; ", message
        )
        assert re.search(rf"it was last seen at \S+:{line + 4} in `stays_away`", message)
        assert re.search(rf"This rank, {rank}, is in reduce number 2 at \S+:{line + 6}\.", message)
        assert "this run cannot continue" in message
        assert num_ranks == 2 or f"rank {2 - rank} is here too" in message


def another_call() -> Outcome:
    rank, _ = join(SHORT)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    loss = model(ones(1, 1)).sum()
    if rank == 1:
        time.sleep(0.5)  # its own time-out comes after that of the other
        return outcome(loss.backward)
    return outcome(wait_for_everyone)


def test_a_rank_in_backward_is_named_by_one_at_a_barrier(rank_pool: RankPool) -> None:
    waiting, training = rank_pool.run(another_call)
    assert training[0] == "RuntimeError", "this is torch's own"
    kind, message, _ = waiting
    assert kind == "AbsentRankError"
    assert "rank 1 is not here: it has made no call yet; it was last seen at" in message
    assert re.search(r"it was last seen at \S+test_header.py:\d+ in `_engine_run_backward`", message)
    assert "This rank, 0, is in wait_for_everyone number 1 at " in message


def two_groups() -> Outcome:
    rank, _ = join(SHORT)
    pair = dist.new_group([0, 1], timeout=SHORT)
    if rank == 2:
        return outcome(lambda: gather(ones(1)))
    assert isinstance(pair, dist.ProcessGroup)
    ranks = RankGroup(size=2, rank=rank, device=torch.device("cpu"), group=pair)
    ranks.reduce(ones(1))
    if rank == 1:
        return outcome(lambda: gather(ones(1)))
    return outcome(lambda: ranks.reduce(ones(1), "max"))


def test_ranks_in_calls_of_different_groups(rank_pool: RankPool) -> None:
    first, second, third = rank_pool.run(two_groups, num_ranks=3)
    assert first[0] == second[0] == third[0] == "AbsentRankError"
    assert "rank 1 is not here: it is in gather number 1" in first[1]
    assert "rank 0 is not here: it is in reduce number 2" in second[1]
    assert "rank 2 is here too" in second[1]


def ends_early() -> Outcome:
    rank, _ = join(SHORT)
    accelerator = Accelerator(cpu=True)
    accelerator.gather(ones(1))
    if rank == 1:
        accelerator.end_training()
        return "", "", 0.0
    return outcome(lambda: accelerator.gather(ones(1)))


def test_a_rank_that_has_ended_is_named_at_once(rank_pool: RankPool) -> None:
    (kind, message, seconds), _ = rank_pool.run(ends_early)
    assert kind == "AbsentRankError"
    assert seconds < 2.5
    assert re.search(
        r"rank 1 is not here: its last call was \w+ number \d+ at \S+; it has left the run", message
    )


def comes_late() -> list[str]:
    rank, _ = join(timedelta(seconds=5))
    with recorded("accelerate.runtime.whereabouts") as messages:
        gather(ones(1))
        if rank == 1:
            time.sleep(4)
        gather(ones(1))
    return messages


def test_a_long_wait_is_told_once_by_one_rank(rank_pool: RankPool) -> None:
    first, late, third = rank_pool.run(comes_late, num_ranks=3)
    assert late == third == []
    (message,) = first
    assert re.match(
        r"gather number 2 at \S+test_header.py:\d+ has waited [23] s\. rank 1 is not here: ", message
    )


# ---- the interface's decorators ----------------------------------------------------------------------------


@verify_operation
def sent_otherwise(tensor: Any) -> str:
    return "sent"


@chained_operation
def padded_and_gathered(tensor: Any) -> Any:
    return gather(tensor)


def decorated() -> list[Outcome]:
    rank, _ = join()
    quiet = outcome(lambda: sent_otherwise(ones(1 + rank)))
    current.debug = True
    return [
        quiet,
        outcome(lambda: sent_otherwise([ones(1)])),
        outcome(lambda: sent_otherwise(tensor=ones(1 + rank))),
        outcome(lambda: padded_and_gathered(ones(1 + rank))),
    ]


def test_decorated_functions(rank_pool: RankPool) -> None:
    for quiet, alike, verified, chained in rank_pool.run(decorated):
        assert quiet[0] == alike[0] == ""
        assert verified[0] == chained[0] == "DistributedOperationException"
        assert "rank 1: tests.distributed.test_header.sent_otherwise number 2 at " in verified[1]
        assert "of float32 (2,)" in verified[1]
        assert chained[1].startswith("`tests.distributed.test_header.padded_and_gathered` called")
        assert "rank 0: gather number 3" in chained[1]


def test_the_errors_are_what_users_catch() -> None:
    assert issubclass(AbsentRankError, (DistributedOperationException, RuntimeError))
    assert current_ranks().size == 1
