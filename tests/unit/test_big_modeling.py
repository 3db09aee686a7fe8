"""Offloaded and dispatched models answer as resident ones do, and say no where they cannot."""

import copy
import inspect
import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from accelerate import big_modeling
from accelerate.big_modeling import cpu_offload, disk_offload, dispatch_model
from accelerate.modules.tensors import named_module_tensors
from accelerate.offload.align import AlignDevicesHook
from accelerate.offload.hooks import add_hook_to_module, remove_hook_from_submodules


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.second = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.norm(self.first(x)))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(5, 4)
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.words(ids)))


HALF: dict[str, Any] = {"first": "cpu", "norm": "cpu", "second": "disk"}


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model().eval()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(2, 3)


def test_cpu_offload(model: Model, x: torch.Tensor) -> None:
    parameters, expected = dict(model.named_parameters()), model(x)
    assert cpu_offload(model) is model
    assert all(parameter.is_meta for parameter in model.parameters())
    assert model.norm.running_mean.device.type == "cpu"
    for twin in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(x), expected)
    remove_hook_from_submodules(model)
    assert all(parameter is parameters[name] for name, parameter in model.named_parameters())


def test_offloaded_models_compile() -> None:
    model, x = nn.Sequential(*[nn.Linear(3, 3) for _ in range(4)]), torch.randn(2, 3)
    with torch.no_grad():
        expected = model(x)
        compiled = torch.compile(cpu_offload(model), backend="eager")
        for _ in range(3):
            assert torch.equal(compiled(x), expected)


