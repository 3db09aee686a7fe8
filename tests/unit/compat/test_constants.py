import subprocess
import sys

import pytest

from accelerate.compat import constants
from accelerate.options.enums import DistributedType


def test_file_names_of_the_checkpoint_format() -> None:
    names = {name: value for name, value in vars(constants).items() if name.endswith("_NAME")}
    assert names == {
        "MODEL_NAME": "pytorch_model",
        "SAFE_MODEL_NAME": "model",
        "FSDP_MODEL_NAME": "pytorch_model_fsdp",
        "WEIGHTS_NAME": "pytorch_model.bin",
        "WEIGHTS_PATTERN_NAME": "pytorch_model{suffix}.bin",
        "WEIGHTS_INDEX_NAME": "pytorch_model.bin.index.json",
        "SAFE_WEIGHTS_NAME": "model.safetensors",
        "SAFE_WEIGHTS_PATTERN_NAME": "model{suffix}.safetensors",
        "SAFE_WEIGHTS_INDEX_NAME": "model.safetensors.index.json",
        "OPTIMIZER_NAME": "optimizer",
        "SCHEDULER_NAME": "scheduler",
        "SAMPLER_NAME": "sampler",
        "SCALER_NAME": "scaler.pt",
        "RNG_STATE_NAME": "random_states",
        "PROFILE_PATTERN_NAME": "profile_{suffix}.json",
    }


def test_lists_that_digits_index_keep_their_order() -> None:
    assert constants.FSDP_SHARDING_STRATEGY == [
        "FULL_SHARD",
        "SHARD_GRAD_OP",
        "NO_SHARD",
        "HYBRID_SHARD",
        "HYBRID_SHARD_ZERO2",
    ]
    assert constants.FSDP_BACKWARD_PREFETCH == ["BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"]
    assert constants.FSDP_STATE_DICT_TYPE == ["FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"]
    assert constants.FSDP2_STATE_DICT_TYPE == ["SHARDED_STATE_DICT", "FULL_STATE_DICT"]


def test_distributed_types_are_members_but_for_the_old_name() -> None:
    types = constants.TORCH_DISTRIBUTED_OPERATION_TYPES
    assert types[:5] == constants.CUDA_DISTRIBUTED_TYPES
    values = {member.value for member in DistributedType}
    assert set(types) - values == {"TP"}
    assert values - set(types) == {"NO", "XLA"}


def test_only_the_layers_need_torch() -> None:
    program = (
        "import sys\n"
        "from accelerate.compat import constants\n"
        "constants.TORCH_LAUNCH_PARAMS\n"
        "assert 'torch' not in sys.modules\n"
        "layers = constants.SUPPORTED_PYTORCH_LAYERS_FOR_UPCASTING\n"
        "assert [layer.__name__ for layer in layers] == ['Conv1d', 'Conv2d', 'Conv3d', 'ConvTranspose1d', "
        "'ConvTranspose2d', 'ConvTranspose3d', 'Linear']\n"
        "assert constants.SUPPORTED_PYTORCH_LAYERS_FOR_UPCASTING is layers\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_other_names_are_unknown() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'NOPE'"):
        _ = constants.NOPE  # type: ignore[attr-defined]
