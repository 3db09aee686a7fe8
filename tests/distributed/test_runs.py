"""Several runs in one process, one after the other: each has its own group, settings and prepared objects."""

import gc
import os
import time
import weakref
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from accelerate.accelerator import Accelerator
from accelerate.errors import NotInitializedError
from accelerate.options.data import DataLoaderConfiguration
from accelerate.options.handlers import InitProcessGroupKwargs
from accelerate.runtime.accumulation import accumulation
from accelerate.runtime.collectives import gather_object
from accelerate.state import AcceleratorState, PartialState

TIMEOUT = timedelta(seconds=20)


def accelerator_for(run, **settings):
    return Accelerator(
        cpu=True,
        gradient_accumulation_steps=run + 1,
        dataloader_config=DataLoaderConfiguration(split_batches=run == 1),
        project_dir=f"run{run}",
        kwargs_handlers=[InitProcessGroupKwargs(timeout=TIMEOUT)],
        **settings,
    )


def train(accelerator, model, optimizer, loader):
    """Train one epoch; return the samples of this rank's batches and after which batches a step was made."""
    samples, steps = [], []
    for (rows,) in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(rows[:, None].float()).square().mean())
            optimizer.step()
            optimizer.zero_grad()
        samples.append(rows.tolist())
        steps.append(accelerator.sync_gradients)
    weights = accelerator.gather(torch.cat([p.detach().flatten() for p in model.parameters()])[None])
    assert torch.equal(weights, weights[:1].expand_as(weights)), "the replicas differ"
    return samples, steps


def make_objects():
    torch.manual_seed(0)
    model = nn.Linear(1, 1)
    loader = DataLoader(TensorDataset(torch.arange(8)), batch_size=2)
    return model, torch.optim.SGD(model.parameters(), lr=0.01), loader


def three_runs(reuse, slow_rank=None):
    """Run three times with other settings; with `reuse`, go on with what the run before has prepared."""
    outcomes, kept = [], []
    objects = make_objects()
    for run in range(3):
        if os.environ["RANK"] == str(slow_rank):
            time.sleep(0.3)  # the others come to the meeting first, and find what the last run has left
        accelerator = accelerator_for(run, mixed_precision="bf16" if run == 1 else "no")
        objects = accelerator.prepare(*(objects if reuse else make_objects()))
        in_bf16 = "forward" in vars(accelerator.unwrap_model(objects[0]))
        outcomes.append((accelerator.gradient_accumulation_steps, in_bf16, *train(accelerator, *objects)))
        kept.append(objects[0])  # a wrapper of a group that is gone must not disturb the next one
        accelerator.end_training()
        assert not dist.is_initialized()
        assert accelerator.process_index == int(os.environ["RANK"])  # can still be read
    del kept, objects
    gc.collect()
    return outcomes


def expected_runs(rank, size):
    outcomes = []
    for run in range(3):
        if run == 1:  # batches of 2 are split
            samples = [[2 * batch + rank] for batch in range(4)]
        else:
            samples = [[4 * r + 2 * rank, 4 * r + 2 * rank + 1] for r in range(2)]
        last = len(samples) - 1
        steps = [(index + 1) % (run + 1) == 0 or index == last for index in range(len(samples))]
        outcomes.append((run + 1, run == 1, samples, steps))
    return outcomes


@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("slow_rank", [None, 0, 1])
def test_three_runs_in_one_process(rank_pool, reuse, slow_rank):
    outcomes = rank_pool.run(three_runs, reuse, slow_rank, num_ranks=2, timeout=60)
    assert outcomes == [expected_runs(rank, 2) for rank in range(2)]


