import pytest

from accelerate.checkpoint import naming


@pytest.mark.parametrize(
    ("name", "zeroth", "second"),
    [
        (naming.optimizer, "optimizer.bin", "optimizer_2.bin"),
        (naming.scheduler, "scheduler.bin", "scheduler_2.bin"),
        (naming.sampler, "sampler.bin", "sampler_2.bin"),
        (naming.loader, "dl_state_dict.bin", "dl_state_dict_2.bin"),
        (naming.custom_object, "custom_checkpoint_0.pkl", "custom_checkpoint_2.pkl"),
        (naming.random_states, "random_states_0.pkl", "random_states_2.pkl"),
    ],
)
def test_only_custom_objects_and_ranks_are_numbered_from_zero(name, zeroth, second):
    assert (name(0), name(2)) == (zeroth, second)


def test_weights_in_both_formats():
    assert [naming.weights(index, safe_serialization=True) for index in range(2)] == [
        "model.safetensors",
        "model_1.safetensors",
    ]
    assert [naming.weights(index, safe_serialization=False) for index in range(2)] == [
        "pytorch_model.bin",
        "pytorch_model_1.bin",
    ]
    assert naming.scaler() == "scaler.pt"


def test_shards_and_their_index():
    assert naming.SAFE_WEIGHTS.index == "model.safetensors.index.json"
    assert naming.UNSAFE_WEIGHTS.index == "pytorch_model.bin.index.json"
    assert (
        naming.SAFE_WEIGHTS.shard_pattern.format(suffix="-00001-of-00002")
        == "model-00001-of-00002.safetensors"
    )
    assert naming.SAFE_WEIGHTS.is_shard("model-00001-of-00002.safetensors")


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors",
        "model_1.safetensors",
        "model-1-of-2.safetensors",
        "pytorch_model-00001-of-00002.bin",
        "model-00001-of-00002.safetensors.index.json",
        "my-model-00001-of-00002.safetensors",
    ],
)
def test_other_files_are_no_shards(name):
    assert not naming.SAFE_WEIGHTS.is_shard(name)


def test_checkpoints_are_ordered_by_number_and_strangers_ignored():
    names = [
        "checkpoint_10",
        "foo",
        "checkpoint_9",
        "checkpoint_1x",
        "checkpoint_",
        "old_checkpoint_3",
        "README",
    ]
    assert naming.list_checkpoints(names) == ["checkpoint_9", "checkpoint_10"]
    assert naming.newest_checkpoint(names) == "checkpoint_10"
    assert naming.newest_checkpoint(["foo"]) is None


def test_numbers_are_read_back():
    assert naming.checkpoint_number(naming.checkpoint_folder("project", 12).name) == 12
    assert naming.custom_object_index(naming.custom_object(3)) == 3
    assert naming.random_states_rank(naming.random_states(31)) == 31
    assert naming.custom_object_index("custom_checkpoint_3.bin") is None
    assert naming.random_states_rank("random_states_.pkl") is None


def test_folder_of_automatic_naming():
    assert naming.checkpoint_folder("project", 7).as_posix() == "project/checkpoints/checkpoint_7"
