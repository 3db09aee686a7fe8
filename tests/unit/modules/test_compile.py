import copy
import functools
import pickle
import types
import weakref

import pytest
import torch
from torch import nn

from accelerate.modules.compile import (
    compile_regions,
    compile_regions_deepspeed,
    compile_regions_fsdp2,
    compile_whole,
    has_compiled_regions,
    has_repeated_blocks,
    is_compiled,
    is_compiled_module,
    is_repeated_blocks,
)
from accelerate.modules.unwrap import extract_model_from_parallel

# torch's own, while it compiles a block whose input needs a gradient.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not:UserWarning")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, values):
        return self.linear(values).tanh()


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(3))

    def forward(self, values):
        for layer in self.layers:
            values = layer(values)
        return values


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stack = Stack()
        self.dropout = nn.Dropout(0.5)
        self.mixed = nn.ModuleList([nn.Linear(4, 4), Block()])
        self.named = nn.ModuleDict({"head": nn.Linear(4, 2)})
        self.empty = nn.ModuleList()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, values):
        self.calls += 1
        values = self.dropout(self.stack(values))
        for part in self.mixed:
            values = part(values)
        return self.named["head"](values)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model()


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()


def regions(module):
    return compile_regions(module, backend="eager")


def compiled_names(module):
    return [name for name, part in module.named_modules() if is_compiled_module(part)]


def num_compilations():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def test_repeated_blocks_are_lists_of_one_class(model):
    assert is_repeated_blocks(model.stack.layers)
    assert is_repeated_blocks(nn.ModuleList([Block()]))
    assert not is_repeated_blocks(model.mixed)
    assert not is_repeated_blocks(model.empty)
    assert not is_repeated_blocks(nn.Sequential(Block(), Block()))
    assert not is_repeated_blocks(model.stack)
    assert has_repeated_blocks(model)
    assert has_repeated_blocks(model.stack.layers)
    assert not has_repeated_blocks(model.mixed)


def test_blocks_and_their_neighbours_are_compiled_and_lists_stay_lists(model):
    copied = regions(model)
    assert type(copied) is Model
    assert compiled_names(copied) == [
        *(f"stack.layers.{index}" for index in range(3)),
        *("dropout", "mixed.0", "mixed.1", "named.head"),
    ]
    assert has_compiled_regions(copied)
    assert compiled_names(model) == []


def test_it_computes_what_the_original_does(model):
    copied = regions(model).eval()
    values = torch.randn(3, 4)
    model.eval()
    assert torch.equal(copied(values), model(values))
    assert model.calls == copied.calls == 2


def test_blocks_of_one_class_are_compiled_once():
    torch._dynamo.utils.counters.clear()
    regions(Stack())(torch.randn(2, 4, requires_grad=True))
    assert num_compilations() == 1


def test_parameters_are_shared_and_train(model):
    copied = regions(model)
    assert all(one is other for one, other in zip(model.parameters(), copied.parameters(), strict=True))
    copied(torch.randn(3, 4)).sum().backward()
    assert model.stack.layers[0].linear.weight.grad is not None


def test_modes_reach_what_is_compiled(model):
    copied = regions(model).eval()
    assert not copied.dropout.training
    assert not copied.stack.training
    assert copied.train().dropout.training


def test_unwrapping_gives_the_original(model):
    copied = regions(model)
    assert extract_model_from_parallel(copied) is copied
    assert extract_model_from_parallel(copied, keep_torch_compile=False) is model


def test_a_model_without_blocks_is_compiled_as_a_whole():
    linear = nn.Linear(2, 2)
    compiled = regions(linear)
    assert is_compiled_module(compiled)
    assert compiled._orig_mod is linear


def test_a_compiled_module_keeps_nothing_that_the_module_drops():
    class Held:
        pass

    linear = nn.Linear(2, 2)
    linear.held = Held()
    compiled = compile_whole(linear, backend="eager")
    values = torch.randn(1, 2, requires_grad=True)
    assert torch.equal(compiled(values), linear(values))
    held = weakref.ref(linear.held)
    del linear.held
    assert held() is None


def test_what_is_compiled_already_stays_as_it_is(model):
    whole = torch.compile(model, backend="eager")
    assert regions(whole) is whole
    copied = regions(model)
    assert regions(copied) is copied
    model.stack.layers[1] = torch.compile(model.stack.layers[1], backend="eager")
    assert regions(model).stack.layers[1] is model.stack.layers[1]
    block = Block()
    block.compile(backend="eager")
    assert regions(nn.ModuleList([block]))[0] is block


def test_is_compiled(model):
    assert not is_compiled(model)
    assert is_compiled(regions(model))
    assert is_compiled(torch.compile(model, backend="eager"))
    model.compile(backend="eager")
    assert is_compiled(model)


def test_a_module_in_two_places_is_compiled_once():
    block = Block()
    model = nn.ModuleDict({"blocks": nn.ModuleList([block, block]), "again": nn.ModuleList([block])})
    copied = regions(model)
    assert copied["blocks"][0] is copied["blocks"][1] is copied["again"][0]


def test_gaps_among_the_children_stay_gaps(model):
    model.register_module("gap", None)
    assert regions(model).gap is None


def test_copies_of_the_copy(model):
    copied = regions(model).eval()
    values = torch.randn(3, 4)
    twin = copy.deepcopy(copied)
    assert torch.equal(twin(values), copied(values))
    assert twin.stack.layers[0].linear.weight is not model.stack.layers[0].linear.weight


def doubled(module, values):
    return 2 * type(module).forward(module, values)


@pytest.mark.parametrize("bind", [types.MethodType, functools.partial])
def test_a_forward_that_was_replaced_on_the_instance_uses_the_compiled_blocks(bind):
    stack = Stack()
    stack.forward = bind(doubled, stack)
    copied = regions(stack)
    torch._dynamo.utils.counters.clear()
    values = torch.randn(2, 4, requires_grad=True)
    assert torch.equal(copied(values), stack(values))
    assert num_compilations() == 1


def test_pickles(model):
    copied = regions(model).eval()
    values = torch.randn(3, 4)
    again = pickle.loads(pickle.dumps(copied))
    assert torch.equal(again(values), copied(values))


def compiled_in_place(module):
    return [name for name, part in module.named_modules() if part._compiled_call_impl is not None]


@pytest.mark.parametrize("compile_in_place", [compile_regions_fsdp2, compile_regions_deepspeed])
def test_blocks_compiled_in_place_stay_the_objects_that_they_are(model, compile_in_place):
    modules, values = list(model.modules()), torch.randn(3, 4)
    expected = model.eval()(values)
    result = compile_in_place(model, backend="eager")
    assert result is (model if compile_in_place is compile_regions_fsdp2 else None)
    assert list(model.modules()) == modules
    assert compiled_in_place(model) == compiled_names(regions(Model()))
    assert torch.equal(model(values), expected)


def test_in_place_blocks_of_one_class_are_compiled_once():
    torch._dynamo.utils.counters.clear()
    compile_regions_fsdp2(Stack(), backend="eager")(torch.randn(2, 4, requires_grad=True))
    assert num_compilations() == 1


def test_in_place_a_model_without_blocks_is_compiled_as_a_whole():
    block = Block()
    assert compile_regions_fsdp2(block, backend="eager") is block
    assert compiled_in_place(block) == [""]


def test_in_place_what_is_compiled_already_stays_as_it_is(model):
    compile_regions_fsdp2(model, backend="eager")
    calls = [part._compiled_call_impl for part in model.modules()]
    compile_regions_fsdp2(model, backend="eager")
    assert [part._compiled_call_impl for part in model.modules()] == calls
