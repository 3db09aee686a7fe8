import pytest
import torch

from accelerate.optimizer import AcceleratedOptimizer
from accelerate.options.accumulation import GradientAccumulationPlugin
from accelerate.runtime.accumulation import accumulation
from accelerate.runtime.current import current
from accelerate.scheduler import AcceleratedScheduler
from accelerate.state import GradientState


@pytest.fixture(autouse=True)
def fresh():
    current.start(cpu=True)
    yield
    current.reset()
    accumulation.reset()


@pytest.fixture
def optimizer():
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    optimizer = AcceleratedOptimizer(torch.optim.SGD([parameter], lr=1.0))
    optimizer.optimizer.step()
    return optimizer


def make(optimizer, **kwargs):
    inner = torch.optim.lr_scheduler.LambdaLR(optimizer.optimizer, lambda epoch: 1 / (1 + epoch))
    optimizer.optimizer.step()
    return AcceleratedScheduler(inner, optimizer, **kwargs)


def test_it_advances_once_a_step_in_one_process(optimizer):
    scheduler = make(optimizer)
    scheduler.step()
    assert scheduler.scheduler.last_epoch == 1
    assert scheduler.get_last_lr() == [0.5]


def test_it_advances_once_a_process(optimizer):
    current.num_processes = 3
    scheduler = make(optimizer)
    scheduler.step()
    assert scheduler.scheduler.last_epoch == 3
    split = make(optimizer, split_batches=True)
    split.step()
    assert split.scheduler.last_epoch == 1


@pytest.mark.parametrize("split_batches", [True, False])
def test_a_schedule_in_optimizer_steps_advances_once_a_step(optimizer, split_batches):
    current.num_processes = 3
    scheduler = make(optimizer, split_batches=split_batches, per_process=False)
    for sync in (False, True, False, True):
        accumulation.sync_gradients = sync
        scheduler.step()
    assert scheduler.scheduler.last_epoch == 2
    optimizer._skipped = True
    scheduler.step()
    assert scheduler.scheduler.last_epoch == 2


@pytest.mark.parametrize("adjust", [True, False])
def test_the_plugin_s_word_on_schedulers_changes_no_schedule(optimizer, adjust):
    GradientState(GradientAccumulationPlugin(num_steps=3, adjust_scheduler=adjust))
    assert GradientState().adjust_scheduler is adjust
    scheduler = make(optimizer)
    for micro_batch in range(6):
        accumulation.sync_gradients = micro_batch % 3 == 2
        scheduler.step()
    assert (scheduler.scheduler.last_epoch, scheduler.scheduler._step_count) == (2, 3)


def test_it_waits_inside_a_window_and_after_a_skipped_step(optimizer):
    scheduler = make(optimizer)
    accumulation.sync_gradients = False
    scheduler.step()
    accumulation.sync_gradients = True
    optimizer._skipped = True
    scheduler.step()
    assert scheduler.scheduler.last_epoch == 0


@pytest.mark.parametrize("adjust", [True, False])
def test_a_window_leaves_a_schedule_with_an_end_its_whole_length(optimizer, adjust):
    GradientState(GradientAccumulationPlugin(num_steps=4, adjust_scheduler=adjust))
    inner = torch.optim.lr_scheduler.OneCycleLR(optimizer.optimizer, max_lr=1.0, total_steps=5)
    optimizer.optimizer.step()
    scheduler = AcceleratedScheduler(inner, optimizer)
    for micro_batch in range(5 * 4):
        accumulation.sync_gradients = micro_batch % 4 == 3
        scheduler.step()
        assert inner.last_epoch == (micro_batch + 1) // 4


def test_a_schedule_that_follows_a_metric_advances_once_a_metric(optimizer):
    current.num_processes = 3
    inner = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer.optimizer, patience=1)
    scheduler = AcceleratedScheduler(inner, optimizer)
    for sync in (True, False, True, False):
        accumulation.sync_gradients = sync
        scheduler.step(1.0)
    assert (inner.last_epoch, inner.num_bad_epochs) == (2, 1)
    assert scheduler.get_last_lr() == [1.0]


def test_alone_it_always_advances_once(optimizer):
    current.num_processes = 3
    accumulation.sync_gradients = False
    scheduler = make(optimizer, step_with_optimizer=False)
    scheduler.step()
    assert scheduler.scheduler.last_epoch == 1


def test_a_schedule_with_an_end_stops_there(optimizer):
    inner = torch.optim.lr_scheduler.OneCycleLR(optimizer.optimizer, max_lr=1.0, total_steps=4)
    optimizer.optimizer.step()
    scheduler = AcceleratedScheduler(inner, [optimizer])
    for _ in range(10):
        scheduler.step()
    assert scheduler.scheduler.last_epoch == 4


def test_many_processes_do_not_run_past_the_end(optimizer):
    current.num_processes = 3
    inner = torch.optim.lr_scheduler.OneCycleLR(optimizer.optimizer, max_lr=1.0, total_steps=7)
    optimizer.optimizer.step()
    scheduler = AcceleratedScheduler(inner, optimizer)
    counts = []
    for _ in range(4):
        scheduler.step()
        counts.append(inner.last_epoch)
    assert counts == [3, 6, 7, 7]


def test_state_round_trips(optimizer):
    scheduler = make(optimizer)
    scheduler.step()
    other = make(optimizer)
    other.load_state_dict(scheduler.state_dict())
    assert other.scheduler.last_epoch == 1
