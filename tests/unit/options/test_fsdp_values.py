import pytest
from torch.distributed.fsdp import ShardingStrategy

from accelerate.options.fsdp_values import member, truth


def test_members_by_name_number_and_themselves():
    for text in ("shard_grad_op", "2", 2, ShardingStrategy.SHARD_GRAD_OP):
        assert member(ShardingStrategy, text, "sharding_strategy") is ShardingStrategy.SHARD_GRAD_OP
    with pytest.raises(ValueError, match="sharding_strategy=9: use one of FULL_SHARD"):
        member(ShardingStrategy, 9, "sharding_strategy")


def test_truth():
    assert [truth(value) for value in (None, True, False, "true", "no")] == [True, True, False, True, False]