def test_cpu_offload_of_buffers_and_of_given_weights(model: Model, x: torch.Tensor) -> None:
    zeros = {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    cpu_offload(model, "cpu", offload_buffers=True, state_dict=zeros, preload_module_classes=["Model"])
    assert all(tensor.is_meta for tensor in model.state_dict().values())
    assert not model(x).any()


def test_disk_offload(model: Model, x: torch.Tensor, tmp_path: Path) -> None:
    expected = model(x)
    names = set(model.state_dict())
    assert disk_offload(model, tmp_path) is model
    assert set(json.loads((tmp_path / "index.json").read_text())) == names
    assert torch.equal(model(x), expected)
    index = (tmp_path / "index.json").stat().st_mtime_ns
    other = disk_offload(Model().eval(), tmp_path)
    assert (tmp_path / "index.json").stat().st_mtime_ns == index
    assert torch.equal(other(x), expected)


def test_one_device_needs_no_hooks(model: Model, x: torch.Tensor) -> None:
    device_map: dict[str, Any] = {"": "cpu"}
    assert dispatch_model(model, device_map) is model
    assert model.hf_device_map == device_map
    assert model.hf_device_map is not device_map
    assert "_hf_hook" not in vars(model)
    dispatch_model(model, device_map, force_hooks=True)
    assert model._hf_hook.io_same_device
    assert next(model.parameters()).device.type == "cpu"


def test_some_on_disk(
    model: Model, x: torch.Tensor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = model(x)
    with caplog.at_level(logging.WARNING):
        dispatch_model(model, HALF, offload_dir=tmp_path)
    assert caplog.messages == [
        "Some parameters are on the meta device because they were offloaded to the disk."
    ]
    assert set(json.loads((tmp_path / "index.json").read_text())) == {"second.weight", "second.bias"}
    assert [parameter.is_meta for parameter in model.parameters()] == [False] * 4 + [True] * 2
    assert torch.equal(model(x), expected)
    with pytest.raises(RuntimeError, match="You can't move a model that has some modules offloaded"):
        model.to("cpu")
    remove_hook_from_submodules(model)
    assert torch.equal(model.to("cpu")(x), expected)


@pytest.mark.parametrize("force_hooks", [False, True])
def test_all_on_disk(model: Model, x: torch.Tensor, tmp_path: Path, force_hooks: bool) -> None:
    expected = model(x)
    dispatch_model(model, {"": "disk"}, offload_dir=tmp_path, force_hooks=force_hooks)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert torch.equal(model(x), expected)


def test_weights_in_a_safetensors_file(model: Model, x: torch.Tensor, tmp_path: Path) -> None:
    expected = model(x)
    save_file(dict(model.second.state_dict()), tmp_path / "part.safetensors")
    index = {
        f"second.{name}": {
            "safetensors_file": str(tmp_path / "part.safetensors"),
            "weight_name": name,
            "dtype": "float32",
        }
        for name in ("weight", "bias")
    }
    model.second.to("meta")
    dispatch_model(model, HALF, offload_index=index)
    assert torch.equal(model(x), expected)
    assert model.second._hf_hook.original_devices == {
        "weight": torch.device("meta"),
        "bias": torch.device("meta"),
    }
    assert model.second._hf_hook.weights_map.dataset.index is index
    remove_hook_from_submodules(model)
    assert model.second.weight.is_meta  # they have never been anywhere but in the file
    assert [path.name for path in tmp_path.iterdir()] == ["part.safetensors"]


def test_a_device_that_is_not_the_cpu_takes_the_weights_of_cpu_modules_away(model: Model) -> None:
    dispatch_model(model, {"first": "meta", "norm": "cpu", "second": "cpu"})
    assert all(parameter.is_meta for parameter in model.parameters())
    assert model.second._hf_hook.weights_map["weight"].device.type == "cpu"
    assert model.second._hf_hook.execution_device == "meta"
    assert model.norm.running_mean.is_meta


@pytest.mark.parametrize("head", ["cpu", "disk"])
def test_tied_weights_stay_tied(tmp_path: Path, head: str) -> None:
    model, ids = Tied(), torch.tensor([1, 3])
    expected = model(ids)
    device_map: dict[str, Any] = {"words": "cpu", "body": "disk", "head": head}
    dispatch_model(model, device_map, offload_dir=tmp_path)
    for _ in range(2):
        assert torch.equal(model(ids), expected)
        assert model.head.weight is model.words.weight
    assert not model.head.weight.is_meta


def test_what_is_resident_learns_and_what_is_not_says_so(
    model: Model, x: torch.Tensor, tmp_path: Path
) -> None:
    resident = copy.deepcopy(model)
    dispatch_model(model, HALF, offload_dir=tmp_path)
    with pytest.raises(RuntimeError, match="is offloaded"):
        model(x).sum().backward()
    model.second.requires_grad_(False)
    model.zero_grad()
    for one in (model, resident):
        one(x).square().sum().backward()
    assert torch.equal(model.first.weight.grad, resident.first.weight.grad)


def test_maps_that_do_not_fit(model: Model, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"any device for the following parameters: norm\.weight, norm\.bias"
    ):
        dispatch_model(model, {"first": "cpu"})
    with pytest.raises(ValueError, match=r"We need an `offload_dir`.*need to be offloaded: second"):
        dispatch_model(model, HALF)
    with pytest.warns(UserWarning, match=r"do not match any submodules in the model: \['third'\]"):
        dispatch_model(model, {"": "cpu", "third": "cpu"})
    empty = Model().to("meta")
    with pytest.raises(ValueError, match=r"have no values: second\.weight, second\.bias"):
        dispatch_model(empty, HALF, offload_dir=tmp_path)
    with pytest.raises(ValueError, match=r"have no values: first\.weight"):
        disk_offload(empty, tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match=r"remove the hooks of a model that is offloaded already"):
        cpu_offload(cpu_offload(model))
    with pytest.raises(ValueError, match=r"have no values: norm\.weight"):
        dispatch_model(empty, {"first": "meta", "norm": "cpu", "second": "meta"})


def test_clients_replace_the_check(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(big_modeling, "check_device_map", lambda *_: None)
    dispatch_model(model, {"first": "cpu"}, force_hooks=True)
    assert model.hf_device_map == {"first": "cpu"}


def test_a_model_in_eight_bits_is_not_moved(model: Model) -> None:
    model.is_loaded_in_8bit = True  # type: ignore[assignment]
    dispatch_model(model, {"": "cpu"})
    assert "_hf_hook" in vars(model)


def test_a_client_merges_weights_into_an_offloaded_layer(
    model: Model, x: torch.Tensor, tmp_path: Path
) -> None:
    """Call the hook by hand and replace its map, as peft does to merge an adapter into a layer on disk."""
    expected = model(x) + 1
    dispatch_model(model, HALF, offload_dir=tmp_path)
    layer, hook = model.second, model.second._hf_hook
    assert isinstance(hook, AlignDevicesHook)
    assert list(hook.weights_map.dataset) == ["second.weight", "second.bias"]
    hook.pre_forward(layer)
    layer.bias.data += 1
    hook.weights_map = {name: tensor.to("cpu") for name, tensor in named_module_tensors(layer)}
    hook.post_forward(layer, torch.tensor([]))
    assert layer.bias.is_meta
    assert torch.allclose(model(x), expected)
    names = [name for name in inspect.signature(AlignDevicesHook.__init__).parameters if name != "self"]
    twin = AlignDevicesHook(**{name: getattr(hook, name) for name in names})
    remove_hook_from_submodules(model)
    add_hook_to_module(layer, twin)
    assert torch.allclose(model(x), expected)
