"""A time-out that the user has chosen holds in every group of the run, where one of real ranks stays away."""

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from accelerate import Accelerator, InitProcessGroupKwargs, PartialState
from accelerate.runtime import process_group

SHORT = 3  # seconds


def handler(seconds=SHORT, **options):
    return InitProcessGroupKwargs(timeout=timedelta(seconds=seconds), **options)


def seconds_of(group=None):
    """Return the time-out of a gloo group."""
    group = dist.group.WORLD if group is None else group
    return group._get_backend(torch.device("cpu")).options._timeout.total_seconds()


def ranks_wait(make_group, wait):
    """Let rank 1 stay away from `wait`; return how long rank 0 waited, and for what."""
    accelerator = Accelerator(cpu=True, kwargs_handlers=[handler()])
    group = make_group()
    start = time.monotonic()
    if accelerator.is_main_process:
        try:
            wait(group)
        except RuntimeError as error:
            return time.monotonic() - start, str(error)
        return time.monotonic() - start, "no error"
    time.sleep(SHORT + 1)
    return None


def whole_world():
    return None


def of_the_user():
    return dist.new_group()


def of_a_mesh():
    return init_device_mesh("cpu", (1, 2), mesh_dim_names=("replicate", "shard"))["shard"].get_group()


def reduce(group):
    dist.all_reduce(torch.ones(1), group=group)


def monitored(group):
    dist.monitored_barrier(group)


def everyone(group):
    PartialState().wait_for_everyone()


@pytest.mark.parametrize(
    ("make_group", "wait"),
    [
        (whole_world, everyone),
        (of_the_user, reduce),
        (of_the_user, monitored),
        (of_a_mesh, reduce),
    ],
)
def test_a_rank_that_stays_away_is_waited_for_no_longer(rank_pool, make_group, wait):
    (waited, error), _ = rank_pool.run(ranks_wait, make_group, wait, timeout=40)
    assert SHORT - 0.5 < waited < SHORT + 3
    assert "no error" not in error


def timeouts_of_groups():
    accelerator = Accelerator(cpu=True, kwargs_handlers=[handler(77)])
    groups = [None, dist.new_group(), dist.new_group([0, 1]), dist.new_subgroups(1)[0], of_a_mesh()]
    own = dist.new_group(timeout=timedelta(seconds=5))
    accelerator.wait_for_everyone()
    return [seconds_of(group) for group in groups], seconds_of(own)


def test_every_group_has_the_time_out_but_one_with_its_own(rank_pool):
    assert rank_pool.run(timeouts_of_groups) == [([77.0] * 5, 5.0)] * 2


def started_before():
    PartialState(cpu=True)  # as a logger or another library may do
    first = seconds_of()
    Accelerator(cpu=True, kwargs_handlers=[handler(88)])
    return first, seconds_of(), seconds_of(dist.new_group())


def test_a_run_that_was_started_before_takes_the_time_out_over(rank_pool):
    assert rank_pool.run(started_before) == [(1800.0, 88.0, 88.0)] * 2


def made_by_somebody_else():
    dist.init_process_group("gloo", timeout=timedelta(seconds=66))
    Accelerator(cpu=True)
    untouched = seconds_of()
    PartialState(timeout=timedelta(seconds=99))
    return untouched, seconds_of()


def test_a_group_of_somebody_else_keeps_its_time_out_until_one_is_asked_for(rank_pool):
    assert rank_pool.run(made_by_somebody_else) == [(66.0, 99.0)] * 2


def the_default_of_another_backend():
    Accelerator(cpu=True, kwargs_handlers=[handler(600)])
    return seconds_of(), seconds_of(dist.new_group())


def test_ten_minutes_can_be_asked_for_on_gloo(rank_pool):
    assert rank_pool.run(the_default_of_another_backend) == [(600.0, 600.0)] * 2


def after_the_run(url):
    accelerator = Accelerator(cpu=True, kwargs_handlers=[handler(55)])
    during = seconds_of(dist.new_group())
    accelerator.end_training()
    dist.init_process_group("gloo", init_method=url, rank=accelerator.process_index, world_size=2)
    return during, seconds_of(), seconds_of(dist.new_group())


def test_the_end_of_the_run_gives_torch_its_own_back(rank_pool, tmp_path):
    url = (tmp_path / "meeting").as_uri()
    assert rank_pool.run(after_the_run, url) == [(55.0, 1800.0, 1800.0)] * 2


def meeting_at(url):
    accelerator = Accelerator(cpu=True, kwargs_handlers=[handler(30, backend="gloo", init_method=url)])
    return accelerator.gather(torch.tensor([accelerator.process_index])).tolist(), accelerator.state.backend


def test_ranks_meet_where_init_method_says(rank_pool, tmp_path):
    url = (tmp_path / "meeting").as_uri()
    assert rank_pool.run(meeting_at, url, num_ranks=3) == [([0, 1, 2], "gloo")] * 3


def test_one_process_has_no_group_to_wait_in():
    accelerator = Accelerator(cpu=True, kwargs_handlers=[handler(1, backend="gloo")])
    assert accelerator.num_processes == 1
    process_group.set_timeout(timedelta(seconds=1))
    assert dist.distributed_c10d.default_pg_timeout == timedelta(minutes=30)
