"""What an earlier run has prepared is prepared anew; what this one has, and what clients marked, is left."""

import pickle
import types

import pytest
import torch
from torch import nn
from torch.nn.parallel import DataParallel
from torch.utils.data import DataLoader

from accelerate.data.prepare import prepare_data_loader
from accelerate.data.skip import skip_first_batches
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.runtime.current import Current, current
from accelerate.scheduler import AcceleratedScheduler
from accelerate.training.marks import mark, renewed


@pytest.fixture
def runs():
    """Return two runs, one after the other."""
    earlier, now = Current(), Current()
    for run in (earlier, now):
        run.start(cpu=True)
    current.start(cpu=True)
    return earlier, now


def with_other_forward(model):
    model._original_forward = model.forward
    model.forward = types.MethodType(lambda self, inputs: inputs, model)
    return model


def test_no_two_runs_have_one_token(runs):
    assert runs[0].token != runs[1].token != current.token


def test_what_this_run_prepared_is_left(runs):
    _, now = runs
    model = mark(nn.Linear(1, 1), now)
    assert model._is_accelerate_prepared
    assert renewed(model, now) is model


@pytest.mark.parametrize("item", [None, 3, "text", [1], nn.Linear(1, 1), torch.ones(1)])
def test_what_nobody_prepared_is_left(runs, item):
    assert renewed(item, runs[1]) is item


def test_what_a_client_marked_by_hand_is_left(runs):
    model = nn.Linear(1, 1)
    model._is_accelerate_prepared = True
    assert renewed(model, runs[1]) is model
    assert model._is_accelerate_prepared


def test_a_model_of_an_earlier_run_is_bare_again(runs):
    earlier, now = runs
    model = mark(with_other_forward(nn.Linear(1, 1)), earlier)
    assert renewed(model, now) is model
    assert "forward" not in vars(model)
    assert not hasattr(model, "_original_forward")
    assert not hasattr(model, "_is_accelerate_prepared")


def test_a_wrapper_of_an_earlier_run_comes_off(runs):
    earlier, now = runs
    module = with_other_forward(nn.Linear(1, 1))
    wrapped = mark(DataParallel(module), earlier)
    assert not hasattr(module, "_is_accelerate_prepared")
    for way_in in (wrapped, module):
        assert renewed(way_in, now) is module
        assert "forward" not in vars(module)


def test_optimizers_schedulers_and_loaders_give_the_users_own(runs):
    earlier, now = runs
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
    loader = DataLoader(range(4))
    prepared = [
        (AcceleratedOptimizer(optimizer), optimizer),
        (AcceleratedScheduler(scheduler, []), scheduler),
        (prepare_data_loader(loader, num_processes=2, process_index=1), loader),
    ]
    for wrapper, own in prepared:
        assert renewed(mark(wrapper, now), now) is wrapper
        assert renewed(mark(wrapper, earlier), now) is own
    rest = skip_first_batches(prepared[2][0], 1)  # the user's loader would be all of it
    assert renewed(rest, now) is rest


def test_a_mark_travels_with_a_pickle(runs):
    earlier, _ = runs
    model = mark(nn.Linear(1, 1), earlier)
    assert renewed(pickle.loads(pickle.dumps(model)), earlier)._is_accelerate_prepared


def test_marks_survive_a_reset_of_the_state(runs):
    current.reset()
    model = mark(nn.Linear(1, 1), current)
    assert renewed(model, current) is model
    assert not hasattr(renewed(model, runs[1]), "_is_accelerate_prepared")
