"""The end of a run in one process; with several see tests/distributed/test_runs.py."""

import pytest
import torch.distributed as dist

from accelerate.runtime import process_group
from accelerate.runtime.current import Current
from accelerate.runtime.world import World


def started(**changes):
    run = Current()
    run.start(cpu=True)
    vars(run).update(changes)
    return run


@pytest.fixture
def group(tmp_path):
    """Make a group of one, and end it whatever the test does."""
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield
    process_group.stop()


def test_a_run_is_over_when_it_was_ended_and_stays_readable():
    run = started()
    assert not run.over
    run.end()
    assert run.over
    assert run.ended
    assert (run.num_processes, run.is_main_process, run.device.type) == (1, True, "cpu")


def test_no_run_is_neither_over_nor_can_it_be_ended():
    run = Current()
    run.end()
    assert not run.started
    assert not run.over


def test_a_run_that_is_started_again_has_another_token():
    run = started()
    token = run.token
    run.end()
    run.reset()
    run.start(cpu=True)
    assert not run.over
    assert run.token != token


def test_the_end_leaves_the_group(group):
    run = started()
    assert run.backend == "gloo"
    assert not run.over
    run.end()
    assert not dist.is_initialized()


def test_a_group_that_a_notebook_owns_stays(group):
    run = started(fork_launched=True)
    run.end()
    assert dist.is_initialized()
    assert run.over


def test_a_run_whose_group_is_gone_is_over(group):
    run = started()
    dist.destroy_process_group()
    assert run.over
    assert not run.ended


def test_each_group_has_keys_of_its_own_in_a_store_that_is_kept(monkeypatch):
    monkeypatch.setattr(process_group, "_meeting", process_group._Meeting())
    store, other = dist.HashStore(), dist.HashStore()
    world = World(rank=0, size=1, launched=True)

    def meet(where, world=world):
        return process_group._meet(world, process_group.DEFAULT_TIMEOUT["nccl"], where, None)

    for key in ("default_pg/rank", "default_pg/2/rank", "default_pg/3/rank"):
        meet(store).set("rank", key)
        assert store.get(key) == key.encode()
    meet(other).set("rank", "first")
    assert other.get("default_pg/rank") == b"first"
    meet(other, World(rank=1, size=2, launched=True)).set("rank", "another world")
    assert other.get("default_pg/rank") == b"another world"
