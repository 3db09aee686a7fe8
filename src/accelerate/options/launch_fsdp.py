"""What `accelerate launch` can be told about FSDP. A part of LaunchPlan (options/launch.py)."""

from dataclasses import dataclass

from accelerate.options.field import option

__all__ = ["FSDPLaunch"]

_GROUP = "FSDP Arguments"
_SECTION = "fsdp_config."
_TRUTH = ("true", "false")
_STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class FSDPLaunch:
    """Options of fully sharded data parallelism; what is a truth value travels as the text true or false."""

    fsdp_version: str = option(
        "1",
        flag="--fsdp_version",
        env="FSDP_VERSION",
        key=_SECTION + "fsdp_version",
        group=_GROUP,
        choices=("1", "2"),
        question="Which version of FSDP?",
        help="Version of FSDP. Default: 2, or 1 where something is asked for that only version 1 has.",
    )
    fsdp_offload_params: str = option(
        "false",
        flag="--fsdp_offload_params",
        env="FSDP_OFFLOAD_PARAMS",
        key=_SECTION + "fsdp_offload_params",
        group=_GROUP,
        values=_TRUTH,
        question="Keep parameters and gradients in CPU memory while they are not used?",
        help="true: parameters and gradients wait in CPU memory while they are not used.",
    )
    fsdp_min_num_params: int = option(
        100_000_000,
        flag="--fsdp_min_num_params",
        env="FSDP_MIN_NUM_PARAMS",
        key=_SECTION + "fsdp_min_num_params",
        group=_GROUP,
        question="How many parameters must a module have to be sharded on its own?",
        help="SIZE_BASED_WRAP: parameters that a module must have to be sharded on its own.",
    )
    fsdp_sharding_strategy: str = option(
        "FULL_SHARD",
        flag="--fsdp_sharding_strategy",
        env="FSDP_SHARDING_STRATEGY",
        key=_SECTION + "fsdp_sharding_strategy",
        group=_GROUP,
        values=(*_STRATEGIES, "1", "2", "3", "4", "5"),
        question="What shall be sharded?",
        help="Version 1: what is sharded, FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or "
        "HYBRID_SHARD_ZERO2.",
    )
    fsdp_reshard_after_forward: str = option(
        "true",
        flag="--fsdp_reshard_after_forward",
        env="FSDP_RESHARD_AFTER_FORWARD",
        key=_SECTION + "fsdp_reshard_after_forward",
        group=_GROUP,
        values=(*_TRUTH, *_STRATEGIES),
        question="Free gathered parameters after the forward pass (saves memory)?",
        help="Version 2: true frees gathered parameters after the forward pass, false keeps them for the "
        "backward pass. Version 1: a sharding strategy.",
    )
    fsdp_auto_wrap_policy: str | None = option(
        None,
        flag="--fsdp_auto_wrap_policy",
        env="FSDP_AUTO_WRAP_POLICY",
        key=_SECTION + "fsdp_auto_wrap_policy",
        group=_GROUP,
        values=("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"),
        type=str,
        question="Which modules shall be sharded on their own?",
        help="Which modules are sharded on their own: TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP.",
    )
    fsdp_transformer_layer_cls_to_wrap: str | None = option(
        None,
        flag="--fsdp_transformer_layer_cls_to_wrap",
        env="FSDP_TRANSFORMER_CLS_TO_WRAP",
        key=_SECTION + "fsdp_transformer_layer_cls_to_wrap",
        group=_GROUP,
        type=str,
        question="Class names of the blocks, separated by commas, as in BertLayer,T5Block?",
        help="TRANSFORMER_BASED_WRAP: class names of the blocks, separated by commas. Default: what the "
        "model names in _no_split_modules.",
    )
    fsdp_backward_prefetch: str | None = option(
        None,
        flag="--fsdp_backward_prefetch",
        env="FSDP_BACKWARD_PREFETCH",
        key=_SECTION + "fsdp_backward_prefetch",
        group=_GROUP,
        values=("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH", "1", "2"),
        type=str,
        question="When shall the next parameters be gathered in the backward pass?",
        help="Version 1: when the next parameters are gathered in the backward pass, BACKWARD_PRE, "
        "BACKWARD_POST or NO_PREFETCH.",
    )
    fsdp_state_dict_type: str | None = option(
        None,
        flag="--fsdp_state_dict_type",
        env="FSDP_STATE_DICT_TYPE",
        key=_SECTION + "fsdp_state_dict_type",
        group=_GROUP,
        values=("FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT", "1", "2", "3"),
        type=str,
        question="In which form shall weights be saved?",
        help="Form of saved weights: FULL_STATE_DICT, SHARDED_STATE_DICT or, in version 1, LOCAL_STATE_DICT.",
    )
    fsdp_forward_prefetch: str = option(
        "false",
        flag="--fsdp_forward_prefetch",
        env="FSDP_FORWARD_PREFETCH",
        key=_SECTION + "fsdp_forward_prefetch",
        group=_GROUP,
        values=_TRUTH,
        question="Gather the next parameters during the forward pass already?",
        help="Version 1: true gathers the next parameters during the forward pass already.",
    )
    fsdp_use_orig_params: str = option(
        "true",
        flag="--fsdp_use_orig_params",
        env="FSDP_USE_ORIG_PARAMS",
        key=_SECTION + "fsdp_use_orig_params",
        group=_GROUP,
        values=_TRUTH,
        question="Shall the optimizer see the model's own parameters (not flattened ones)?",
        help="Version 1: true shows the optimizer the model's own parameters, not flattened ones.",
    )
    fsdp_cpu_ram_efficient_loading: str = option(
        "true",
        flag="--fsdp_cpu_ram_efficient_loading",
        env="FSDP_CPU_RAM_EFFICIENT_LOADING",
        key=_SECTION + "fsdp_cpu_ram_efficient_loading",
        group=_GROUP,
        values=_TRUTH,
        question="Shall only rank 0 read pretrained weights (saves CPU memory)?",
        help="true: only rank 0 reads pretrained weights, and sends the others their shards.",
    )
    fsdp_sync_module_states: str = option(
        "true",
        flag="--fsdp_sync_module_states",
        env="FSDP_SYNC_MODULE_STATES",
        key=_SECTION + "fsdp_sync_module_states",
        group=_GROUP,
        values=_TRUTH,
        question="Send rank 0's weights to all ranks when the model is wrapped?",
        help="Version 1: true sends rank 0's weights to all ranks when the model is wrapped.",
    )
    fsdp_activation_checkpointing: str = option(
        "false",
        flag="--fsdp_activation_checkpointing",
        env="FSDP_ACTIVATION_CHECKPOINTING",
        key=_SECTION + "fsdp_activation_checkpointing",
        group=_GROUP,
        values=_TRUTH,
        question="Compute activations again in the backward pass (saves memory)?",
        help="true: activations are computed again in the backward pass instead of kept.",
    )
    fsdp_activation_checkpointing_offload: str = option(
        "false",
        flag="--fsdp_activation_checkpointing_offload",
        env="FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD",
        key=_SECTION + "fsdp_activation_checkpointing_offload",
        group=_GROUP,
        values=_TRUTH,
        help="true: what activation checkpointing keeps waits in CPU memory.",
    )
    fsdp_ignored_modules: str | None = option(
        None,
        env="FSDP_IGNORED_MODULES",
        key=_SECTION + "fsdp_ignored_modules",
        type=str,
        help="Pattern of the names of modules that are not sharded. In the configuration file only.",
    )
