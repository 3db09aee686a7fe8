"""The questions about engines: a section of the configuration file each. Called by cluster.py."""

from collections.abc import Iterable
from typing import Any

from accelerate.commands.config.interview import Interview, whole_number

__all__ = ["ask_deepspeed", "ask_fp8", "ask_fsdp", "ask_megatron", "ask_parallelism"]


def _ask_all(ask: Interview, names: Iterable[str]) -> dict[str, Any]:
    return {name: ask.option(name) for name in names}


def ask_deepspeed(ask: Interview, num_machines: int) -> dict[str, Any]:
    """Return the section about DeepSpeed."""
    section: dict[str, Any] = {}
    if ask.confirm("Is there a JSON file of DeepSpeed's?"):
        section["deepspeed_config_file"] = ask.option("deepspeed_config_file")
    else:
        section |= _ask_zero(ask)
    section["zero3_init_flag"] = ask.option("zero3_init_flag", section.get("zero_stage") == 3)
    if ask.confirm("Has the model mixture-of-experts layers?"):
        section["deepspeed_moe_layer_cls_names"] = ask.option("deepspeed_moe_layer_cls_names")
    if num_machines > 1:
        section |= _ask_hosts(ask)
    return section


def _ask_zero(ask: Interview) -> dict[str, Any]:
    section: dict[str, Any] = {"zero_stage": ask.option("zero_stage", 2)}
    if section["zero_stage"] >= 2:
        for part in ("optimizer", "param"):
            device = ask.option(f"offload_{part}_device", "none")
            section[f"offload_{part}_device"] = device
            if device == "nvme":
                section[f"offload_{part}_nvme_path"] = ask.option(f"offload_{part}_nvme_path", "/nvme")
    section["gradient_accumulation_steps"] = ask.option("gradient_accumulation_steps", 1)
    if ask.confirm("Clip gradients?"):
        section["gradient_clipping"] = ask.option("gradient_clipping", 1.0)
    if section["zero_stage"] == 3:
        section["zero3_save_16bit_model"] = ask.option("zero3_save_16bit_model")
    return section


def _ask_hosts(ask: Interview) -> dict[str, Any]:
    section = {"deepspeed_multinode_launcher": ask.option("deepspeed_multinode_launcher", "pdsh")}
    if section["deepspeed_multinode_launcher"] == "standard":
        return section
    section["deepspeed_hostfile"] = ask.option("deepspeed_hostfile")
    if ask.confirm("Leave machines of the list out?"):
        section["deepspeed_exclusion_filter"] = ask.option("deepspeed_exclusion_filter")
    elif ask.confirm("Use only some machines of the list?"):
        section["deepspeed_inclusion_filter"] = ask.option("deepspeed_inclusion_filter")
    return section


def ask_fsdp(ask: Interview) -> dict[str, Any]:
    """Return the section about FSDP; what only version 1 has is asked for version 1 only."""
    version = int(ask.option("fsdp_version", "2"))
    section: dict[str, Any] = {"fsdp_version": version}
    # The interface keeps the strategy of version 1 under this key too.
    section["fsdp_reshard_after_forward"] = (
        ask.confirm("Free gathered parameters after the forward pass (saves memory)?", default=True)
        if version == 2
        else ask.option("fsdp_sharding_strategy")
    )
    section["fsdp_offload_params"] = ask.option("fsdp_offload_params")
    section |= _ask_wrapping(ask)
    if version == 1:
        section["fsdp_backward_prefetch"] = ask.option("fsdp_backward_prefetch")
    forms = ["FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"]
    if version == 2:
        forms = ["SHARDED_STATE_DICT", "FULL_STATE_DICT"]
    section["fsdp_state_dict_type"] = ask.choose("In which form shall weights be saved?", forms, forms[0])
    if version == 1:
        section |= _ask_all(ask, ("fsdp_forward_prefetch", "fsdp_use_orig_params"))
    section["fsdp_cpu_ram_efficient_loading"] = ask.option("fsdp_cpu_ram_efficient_loading")
    if version == 1:
        # Ranks that read no weights need them from rank 0.
        efficient = section["fsdp_cpu_ram_efficient_loading"]
        section["fsdp_sync_module_states"] = efficient or ask.option("fsdp_sync_module_states")
    section["fsdp_activation_checkpointing"] = ask.option("fsdp_activation_checkpointing")
    return section


def _ask_wrapping(ask: Interview) -> dict[str, Any]:
    section = {"fsdp_auto_wrap_policy": ask.option("fsdp_auto_wrap_policy")}
    if section["fsdp_auto_wrap_policy"] == "TRANSFORMER_BASED_WRAP":
        if not ask.confirm("Take the blocks that the model names in _no_split_modules (transformers)?"):
            section["fsdp_transformer_layer_cls_to_wrap"] = ask.option("fsdp_transformer_layer_cls_to_wrap")
    elif section["fsdp_auto_wrap_policy"] == "SIZE_BASED_WRAP":
        section["fsdp_min_num_params"] = ask.option("fsdp_min_num_params")
    return section


def ask_parallelism(ask: Interview) -> dict[str, Any]:
    """Return the section about axes of parallelism; empty where only data is parallel."""
    if not ask.confirm("Combine axes of parallelism (replicas, shards, tensor, context)?"):
        return {}
    section = {}
    for axis in ("dp_replicate", "dp_shard", "tp", "cp"):
        name = f"parallelism_config_{axis}_size"
        section[name] = ask.option(name)
    if section["parallelism_config_cp_size"] > 1:
        name = "parallelism_config_cp_comm_strategy"
        section[name] = ask.option(name)
    return section


def ask_megatron(ask: Interview) -> dict[str, Any]:
    """Return the section about Megatron-LM."""
    section: dict[str, Any] = {"tp_degree": ask.option("megatron_lm_tp_degree")}
    if section["tp_degree"] > 1:
        section["sequence_parallelism"] = ask.option("megatron_lm_sequence_parallelism", True)
    section["pp_degree"] = ask.option("megatron_lm_pp_degree")
    if section["pp_degree"] > 1:
        section["num_micro_batches"] = ask.text("How many micro-batches to a step?", "1", whole_number(1))
    section["recompute_activations"] = ask.option("megatron_lm_recompute_activations", True)
    section["use_distributed_optimizer"] = ask.option("megatron_lm_use_distributed_optimizer", True)
    section["gradient_clipping"] = ask.option("megatron_lm_gradient_clipping")
    return {f"megatron_lm_{name}": value for name, value in section.items()}


_RECIPES = {
    "te": (
        "fp8_use_autocast_during_eval",
        "fp8_margin",
        "fp8_interval",
        "fp8_format",
        "fp8_amax_history_len",
        "fp8_amax_compute_algo",
        "fp8_override_linear_precision",
    ),
    "msamp": ("fp8_opt_level",),
    "ao": ("fp8_enable_fsdp_float8_all_gather", "fp8_pad_inner_dim"),
}


def ask_fp8(ask: Interview) -> dict[str, Any]:
    """Return the section about fp8, under the names that reach the plugin."""
    backend = ask.option("fp8_backend", "ao")
    section: dict[str, Any] = {"fp8_backend": backend.upper()}
    for name in _RECIPES[backend]:
        value = ask.option(name, "false,false,false" if name.endswith("_precision") else None)
        section[name] = ",".join(value) if isinstance(value, tuple) else value
    return section
