"""Weights come when a module is called and go again; numbers and objects are those of the resident module."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from accelerate.offload.align import AlignDevicesHook
from accelerate.offload.hooks import add_hook_to_module, remove_hook_from_module
from accelerate.offload.storage import offload_state_dict
from accelerate.offload.weights import OffloadedWeightsLoader

CPU, META = torch.device("cpu"), torch.device("meta")


def offloaded(module: nn.Module, **options: Any) -> AlignDevicesHook:
    hook = AlignDevicesHook("cpu", offload=True, **options)
    add_hook_to_module(module, hook)
    return hook


def test_repr() -> None:
    assert repr(AlignDevicesHook(0, skip_keys="cache")) == (
        "AlignDevicesHook(execution_device=0, offload=False, io_same_device=False, offload_buffers=False, "
        "place_submodules=False, skip_keys='cache')"
    )


def test_inputs_and_weights_go_to_the_device_and_outputs_come_back() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x: torch.Tensor, kept: torch.Tensor) -> Any:
            assert x.is_meta
            assert not kept.is_meta
            return {"y": torch.zeros_like(x, device="cpu")}

    hook = AlignDevicesHook("meta", io_same_device=True, skip_keys="kept")
    module = add_hook_to_module(Pair(), hook)
    assert module.weight.is_meta
    assert module(torch.ones(2), kept=torch.ones(2))["y"].device == CPU
    assert hook.input_device == CPU


def test_weights_are_away_between_calls() -> None:
    module, x = nn.BatchNorm1d(3).eval(), torch.randn(2, 3)
    parameters, expected = dict(module.named_parameters()), module(x)
    hook = offloaded(module)
    assert {name: tensor.device for name, tensor in module.named_parameters()} == {
        "weight": META,
        "bias": META,
    }
    assert hook.weights_map == parameters
    assert set(hook.original_devices) == set(module.state_dict())
    assert module.running_mean.device == CPU
    placeholder = module.weight
    assert torch.equal(module(x), expected)
    assert module.weight is placeholder
    remove_hook_from_module(module)
    assert all(tensor is parameters[name] for name, tensor in module.named_parameters())


def test_the_cpu_computes_on_the_weights_where_they_lie() -> None:
    module = nn.Linear(2, 2)
    hook = offloaded(module)
    hook.pre_forward(module)
    first = module.weight
    assert first.data_ptr() == hook.weights_map["weight"].data_ptr()
    hook.post_forward(module, ())
    hook.pre_forward(module)
    assert module.weight is first


def test_buffers_too_when_asked() -> None:
    module = nn.BatchNorm1d(2)
    module.register_buffer("scratch", torch.ones(1), persistent=False)
    hook = offloaded(module, offload_buffers=True, weights_map=dict(module.state_dict()))
    assert module.running_mean.is_meta
    assert module.scratch.device == CPU
    module(torch.randn(4, 2))
    assert hook.weights_map["num_batches_tracked"].item() == 1
    remove_hook_from_module(module)
    assert module.num_batches_tracked.item() == 1


@pytest.mark.parametrize("change", ["entry", "map", "in place"])
def test_what_a_client_changes_counts_from_the_next_call(change: str) -> None:
    module, x = nn.Linear(2, 2, bias=False), torch.ones(1, 2)
    hook = offloaded(module, weights_map={"weight": torch.ones(2, 2)})
    assert module(x).tolist() == [[2, 2]]
    if change == "entry":
        hook.weights_map["weight"] = torch.zeros(2, 2)
    elif change == "map":
        hook.weights_map = {"weight": torch.zeros(2, 2)}
    else:
        hook.weights_map["weight"].zero_()
    assert module(x).tolist() == [[0, 0]]


def test_called_by_hand_as_clients_do() -> None:
    module = nn.Linear(2, 2)
    hook = offloaded(module)
    placeholder = module.weight
    hook.pre_forward(module)
    hook.pre_forward(module)
    assert module.weight.device == CPU
    assert hook.post_forward(module, ()) == ()
    hook.post_forward(module, torch.tensor([]))
    assert module.weight is placeholder


def test_flags_and_dtype_are_those_of_the_placeholder() -> None:
    module = nn.Linear(2, 2)
    hook = offloaded(module)
    module(torch.ones(1, 2))
    module.half().requires_grad_(False)
    hook.pre_forward(module)
    assert (module.weight.dtype, module.weight.requires_grad) == (torch.float16, False)
    hook.post_forward(module, ())
    module.requires_grad_(True)
    hook.pre_forward(module)
    assert module.weight.requires_grad


def test_everything_inside_a_block() -> None:
    block, x = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), torch.randn(1, 2)
    expected = block(x)
    hook = offloaded(block, place_submodules=True)
    assert set(hook.weights_map) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert torch.equal(block(x), expected)
    assert block[2].bias.is_meta


def test_a_forward_pass_that_raises_leaves_nothing_behind() -> None:
    module = nn.Linear(2, 2)
    offloaded(module)
    with pytest.raises(RuntimeError, match="shapes"):
        module(torch.ones(1, 7))
    assert module.weight.is_meta


def test_gradients_pass_through_frozen_weights() -> None:
    resident = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).requires_grad_(False))
    model, x = copy.deepcopy(resident), torch.randn(3, 2)
    offloaded(model[1])
    for one in (resident, model):
        one(x).square().sum().backward()
    assert torch.equal(model[0].weight.grad, resident[0].weight.grad)


def test_a_gradient_that_would_be_lost_is_refused() -> None:
    module = nn.Linear(2, 2)
    offloaded(module)
    for _ in range(2):
        output = module(torch.ones(1, 2)).sum()
        with pytest.raises(RuntimeError, match=r"`(weight|bias)` of Linear, which is offloaded"):
            output.backward()
    x = torch.ones(1, 2, requires_grad=True)
    (gradient,) = torch.autograd.grad(module(x).sum(), x)
    assert gradient.shape == x.shape


def test_tied_weights_have_one_copy_on_a_device() -> None:
    first, second, third = (nn.Linear(2, 2, bias=False) for _ in range(3))
    second.weight = third.weight = first.weight
    weight = first.weight
    copies: Any = {weight.data_ptr(): {}}
    add_hook_to_module(first, AlignDevicesHook("cpu", tied_params_map=copies))
    for module in (second, third):
        offloaded(module, weights_map={"weight": weight.detach()}, tied_params_map=copies)
    assert copies == {weight.data_ptr(): {CPU: weight}}
    second._hf_hook.pre_forward(second)
    assert second.weight is first.weight
    second._hf_hook.post_forward(second, ())
    assert copies == {weight.data_ptr(): {CPU: weight}}
    third(torch.ones(1, 2)).sum().backward()  # the weight stays on the device, and so does its gradient
    assert weight.grad is not None


def test_a_copy_of_a_tied_weight_goes_with_the_hook_that_made_it() -> None:
    module = nn.Linear(2, 2, bias=False)
    copies: Any = {module.weight.data_ptr(): {}}
    hook = offloaded(module, tied_params_map=copies)
    hook.pre_forward(module)
    assert list(*copies.values()) == [CPU]
    hook.post_forward(module, ())
    assert list(copies.values()) == [{}]
    assert hook.tied_pointers_to_remove == set()


def test_weights_in_files(tmp_path: Path) -> None:
    module, x = nn.Linear(3, 2), torch.randn(2, 3)
    expected = module(x)
    offload_state_dict(tmp_path, module.state_dict())
    loader = OffloadedWeightsLoader(save_folder=tmp_path)
    offloaded(module, weights_map=loader)
    for twin in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(twin(x), expected)
    remove_hook_from_module(module)
    assert torch.equal(module(x), expected)
    with torch.no_grad():
        module.weight.zero_()
    assert loader["weight"].count_nonzero() > 0


def test_a_file_is_mapped_once_until_it_or_its_entry_changes(tmp_path: Path) -> None:
    module, x = nn.Linear(2, 2, bias=False), torch.ones(1, 2)
    offload_state_dict(tmp_path, {"weight": torch.ones(2, 2)})
    save_file({"other": torch.full((2, 2), 3.0)}, tmp_path / "other.safetensors")
    loader = OffloadedWeightsLoader(save_folder=tmp_path)
    offloaded(module, weights_map=loader)
    assert module(x).tolist() == [[2, 2]]
    assert loader["weight"] is loader["weight"]
    offload_state_dict(tmp_path, {"weight": torch.zeros(2, 2)})
    assert module(x).tolist() == [[0, 0]]
    entry = {"safetensors_file": str(tmp_path / "other.safetensors"), "weight_name": "other"}
    loader.index["weight"] = entry  # type: ignore[index]
    assert module(x).tolist() == [[6, 6]]
    assert loader["weight"] is loader["weight"]
    entry["dtype"] = "float64"
    assert loader["weight"].dtype == torch.float64
    (tmp_path / "other.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"other\.safetensors"):
        module(x)
    assert module.weight.is_meta


class Scaled(nn.Parameter):
    """A quantized weight: small numbers, and a scale beside them."""

    scale: torch.Tensor


def test_a_quantized_weight_comes_and_goes_as_the_object_that_it_is() -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = Scaled(torch.tensor([1, 2], dtype=torch.int8), requires_grad=False)
            self.weight.scale = torch.tensor(0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight * self.weight.scale

    layer, x = Layer(), torch.ones(2)
    weight = layer.weight
    offloaded(layer)
    for _ in range(2):
        assert layer(x).tolist() == [0.5, 1.0]
        assert (layer.weight.is_meta, layer.weight.dtype) == (True, torch.int8)
    assert weight.scale.device == CPU
    remove_hook_from_module(layer)
    assert layer.weight is weight


def test_a_module_without_values_is_refused() -> None:
    module = nn.Linear(2, 2, device="meta")
    with pytest.raises(ValueError, match="is on the meta device, we need a `value`"):
        add_hook_to_module(module, AlignDevicesHook("cpu"))
    assert "_hf_hook" not in vars(module)


def test_weights_of_another_shape_are_refused() -> None:
    module = nn.Linear(2, 2, bias=False)
    offloaded(module, weights_map={"weight": torch.ones(3, 2)})
    with pytest.raises(ValueError, match=r"shape \(3, 2\) for 'weight', which has shape \(2, 2\)"):
        module(torch.ones(1, 2))
    assert module.weight.is_meta


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["call", "fail", "pre", "post", "half", "float", "freeze"]), max_size=8))
def test_after_any_calls_the_module_is_whole_again(calls: list[str]) -> None:
    module = nn.Linear(2, 2)
    weight, x = module.weight, torch.ones(1, 2)
    expected = module(x)
    hook = offloaded(module)
    for call in calls:
        dtype = next(module.parameters()).dtype
        if call == "call":
            module(x.to(dtype))
        elif call == "fail":
            with pytest.raises(RuntimeError):
                module(torch.ones(1, 9))
        elif call == "pre":
            hook.pre_forward(module)
        elif call == "post":
            hook.post_forward(module, ())
        else:
            {"half": module.half, "float": module.float, "freeze": lambda: module.requires_grad_(False)}[
                call
            ]()
    hook.post_forward(module, ())
    assert module.weight.is_meta
    module.float()
    remove_hook_from_module(module)
    assert torch.allclose(module(x), expected)
    assert module.weight.data_ptr() == weight.data_ptr() or "half" in calls
