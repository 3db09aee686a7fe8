"""A hook runs around the forward pass, can be copied with its module, and leaves nothing behind."""

import copy
import inspect
import logging
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from accelerate.modules.compile import compile_regions
from accelerate.offload.hooks import (
    ModelHook,
    SequentialHook,
    StayHere,
    add_hook_to_module,
    remove_hook_from_module,
    remove_hook_from_submodules,
)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.second = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return scale * self.second(self.norm(self.first(x)))


class Add(ModelHook):
    """Add a number to the first argument and to the output."""

    def __init__(self, number: float) -> None:
        self.number = number

    def pre_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return (args[0] + self.number, *args[1:]), kwargs

    def post_forward(self, module: nn.Module, output: Any) -> Any:
        return output + self.number


class Scribe(ModelHook):
    """Note what is called, in the order of the calls."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name, self.notes = name, notes

    def init_hook(self, module: nn.Module) -> nn.Module:
        self.notes.append(f"init {self.name}")
        return module

    def pre_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        self.notes.append(f"pre {self.name}")
        return args, kwargs

    def post_forward(self, module: nn.Module, output: Any) -> Any:
        self.notes.append(f"post {self.name}")
        return output

    def _abandon(self, module: nn.Module) -> None:
        self.notes.append(f"abandon {self.name}")

    def detach_hook(self, module: nn.Module) -> nn.Module:
        self.notes.append(f"detach {self.name}")
        return module


class NoGrad(ModelHook):
    no_grad = True


def outline(model: nn.Module) -> dict[str, dict[str, Any]]:
    """Return everything that the modules of a model hold: contents of dictionaries, identity of the rest."""
    return {
        name: {
            key: {inner: id(item) for inner, item in value.items()} if isinstance(value, dict) else id(value)
            for key, value in vars(part).items()
        }
        for name, part in model.named_modules()
    }


def test_hooks_change_input_and_output() -> None:
    model, x = Model().eval(), torch.randn(2, 3)
    expected = model(x + 1, scale=2.0) + 1
    assert add_hook_to_module(model, Add(1)) is model
    assert torch.equal(model(x, scale=2.0), expected)
    assert torch.equal(model(x, 2.0), expected)


def test_a_hook_replaces_the_one_before_it_or_joins_it() -> None:
    model, x = nn.Identity(), torch.zeros(2)
    add_hook_to_module(model, Add(1))
    add_hook_to_module(model, Add(1))
    assert model(x).tolist() == [2, 2]
    add_hook_to_module(model, Add(2), append=True)
    assert isinstance(model._hf_hook, SequentialHook)
    assert [hook.number for hook in model._hf_hook.hooks] == [1, 2]
    assert model(x).tolist() == [6, 6]
    remove_hook_from_module(model)
    assert model(x).tolist() == [0, 0]


def test_order_of_calls() -> None:
    notes: list[str] = []
    model = nn.Identity()
    add_hook_to_module(model, Scribe("a", notes))
    add_hook_to_module(model, Scribe("b", notes), append=True)
    model(torch.ones(1))
    remove_hook_from_module(model)
    assert notes[:4] == ["init a", "detach a", "init a", "init b"]
    assert notes[4:] == ["pre a", "pre b", "post a", "post b", "detach a", "detach b"]


def test_a_forward_pass_that_raises_is_abandoned() -> None:
    notes: list[str] = []
    model = add_hook_to_module(Model(), SequentialHook(Scribe("a", notes), Scribe("b", notes)))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        model(torch.randn(2, 7))
    assert notes[2:] == ["pre a", "pre b", "abandon a", "abandon b"]


def test_no_grad() -> None:
    model, x = Model(), torch.randn(2, 3)
    assert model(x).requires_grad
    assert not add_hook_to_module(model, NoGrad())(x).requires_grad


def test_init_hook_may_give_another_module() -> None:
    class Other(ModelHook):
        def init_hook(self, module: nn.Module) -> nn.Module:
            return nn.Sequential(module)

    inside = nn.Identity()
    given = add_hook_to_module(inside, Other())
    assert isinstance(given, nn.Sequential)
    assert given(torch.ones(1)).tolist() == [1]
    assert "_hf_hook" in vars(given)
    assert "_hf_hook" not in vars(inside)


def test_names_and_signature_stay() -> None:
    model = Model()
    signature = inspect.signature(model.forward)
    own = model.forward
    add_hook_to_module(model, ModelHook())
    assert inspect.signature(model.forward) == signature
    assert model.forward.__name__ == "forward"
    assert model._old_forward == model.forward.__wrapped__ == own
    assert vars(model)["_hf_hook"] is model._hf_hook


def test_a_module_is_as_before_once_its_hooks_are_removed() -> None:
    model = Model()
    before = outline(model)
    for part in model.modules():
        add_hook_to_module(part, ModelHook())
        add_hook_to_module(part, Add(1), append=True)
    assert remove_hook_from_module(model) is model
    assert "_hf_hook" in vars(model.first)
    remove_hook_from_submodules(model)
    assert outline(model) == before
    assert remove_hook_from_module(model, recurse=True) is model


def test_a_forward_pass_of_the_instance_comes_back() -> None:
    model = Model()
    model.forward = replacement = lambda x: x + 1
    add_hook_to_module(model, Add(1))
    assert model(torch.zeros(1)).tolist() == [3]
    remove_hook_from_module(model)
    assert model.forward is replacement


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_has_hooks_and_weights_of_its_own(twin: Any) -> None:
    model, x = Model().eval(), torch.randn(2, 3)
    for part in model.modules():
        add_hook_to_module(part, Add(1))
    expected = model(x)
    copied = twin(model)
    assert torch.equal(copied(x), expected)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert torch.equal(copied(x), expected)
    remove_hook_from_submodules(copied)
    assert "_hf_hook" in vars(model.first)


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks[1](self.blocks[0](x))


def test_a_model_with_hooks_compiles_by_its_blocks() -> None:
    model, x = Blocks(), torch.randn(2, 3)
    for part in (model, *model.blocks):
        add_hook_to_module(part, Add(1))
    compiled = compile_regions(model, backend="eager")
    with torch.no_grad():
        assert torch.equal(compiled(x), model(x))
    assert compiled._old_forward.__self__ is compiled


def test_hooks_compile_into_one_graph() -> None:
    model, x = Model().eval(), torch.randn(2, 3)
    for part in model.modules():
        add_hook_to_module(part, Add(1))
    expected = model(x)
    assert torch.equal(torch.compile(model, backend="eager", fullgraph=True)(x), expected)


def test_stay_here(caplog: pytest.LogCaptureFixture) -> None:
    model = Model()
    model.to = StayHere(model.to)  # type: ignore[assignment]
    with caplog.at_level(logging.WARNING):
        assert model.to(torch.float16) is model
    assert caplog.messages == ["You shouldn't move a model that is dispatched using accelerate hooks."]
    assert model.first.weight.dtype == torch.float16
    model.second.to("meta")
    with pytest.raises(RuntimeError, match="modules offloaded to cpu or disk"):
        copy.deepcopy(model).to("cpu")
    remove_hook_from_module(model)
    assert "to" not in vars(model)
