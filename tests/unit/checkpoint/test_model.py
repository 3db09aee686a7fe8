import json
import logging

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from accelerate.checkpoint import files
from accelerate.checkpoint.model import load_weights, plan_shards, read_weights, save_model
from accelerate.errors import CheckpointError, ConfigurationError, MissingCheckpointFileError

LAYER = 20 * 4  # bytes of a Linear(4, 4)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(4, 3)
        self.head = nn.Linear(3, 4, bias=False)
        self.head.weight = self.embed.weight


def layers(num=4):
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(num)))


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_plan_is_in_the_order_of_the_state_dict():
    plan = plan_shards(layers(3).state_dict(), 2 * LAYER, safe=True)
    assert dict(plan.shards) == {
        "model-00001-of-00002.safetensors": ["0.weight", "0.bias", "1.weight", "1.bias"],
        "model-00002-of-00002.safetensors": ["2.weight", "2.bias"],
    }
    name, text = plan.index
    assert name == "model.safetensors.index.json"
    assert json.loads(text)["metadata"] == {"total_size": 3 * LAYER}
    assert text.endswith("}\n")


def test_a_tensor_bigger_than_the_limit_is_alone_in_its_shard():
    state = {"small": torch.ones(1), "big": torch.ones(100), "other": torch.ones(1)}
    plan = plan_shards(state, 8, safe=False)
    assert ["big"] in plan.shards.values()


@pytest.mark.parametrize(("safe", "name"), [(True, "model.safetensors"), (False, "pytorch_model.bin")])
def test_one_file_when_it_fits(tmp_path, safe, name):
    model = layers()
    save_model(model.state_dict(), tmp_path / "new" / "folder", safe_serialization=safe)
    folder = tmp_path / "new" / "folder"
    assert names_in(folder) == [name]
    state = load_file(folder / name) if safe else files.load(folder / name)
    assert set(state) == set(model.state_dict())
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())


@pytest.mark.parametrize("safe", [True, False])
def test_shards_hold_the_model_and_the_index_says_where(tmp_path, safe):
    model = layers()
    save_model(model.state_dict(), tmp_path, LAYER, safe)
    stem, extension = ("model", ".safetensors") if safe else ("pytorch_model", ".bin")
    index = json.loads((tmp_path / f"{stem}{extension}.index.json").read_text())
    shards = [f"{stem}-0000{number}-of-00004{extension}" for number in range(1, 5)]
    assert sorted(set(index["weight_map"].values())) == shards
    assert names_in(tmp_path) == sorted([*shards, f"{stem}{extension}.index.json"])
    for name, shard in index["weight_map"].items():
        state = load_file(tmp_path / shard) if safe else files.load(tmp_path / shard)
        assert torch.equal(state[name], model.state_dict()[name])


def test_shards_of_an_earlier_save_go_and_other_files_stay(tmp_path):
    for name in ("model_1.safetensors", "pytorch_model-00001-of-00002.bin", "config.json"):
        (tmp_path / name).write_text("mine")
    save_model(layers(4).state_dict(), tmp_path, LAYER)
    save_model(layers(3).state_dict(), tmp_path, LAYER)
    mine = ["config.json", "model_1.safetensors", "pytorch_model-00001-of-00002.bin"]
    shards = [f"model-0000{number}-of-00003.safetensors" for number in range(1, 4)]
    assert names_in(tmp_path) == sorted([*mine, *shards, "model.safetensors.index.json"])
    save_model(layers(3).state_dict(), tmp_path)
    assert names_in(tmp_path) == sorted([*mine, "model.safetensors"])


def test_a_single_file_that_hides_new_shards_is_warned_about(tmp_path, caplog):
    save_model(layers().state_dict(), tmp_path)
    with caplog.at_level(logging.WARNING):
        save_model(layers().state_dict(), tmp_path, LAYER)
    assert "model.safetensors of an earlier save" in caplog.text


def test_tied_weights_are_written_once_and_come_back(tmp_path):
    model, other = Tied(), Tied()
    save_model(model.state_dict(), tmp_path)
    assert list(load_file(tmp_path / "model.safetensors")) == ["embed.weight"]
    load_weights(other, read_weights(tmp_path, 0))
    assert torch.equal(other.head.weight, model.embed.weight)
    assert other.head.weight is other.embed.weight


def test_a_model_without_the_tie_misses_the_name(tmp_path):
    save_model(Tied().state_dict(), tmp_path)
    untied = nn.ModuleDict({"embed": nn.Embedding(4, 3), "head": nn.Linear(3, 4, bias=False)})
    with pytest.raises(RuntimeError, match=r"Missing key.*head\.weight"):
        load_weights(untied, read_weights(tmp_path, 0))
    assert load_weights(untied, read_weights(tmp_path, 0), strict=False).missing_keys == ["head.weight"]


def test_extra_state_goes_with_a_pickle_and_is_refused_by_safetensors(tmp_path):
    state = {**layers().state_dict(), "_extra_state": {"scale": 2}}
    save_model(state, tmp_path, LAYER, False)
    index = json.loads((tmp_path / "pytorch_model.bin.index.json").read_text())
    assert files.load(tmp_path / index["weight_map"]["_extra_state"])["_extra_state"] == {"scale": 2}
    with pytest.raises(TypeError, match=r"'_extra_state' is a dict.*safe_serialization=False"):
        save_model(state, tmp_path)


def test_parameters_on_meta_are_refused(tmp_path):
    with torch.device("meta"):
        model = nn.Linear(2, 2)
    with pytest.raises(
        CheckpointError, match=r"You can't save the model since some parameters are on the meta device."
    ):
        save_model(model.state_dict(), tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(
        ConfigurationError, match=r"save_directory='.*file'\): the path should be a directory"
    ):
        save_model(layers().state_dict(), tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_only_the_main_process_writes(tmp_path, monkeypatch):
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    save_model(layers().state_dict(), tmp_path / "folder")
    save_model(None, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_safetensors_are_preferred_and_neither_is_an_error(tmp_path):
    files.write_file({"a": torch.zeros(1)}, tmp_path / "pytorch_model_1.bin")
    assert read_weights(tmp_path, 1)["a"] == 0
    files.write_file({"a": torch.ones(1)}, tmp_path / "model_1.safetensors", safe_serialization=True)
    assert read_weights(tmp_path, 1)["a"] == 1
    with pytest.raises(MissingCheckpointFileError, match=r"pytorch_model\.bin does not exist"):
        read_weights(tmp_path, 0)


def test_a_wrong_shape_is_torchs_error(tmp_path):
    save_model(nn.Linear(2, 2).state_dict(), tmp_path)
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        load_weights(nn.Linear(3, 2), read_weights(tmp_path, 0))
