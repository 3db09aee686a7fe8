"""Starting, adopting, ending and starting again the process group, on real ranks."""

import logging
import os
import subprocess
import sys
import time
from datetime import timedelta
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import nn

from accelerate.accelerator import Accelerator
from accelerate.compat.system import get_free_port
from accelerate.devices.fake import FakeDevice
from accelerate.errors import ConfigurationError
from accelerate.options.handlers import InitProcessGroupKwargs
from accelerate.runtime import collectives, process_group
from accelerate.runtime.current import current
from accelerate.state import PartialState

TIMEOUT = timedelta(seconds=20)


def ranks_seen():
    return collectives.gather(torch.tensor([current.process_index])).tolist()


def adopts_on_a_fake_accelerator():
    rank = int(os.environ.pop("RANK"))
    size = int(os.environ.pop("WORLD_SIZE"))
    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        del os.environ[name]
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), size, rank == 0, TIMEOUT)
    dist.init_process_group("gloo", rank=rank, world_size=size, store=store, timeout=TIMEOUT)
    kind = FakeDevice(4, backend="nccl")
    with mock.patch("accelerate.runtime.current.select", return_value=kind):
        state = PartialState()
    return state.process_index, state.local_process_index, str(state.device), state.backend


def test_the_device_is_that_of_the_rank_in_an_adopted_group(rank_pool):
    assert rank_pool.run(adopts_on_a_fake_accelerator, num_ranks=2) == [
        (0, 0, "cuda:0", "gloo"),
        (1, 1, "cuda:1", "gloo"),
    ]


def test_a_foreign_group_of_one_on_cpu_is_no_distribution():
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        state = PartialState(cpu=True)
        assert (state.num_processes, state.distributed_type, state.backend) == (1, "NO", None)
    finally:
        dist.destroy_process_group()


def waits_for_the_others():
    """Rank 1 of 2 comes late; both say what they have read in the log."""
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    process_group.logger.addHandler(handler)
    if os.environ["RANK"] == "1":
        time.sleep(1.0)
    with mock.patch.object(process_group, "_PATIENCE", 0.3):
        Accelerator(cpu=True)
    process_group.logger.removeHandler(handler)
    return [message for message in messages if "others" in message]


def test_a_rank_says_that_it_waits_for_the_others(rank_pool):
    first, late = rank_pool.run(waits_for_the_others, num_ranks=2)
    assert len(first) == 1
    assert first[0].startswith("Rank 0 of 2 has waited 0 s for the others at 127.0.0.1:")
    assert late == []


def meets_at(port):
    group = InitProcessGroupKwargs(init_method=f"tcp://127.0.0.1:{port}", timeout=TIMEOUT)
    Accelerator(cpu=True, kwargs_handlers=[group])
    return ranks_seen()


def test_ranks_meet_at_an_address_of_the_users(rank_pool):
    assert rank_pool.run(meets_at, get_free_port(), num_ranks=2) == [[0, 1]] * 2


def asks_for_backend(name):
    with pytest.raises(ConfigurationError, match=f"backend='{name}': torch has no .* it has gloo"):
        PartialState(cpu=True, backend=name)
    return PartialState._shared_state == {}


@pytest.mark.parametrize("name", ["carrier_pigeon", "cpu:gloo,cuda:carrier_pigeon"])
def test_an_unknown_backend_is_an_error_before_anybody_waits(rank_pool, name):
    assert rank_pool.run(asks_for_backend, name, num_ranks=2) == [True, True]


def waits_long():
    group = InitProcessGroupKwargs(timeout=timedelta(weeks=52))
    Accelerator(cpu=True, kwargs_handlers=[group])
    return ranks_seen()


def test_a_time_out_of_a_year(rank_pool):
    assert rank_pool.run(waits_long, num_ranks=2) == [[0, 1]] * 2


def trains_three_times():
    results = []
    for _ in range(3):
        accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(timeout=TIMEOUT)])
        model = accelerator.prepare(nn.Linear(1, 1))
        accelerator.backward(model(torch.full((1, 1), float(accelerator.process_index))).sum())
        accelerator.end_training()
        results.append(accelerator.unwrap_model(model).weight.grad.item())
        assert accelerator.num_processes == 3
    return results


def test_a_process_may_train_again_after_the_end(rank_pool):
    assert rank_pool.run(trains_three_times, num_ranks=3) == [[1.0, 1.0, 1.0]] * 3


def loses_its_group():
    accelerator = Accelerator(cpu=True)
    dist.destroy_process_group()
    assert accelerator.num_processes == 2
    assert Accelerator(cpu=True).num_processes == 2
    return ranks_seen()


def test_a_group_that_somebody_else_ended_is_made_anew(rank_pool):
    assert rank_pool.run(loses_its_group, num_ranks=2) == [[0, 1]] * 2


def transformers_start():
    from accelerate.state import AcceleratorState

    Accelerator(cpu=True)
    AcceleratorState._reset_state(reset_partial_state=True)
    assert PartialState._shared_state == {}
    state = PartialState(cpu=True, backend=None)
    AcceleratorState._reset_state(reset_partial_state=True)
    again = PartialState(backend="gloo", timeout=TIMEOUT, _use_sagemaker_dp=False)
    return state.num_processes, again.num_processes, again.backend, ranks_seen()


def test_states_reset_and_made_anew_keep_the_group(rank_pool):
    assert rank_pool.run(transformers_start, num_ranks=2) == [(2, 2, "gloo", [0, 1])] * 2


# ---- the end of the interpreter --------------------------------------------------------------------------

SCRIPT = """
import atexit, pathlib

def report():
    names = [path.read_text().strip() for path in pathlib.Path("/proc/self/task").glob("*/comm")]
    print(sorted(name for name in names if "gloo" in name or "store" in name))

atexit.register(report)  # registered first, called last

import torch
from torch import nn
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
model = accelerator.prepare(nn.Linear(2, 2))
loss = model(torch.ones(1, 2)).sum()
accelerator.backward(loss)
"""


def run_two_ranks(script):
    port = str(get_free_port())
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
        )
        for rank in range(2)
    ]
    try:
        outputs = [rank.communicate(timeout=60) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    return [(rank.returncode, *output) for rank, output in zip(ranks, outputs, strict=True)]


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are listed by Linux only")
@pytest.mark.parametrize("last", ["", "accelerator.end_training()", "raise SystemExit"])
def test_no_thread_of_the_group_outlives_a_clean_script(last):
    # One that did would abort the process now and then: too rarely for a test to see it.
    assert run_two_ranks(SCRIPT + last) == [(0, "[]\n", "")] * 2


FAILURE = """
if accelerator.is_last_process:
    raise RuntimeError("the last one fails")
accelerator.wait_for_everyone()
"""


def test_a_rank_that_fails_ends_those_that_wait_for_it():
    (waiting, _, _), (failing, _, text) = run_two_ranks(SCRIPT + FAILURE)
    assert (waiting, failing) == (1, 1)
    assert text.rstrip().endswith("RuntimeError: the last one fails")
