import copy
import functools
import inspect
import pickle

import pytest
import torch
from torch import nn

from accelerate.modules.forward import ForwardWrapper, replace_forward, restore_forward


class Doubled(ForwardWrapper):
    """Gives twice what the forward pass inside gives."""

    def __call__(self, *args, **kwargs):
        return 2 * self.model_forward(*args, **kwargs)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, inputs, scale: float = 1.0):
        """Multiply."""
        return self.weight * inputs * scale


def other_forward(self, inputs):
    return self.weight + inputs


@pytest.fixture
def model():
    model = Net()
    replace_forward(model, Doubled)
    return model


def value(model, inputs=3.0):
    return model(torch.tensor([inputs])).item()


def test_a_replaced_forward_looks_like_the_original(model):
    assert value(model) == 6
    assert model._original_forward == model.forward.__wrapped__ == model.forward.model_forward
    assert inspect.signature(model.forward) == inspect.signature(Net().forward)
    assert (model.forward.__name__, model.forward.__doc__) == ("forward", "Multiply.")
    assert model(torch.ones(1), scale=2).item() == 4


def test_restoring_leaves_no_trace(model):
    restore_forward(model)
    assert value(model) == 3
    assert not {"forward", "_original_forward"} & set(model.__dict__)
    restore_forward(model)


def test_a_second_replacement_takes_the_place_of_the_first(model):
    replace_forward(model, Doubled)
    assert value(model) == 6
    restore_forward(model)
    assert value(model) == 3


def test_a_forward_that_was_set_on_the_instance_is_put_back():
    model = Net()
    model.forward = functools.partial(other_forward, model)
    mine = model.forward
    replace_forward(model, Doubled)
    assert value(model) == 8
    restore_forward(model)
    assert model.forward is mine


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda item: pickle.loads(pickle.dumps(item))], ids=["deepcopy", "pickle"]
)
def test_a_copy_computes_with_its_own_weights(model, duplicate):
    twin = duplicate(model)
    with torch.no_grad():
        twin.weight.fill_(10)
    assert (value(model), value(twin)) == (6, 60)
    assert inspect.signature(twin.forward) == inspect.signature(model.forward)
    restore_forward(twin)
    assert value(twin) == 30
    assert not {"forward", "_original_forward"} & set(twin.__dict__)


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda item: pickle.loads(pickle.dumps(item))], ids=["deepcopy", "pickle"]
)
def test_a_wrapper_can_be_copied_from_any_end(model, duplicate):
    outer = Doubled(Doubled(Net().forward))
    for wrapper in (outer, outer.model_forward, model.forward):
        assert duplicate(wrapper)(torch.ones(1)) == wrapper(torch.ones(1))


def test_a_method_from_elsewhere_survives_pickling():
    model = Net()
    model.forward = Doubled(other_forward.__get__(model))
    twin = pickle.loads(pickle.dumps(model))
    assert value(twin) == 8
    assert twin.forward.model_forward.__self__ is twin


def test_inside_a_compiled_module_the_original_is_replaced():
    model = Net()
    compiled = torch.compile(model, backend="eager")
    assert value(compiled) == 3
    replace_forward(compiled, Doubled)
    assert (value(compiled), value(model)) == (6, 6)
    restore_forward(compiled)
    assert (value(compiled), value(model)) == (3, 3)
