"""Runs of one process and the store in which groups meet; with ranks see tests/distributed/test_runs.py."""

import torch.distributed as dist

from accelerate.runtime.current import Current
from accelerate.runtime.process_group import _MeetingPoint
from accelerate.runtime.world import World


def test_a_run_that_is_started_again_has_another_token():
    run = Current()
    run.start(cpu=True)
    token = run.token
    run.reset()
    run.start(cpu=True)
    assert run.token != token


def test_each_group_has_keys_of_its_own_in_a_store_that_is_kept(monkeypatch):
    world, url = World(rank=0, size=1, launched=True), None
    meeting = _MeetingPoint()
    assert meeting.next_store(world, url) is None
    stores = [dist.HashStore()]
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: stores[-1])
    meeting.note(world, {"init_method": url}, joined=True)
    for start in range(3):
        stores.append(meeting.next_store(world, url))
        assert not stores[-1].check(["rank"])
        stores[-1].set("rank", f"start {start}")
        meeting.note(world, {"init_method": url}, joined=True)
        # Some ranks reset their state and adopt their group again.
        meeting.note(world, {"init_method": url}, joined=False)
        assert meeting.num_starts == start + 2
    assert meeting.next_store(world, "tcp://elsewhere") is None
    assert meeting.next_store(World(rank=0, size=2, launched=True), url) is None
