import functools
import pickle
import sys
import timeit

import pytest
import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from accelerate.modules import unwrap as room
from accelerate.modules.compile import has_compiled_regions, is_compiled_module
from accelerate.modules.unwrap import extract_model_from_parallel, register_wrapper, unwrap


class Engine(nn.Module):
    """What an engine puts around a model."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        return self.module(*inputs) + 100


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    """A registry of this test's own, which knows `Engine`."""
    registry = room._Registry()
    registry.looks.update(room._registry.looks)
    monkeypatch.setattr(room, "_registry", registry)
    register_wrapper(Engine)


@pytest.fixture
def model():
    return nn.Linear(2, 2)


def compiled(module):
    return torch.compile(module, backend="eager")


def test_a_plain_model_is_itself(model):
    assert extract_model_from_parallel(model) is model
    assert extract_model_from_parallel(model, False, False, True) is model


def test_data_parallel_is_unwrapped(model):
    assert extract_model_from_parallel(DataParallel(model)) is model


def ddp_is_unwrapped():
    torch.distributed.init_process_group("gloo")
    model = nn.Linear(2, 2)
    wrapped = DistributedDataParallel(model)
    nested = nn.Sequential(nn.Linear(2, 2), DistributedDataParallel(nn.Linear(2, 2)))
    inner = nested[1].module
    extract_model_from_parallel(nested, recursive=True)
    return extract_model_from_parallel(wrapped) is model, nested[1] is inner


def test_distributed_data_parallel_is_unwrapped(rank_pool):
    assert rank_pool.run(ddp_is_unwrapped) == [(True, True)] * 2


def test_wrappers_inside_wrappers_are_all_taken_off(model):
    assert extract_model_from_parallel(Engine(DataParallel(Engine(model)))) is model


def test_a_registered_wrapper_can_look_where_it_likes(model):
    class Stages(nn.Module):
        def __init__(self, *stages):
            super().__init__()
            self.stages = nn.ModuleList(stages)

    assert unwrap(Stages(model)) is not model
    register_wrapper(Stages, lambda wrapper: wrapper.stages[0])
    assert unwrap(Stages(model)) is model


def test_a_subclass_of_a_wrapper_counts(model):
    class Special(Engine):
        pass

    assert unwrap(Special(model)) is model


def test_a_compiled_model_stays_compiled_by_default(model):
    wrapped = compiled(model)
    assert extract_model_from_parallel(wrapped) is wrapped
    assert extract_model_from_parallel(wrapped, keep_torch_compile=False) is model


def test_a_wrapper_around_a_compiled_model_comes_off(model):
    wrapped = compiled(model)
    assert extract_model_from_parallel(Engine(wrapped)) is wrapped
    assert extract_model_from_parallel(Engine(wrapped), keep_torch_compile=False) is model


def test_a_wrapper_inside_a_compiled_model_comes_off_without_harm_to_either(model):
    outer = compiled(Engine(model))
    inputs = torch.ones(1, 2)
    expected = model(inputs)
    inside = extract_model_from_parallel(outer)
    assert is_compiled_module(inside)
    assert inside._orig_mod is model
    torch.testing.assert_close(inside(inputs), expected)
    assert isinstance(outer._orig_mod, Engine)
    torch.testing.assert_close(outer(inputs), expected + 100)
    assert extract_model_from_parallel(outer, keep_torch_compile=False) is model


def test_unwrapping_a_compiled_wrapper_twice_gives_one_object(model):
    outer = compiled(Engine(model))
    assert extract_model_from_parallel(outer) is extract_model_from_parallel(outer)


def test_the_innermost_compiled_module_is_taken(model):
    inner = compiled(model)
    assert extract_model_from_parallel(compiled(Engine(inner))) is inner


def test_an_empty_container_is_unwrapped():
    model = nn.Sequential()  # false as a truth value
    assert extract_model_from_parallel(compiled(Engine(model)), keep_torch_compile=False) is model


def test_a_copy_with_compiled_regions_knows_its_original(model):
    copy = nn.Sequential(compiled(model))
    copy.__dict__["_orig_mod"] = original = nn.Sequential(model)
    assert extract_model_from_parallel(Engine(copy)) is copy
    assert extract_model_from_parallel(Engine(copy), keep_torch_compile=False) is original


def test_wrappers_of_modules_inside_stay_unless_asked_for(model):
    nested = nn.Sequential(nn.Linear(2, 2), Engine(model))
    extract_model_from_parallel(nested)
    assert isinstance(nested[1], Engine)


def test_wrappers_of_modules_inside_are_taken_off_in_place():
    inner, deep = nn.Linear(2, 2), nn.Linear(2, 2)
    wrapped_by_compile = compiled(nn.Linear(2, 2))
    nested = nn.Sequential(Engine(inner), nn.Sequential(Engine(Engine(deep)), wrapped_by_compile))
    assert extract_model_from_parallel(Engine(nested), recursive=True) is nested
    assert nested[0] is inner
    assert nested[1][0] is deep
    assert nested[1][1] is wrapped_by_compile


def with_mixed_forward(model):
    """Do to a model what a mixed-precision `prepare` does."""
    original = model.forward
    model._original_forward = original

    @functools.wraps(original)
    def forward(*inputs):
        return original(*inputs).float()

    model.forward = forward
    return model


def test_the_mixed_forward_stays_by_default(model):
    forward = with_mixed_forward(model).forward
    assert extract_model_from_parallel(model).forward is forward
    assert hasattr(model, "_original_forward")


@pytest.mark.parametrize(
    "wrap", [lambda model: model, Engine, compiled, lambda model: Engine(compiled(model))]
)
def test_the_models_own_forward_comes_back(model, wrap):
    extract_model_from_parallel(wrap(with_mixed_forward(model)), keep_fp32_wrapper=False)
    assert "_original_forward" not in model.__dict__
    assert "forward" not in model.__dict__
    assert model.forward.__func__ is nn.Linear.forward
    pickle.dumps(model)


def test_a_forward_that_was_replaced_before_is_put_back(model):
    def replaced(inputs):
        return inputs

    model.forward = replaced
    extract_model_from_parallel(with_mixed_forward(model), keep_fp32_wrapper=False)
    assert model.forward is replaced


def test_compiled_modules_are_known(model):
    assert not is_compiled_module(model)
    assert is_compiled_module(compiled(model))
    assert not is_compiled_module(Engine(compiled(model)))
    assert not has_compiled_regions(model)
    assert has_compiled_regions(compiled(model))
    assert has_compiled_regions(nn.Sequential(nn.ReLU(), Engine(compiled(model))))


def test_nothing_is_compiled_before_the_compiler_is_loaded(model, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch._dynamo.eval_frame", raising=False)
    assert not is_compiled_module(model)
    assert not has_compiled_regions(model)
    assert "torch._dynamo.eval_frame" not in sys.modules


def test_a_plain_model_costs_less_than_a_microsecond(model):
    calls = 20_000
    seconds = min(timeit.repeat(lambda: extract_model_from_parallel(model), number=calls, repeat=7))
    assert seconds / calls < 1e-6
