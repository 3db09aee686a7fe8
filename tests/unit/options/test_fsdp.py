import pytest
import torch
from torch import nn
from torch.distributed import fsdp

from accelerate.options.fsdp import FullyShardedDataParallelPlugin as Plugin


def test_version_2_by_default():
    plugin = Plugin()
    assert plugin.fsdp_version == 2
    assert plugin.reshard_after_forward is True
    assert plugin.sharding_strategy is None
    assert plugin.state_dict_type is fsdp.StateDictType.SHARDED_STATE_DICT
    assert isinstance(plugin.cpu_offload, fsdp.OffloadPolicy)


@pytest.mark.parametrize(
    "asked",
    [
        {"sharding_strategy": "SHARD_GRAD_OP"},
        {"use_orig_params": True},
        {"backward_prefetch": "BACKWARD_PRE"},
        {"state_dict_type": "LOCAL_STATE_DICT"},
        {"reshard_after_forward": "FULL_SHARD"},
    ],
)
def test_version_1_where_only_that_has_it(asked):
    plugin = Plugin(**asked)
    assert plugin.fsdp_version == 1
    assert isinstance(plugin.sharding_strategy, fsdp.ShardingStrategy)


def test_environment(monkeypatch):
    for name, value in {
        "FSDP_VERSION": "2",
        "FSDP_RESHARD_AFTER_FORWARD": "false",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_TRANSFORMER_CLS_TO_WRAP": "A, B",
        "FSDP_STATE_DICT_TYPE": "1",
        "FSDP_OFFLOAD_PARAMS": "true",
        "FSDP_USE_ORIG_PARAMS": "true",
    }.items():
        monkeypatch.setenv(name, value)
    plugin = Plugin()
    assert plugin.reshard_after_forward is False
    assert plugin.transformer_cls_names_to_wrap == ["A", "B"]
    assert plugin.state_dict_type is fsdp.StateDictType.FULL_STATE_DICT
    assert isinstance(plugin.cpu_offload, fsdp.CPUOffloadPolicy)
    assert plugin.use_orig_params is None


def test_the_launcher_writes_one_value_for_both_versions(monkeypatch):
    monkeypatch.setenv("FSDP_VERSION", "1")
    monkeypatch.setenv("FSDP_RESHARD_AFTER_FORWARD", "true")
    monkeypatch.setenv("FSDP_SHARDING_STRATEGY", "5")
    assert Plugin().sharding_strategy is fsdp.ShardingStrategy._HYBRID_SHARD_ZERO2


@pytest.mark.parametrize(
    ("arguments", "way_out"),
    [
        ({"fsdp_version": 3}, "use 2, or 1"),
        ({"fsdp_version": 2, "sharding_strategy": "FULL_SHARD"}, "reshard_after_forward=True"),
        ({"fsdp_version": 2, "state_dict_type": "LOCAL_STATE_DICT"}, "SHARDED_STATE_DICT"),
        ({"fsdp_version": 2, "reshard_after_forward": "FULL_SHARD"}, "pass True"),
        ({"fsdp_version": 1, "reshard_after_forward": True}, "name a sharding strategy"),
        ({"sharding_strategy": "ALL"}, "use one of FULL_SHARD"),
        ({"auto_wrap_policy": "nonsense"}, "transformer_based_wrap"),
        ({"mixed_precision_policy": {"dtype": "bf16"}}, "arguments of MixedPrecisionPolicy"),
        ({"mixed_precision_policy": "half"}, "use one of fp16"),
        ({"cpu_offload": "yes"}, "pass True, False"),
    ],
)
def test_errors_name_the_way_out(arguments, way_out):
    with pytest.raises(ValueError, match=way_out):
        Plugin(**arguments)


def test_options_of_version_1_are_warned_about():
    with pytest.warns(UserWarning, match="does not use use_orig_params"):
        plugin = Plugin(fsdp_version=2, use_orig_params=True)
    assert plugin.use_orig_params is None


def test_mixed_precision_of_the_run_gives_way_to_a_policy():
    plugin = Plugin(mixed_precision_policy={"param_dtype": "bf16", "reduce_dtype": "fp32"})
    plugin.set_mixed_precision("fp16")
    assert plugin.mixed_precision_policy == fsdp.MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    plugin.set_mixed_precision("fp16", override=True)
    assert plugin.mixed_precision_policy.param_dtype is torch.float16
    old = Plugin(fsdp_version=1, mixed_precision_policy="bf16")
    assert old.mixed_precision_policy.buffer_dtype is torch.bfloat16


def test_unknown_class_names_those_that_exist():
    plugin = Plugin(auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["Block"])
    with pytest.raises(ValueError, match="has no Block; it has Linear, Sequential"):
        plugin.set_auto_wrap_policy(nn.Sequential(nn.Linear(1, 1)))


def test_loading_rank_0_only_is_told_to_clients(monkeypatch):
    monkeypatch.setenv("FSDP_CPU_RAM_EFFICIENT_LOADING", "false")
    Plugin(cpu_ram_efficient_loading=True)
    assert Plugin().cpu_ram_efficient_loading is True