def three_runs_at(port):
    """Find the ranks through a store that outlives them, as torchrun's agent has it."""
    os.environ.update(TORCHELASTIC_USE_AGENT_STORE="True", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    return three_runs(False, slow_rank=0)


def test_three_runs_over_the_store_of_the_launcher(rank_pool):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    outcomes = rank_pool.run(three_runs_at, store.port, num_ranks=2, timeout=60)
    assert outcomes == [expected_runs(rank, 2) for rank in range(2)]


def wrapper_outlives_the_group():
    """End right after a backward pass, and drop the wrapper, while a thread of the group may be at work."""
    for _ in range(25):
        accelerator = accelerator_for(0)
        model = accelerator.prepare(nn.Sequential(*(nn.Linear(20, 20) for _ in range(3))))
        for _ in range(3):
            accelerator.backward(model(torch.ones(1, 20)).sum())
        accelerator.end_training()
        del model
    return True


def test_a_wrapper_that_outlives_its_group_does_not_wait_for_ever(rank_pool):
    assert rank_pool.run(wrapper_outlives_the_group, num_ranks=2, timeout=60) == [True, True]


def three_runs_over(url):
    indices = []
    for _ in range(3):
        accelerator = Accelerator(
            cpu=True, kwargs_handlers=[InitProcessGroupKwargs(init_method=url, timeout=TIMEOUT)]
        )
        if accelerator.process_index == 0:
            time.sleep(0.1)
        indices.append(accelerator.gather(torch.tensor([accelerator.process_index])).tolist())
        accelerator.end_training()
    return indices


def test_three_runs_through_a_file(rank_pool, tmp_path):
    url = f"file://{tmp_path}/meeting"
    assert rank_pool.run(three_runs_over, url, num_ranks=3) == [[[0, 1, 2]] * 3] * 3


def two_at_once():
    first = accelerator_for(0, mixed_precision="no")
    texts = []
    try:
        Accelerator(cpu=True, mixed_precision="bf16")
    except ValueError as error:
        texts.append(str(error))
    same = Accelerator(cpu=True, gradient_accumulation_steps=4)
    total = first.reduce(torch.ones(1)).item() + same.reduce(torch.ones(1)).item()
    return texts, total, first.gradient_accumulation_steps


def test_while_a_run_is_on_another_precision_is_refused(rank_pool):
    for (text,), total, steps in rank_pool.run(two_at_once, num_ranks=2):
        assert "AcceleratorState has already been initialized and cannot be changed" in text
        assert "`mixed_precision='bf16'`" in text
        assert total == 4
        assert steps == 4  # the window is shared, as in the interface


def after_the_end():
    accelerator = accelerator_for(0)
    accelerator.end_training()
    accelerator.end_training()
    accelerator.wait_for_everyone()
    facts = (accelerator.num_processes, accelerator.is_main_process, accelerator.mixed_precision)
    errors = []
    for call in (lambda: accelerator.gather(torch.ones(1)), lambda: gather_object([1])):
        try:
            call()
        except NotInitializedError as error:
            errors.append(str(error))
    return facts, PartialState().num_processes, errors


def test_what_is_left_after_the_end(rank_pool):
    for rank, (facts, seen, errors) in enumerate(rank_pool.run(after_the_end, num_ranks=2)):
        assert facts == (2, rank == 0, "no")
        assert seen == 2
        assert len(errors) == 2
        assert all("`end_training()` does" in error for error in errors)


def group_ended_by_hand():
    first = accelerator_for(1)
    with first.accumulate():
        pass
    assert not accumulation.sync_gradients
    dist.destroy_process_group()
    second = Accelerator(cpu=True)
    return (
        second.reduce(torch.ones(1)).item(),
        accumulation.sync_gradients,
        second.gradient_accumulation_steps,
    )


def test_a_group_that_somebody_else_ended_is_made_again(rank_pool):
    assert rank_pool.run(group_ended_by_hand, num_ranks=2) == [(2, True, 1)] * 2


def adopted():
    accelerator = accelerator_for(0)
    AcceleratorState._reset_state(reset_partial_state=True)  # as client libraries do
    again = Accelerator(cpu=True)
    return again.reduce(torch.ones(1)).item(), accelerator.process_index == again.process_index


def test_a_state_that_was_reset_adopts_the_group_that_is_there(rank_pool):
    assert rank_pool.run(adopted, num_ranks=2) == [(2, True)] * 2


def freed():
    accelerator = accelerator_for(0)
    model, optimizer, loader = accelerator.prepare(*make_objects())
    module = model.module
    train(accelerator, model, optimizer, loader)
    accelerator.backward(model(torch.ones(1, 1)).sum())
    # With gradient_as_bucket_view off, a bucket is held by the reducer alone, and that by the wrapper.
    watched = {
        "wrapper": model,
        "module": module,
        "weight": module.weight,
        "gradient": module.weight.grad,
        "optimizer": optimizer,
        "loader": loader,
    }
    watched = {name: weakref.ref(value) for name, value in watched.items()}
    del module
    gc.collect()
    gc.disable()  # what goes now goes because nothing refers to it
    try:
        model, optimizer, loader = accelerator.free_memory(model, optimizer, loader)
        left = [name for name, reference in watched.items() if reference() is not None]
    finally:
        gc.enable()
    return (model, optimizer, loader), left, accelerator.step


def test_free_memory_frees_models_gradients_and_wrappers(rank_pool):
    assert rank_pool.run(freed, num_ranks=2) == [((None, None, None), [], 0)] * 2


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def buckets_freed():
    accelerator = accelerator_for(0)
    model = optimizer = None
    sizes = []
    for _ in range(4):
        model = nn.Linear(3200, 3200, bias=False)  # 41 MB: so much is mapped for itself, and unmapped again
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = accelerator.prepare(model, optimizer)
        accelerator.backward(model(torch.ones(1, 3200)).sum())
        held = resident()
        model, optimizer = accelerator.free_memory(model, optimizer)
        sizes.append((held, resident()))
    return sizes


def test_buckets_give_their_memory_back(rank_pool):
    for sizes in rank_pool.run(buckets_freed, num_ranks=2):
        (_, first), *_, (held, last) = sizes
        assert held - last > 120e6  # weights, gradients and buckets, 41 MB each
        assert last - first < 20e6
