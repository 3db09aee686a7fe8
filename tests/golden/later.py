"""The surface that later work brings: piece of work -> recorded paths that are absent or incomplete so far.

Read by the surface test, which also fails on an entry that is not needed any more: this list only shrinks. A
module stands for everything in it as long as all of that is absent. What is meant to differ for good is
not here but in docs/differences.yaml.
"""

from collections.abc import Mapping, Sequence

__all__ = ["LATER"]

LATER: Mapping[str, Sequence[str]] = {
    "big models": [
        "accelerate.big_modeling.init_empty_weights",
        "accelerate.big_modeling.init_on_device",
        "accelerate.big_modeling.load_checkpoint_and_dispatch",
        "accelerate.commands.estimate",
        "accelerate.utils.bnb",
        "accelerate.utils.dataclasses.BnbQuantizationConfig",
        "accelerate.utils.modeling.WEIGHTS_INDEX_NAME",
        "accelerate.utils.modeling.align_module_device",
        "accelerate.utils.modeling.calculate_maximum_sizes",
        "accelerate.utils.modeling.check_device_map",
        "accelerate.utils.modeling.check_device_same",
        "accelerate.utils.modeling.check_tied_parameters_in_config",
        "accelerate.utils.modeling.check_tied_parameters_on_same_device",
        "accelerate.utils.modeling.clean_device_map",
        "accelerate.utils.modeling.compute_module_sizes",
        "accelerate.utils.modeling.compute_module_total_buffer_size",
        "accelerate.utils.modeling.convert_file_size_to_int",
        "accelerate.utils.modeling.dtype_byte_size",
        "accelerate.utils.modeling.fallback_allocate",
        "accelerate.utils.modeling.find_tied_parameters",
        "accelerate.utils.modeling.get_balanced_memory",
        "accelerate.utils.modeling.get_max_layer_size",
        "accelerate.utils.modeling.get_max_memory",
        "accelerate.utils.modeling.get_module_leaves",
        "accelerate.utils.modeling.get_module_size_with_ties",
        "accelerate.utils.modeling.get_non_persistent_buffers",
        "accelerate.utils.modeling.get_state_dict_from_offload",
        "accelerate.utils.modeling.get_state_dict_offloaded_model",
        "accelerate.utils.modeling.has_offloaded_params",
        "accelerate.utils.modeling.id_tensor_storage",
        "accelerate.utils.modeling.infer_auto_device_map",
        "accelerate.utils.modeling.load_checkpoint_in_model",
        "accelerate.utils.modeling.load_offloaded_weights",
        "accelerate.utils.modeling.load_state_dict",
        "accelerate.utils.modeling.named_module_tensors",
        "accelerate.utils.modeling.retie_parameters",
        "accelerate.utils.modeling.set_module_tensor_to_device",
        "accelerate.utils.offload",
    ],
    "FSDP": [
        "accelerate.commands.merge",
        "accelerate.commands.to_fsdp2",
        "accelerate.state.AcceleratorState.fsdp_plugin",
        "accelerate.utils.fsdp_utils",
    ],
    "axes": [
        "accelerate.parallelism_config",
        "accelerate.utils.dataclasses.TorchContextParallelConfig",
        "accelerate.utils.dataclasses.TorchTensorParallelConfig",
        "accelerate.utils.dataclasses.TorchTensorParallelPlugin",
    ],
    "DeepSpeed": [
        "accelerate.accelerator.Accelerator.deepspeed_config",
        "accelerate.accelerator.Accelerator.deepspeed_engine_wrapped",
        "accelerate.state.AcceleratorState.get_deepspeed_plugin",
        "accelerate.state.AcceleratorState.select_deepspeed_plugin",
        "accelerate.utils.dataclasses.DeepSpeedPlugin",
        "accelerate.utils.dataclasses.DeepSpeedSequenceParallelConfig",
        "accelerate.utils.deepspeed",
        "accelerate.utils.operations.GatheredParameters",
    ],
    "Megatron": [
        "accelerate.state.AcceleratorState.megatron_lm_plugin",
        "accelerate.utils.dataclasses.MODEL_CONFIGS_TO_MEGATRON_PARSERS",
        "accelerate.utils.dataclasses.MegatronLMPlugin",
        "accelerate.utils.dataclasses.add_model_config_to_megatron_parser",
        "accelerate.utils.dataclasses.parse_bert_config",
        "accelerate.utils.dataclasses.parse_glm4_moe_config",
        "accelerate.utils.dataclasses.parse_gpt2_config",
        "accelerate.utils.dataclasses.parse_llama_config",
        "accelerate.utils.dataclasses.parse_t5_config",
        "accelerate.utils.megatron_lm",
    ],
    "fp8": [
        "accelerate.utils.ao",
        "accelerate.utils.dataclasses.AORecipeKwargs",
        "accelerate.utils.dataclasses.AmaxComputeAlgorithm",
        "accelerate.utils.dataclasses.Backend",
        "accelerate.utils.dataclasses.FP8Format",
        "accelerate.utils.dataclasses.FP8RecipeKwargs",
        "accelerate.utils.dataclasses.MSAMPRecipeKwargs",
        "accelerate.utils.dataclasses.OptLevel",
        "accelerate.utils.dataclasses.TERecipeKwargs",
        "accelerate.utils.transformer_engine",
    ],
    "trackers": [
        "accelerate.accelerator.Accelerator.get_tracker",
        "accelerate.accelerator.Accelerator.init_trackers",
        "accelerate.accelerator.Accelerator.log",
        "accelerate.tracking",
    ],
    "inference": [
        "accelerate.inference",
    ],
    "training recipes": [
        "accelerate.local_sgd",
    ],
    "XLA": [
        "accelerate.state.AcceleratorState.downcast_bfloat",
    ],
}
