# Written by tools/door_stubs.py from the table in __init__.py: change that and run it again.

from accelerate.utils import constants as constants
from accelerate.utils import dataclasses as dataclasses
from accelerate.utils import environment as environment
from accelerate.utils import imports as imports
from accelerate.utils import launch as launch
from accelerate.utils import memory as memory
from accelerate.utils import modeling as modeling
from accelerate.utils import operations as operations
from accelerate.utils import other as other
from accelerate.utils import random as random
from accelerate.utils import rich as rich
from accelerate.utils import torch_xla as torch_xla
from accelerate.utils import versions as versions
from accelerate.checkpoint.files import (
    load as load,
    save as save,
)
from accelerate.checkpoint.shared import (
    clean_state_dict_for_safetensors as clean_state_dict_for_safetensors,
)
from accelerate.commands.config.default import (
    write_basic_config as write_basic_config,
)
from accelerate.compat.colab import (
    install_xla as install_xla,
)
from accelerate.compat.constants import (
    MITA_PROFILING_AVAILABLE_PYTORCH_VERSION as MITA_PROFILING_AVAILABLE_PYTORCH_VERSION,
    MODEL_NAME as MODEL_NAME,
    OPTIMIZER_NAME as OPTIMIZER_NAME,
    PROFILE_PATTERN_NAME as PROFILE_PATTERN_NAME,
    RNG_STATE_NAME as RNG_STATE_NAME,
    SAFE_MODEL_NAME as SAFE_MODEL_NAME,
    SAFE_WEIGHTS_INDEX_NAME as SAFE_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_NAME as SAFE_WEIGHTS_NAME,
    SAFE_WEIGHTS_PATTERN_NAME as SAFE_WEIGHTS_PATTERN_NAME,
    SAMPLER_NAME as SAMPLER_NAME,
    SCALER_NAME as SCALER_NAME,
    SCHEDULER_NAME as SCHEDULER_NAME,
    TORCH_DISTRIBUTED_OPERATION_TYPES as TORCH_DISTRIBUTED_OPERATION_TYPES,
    TORCH_LAUNCH_PARAMS as TORCH_LAUNCH_PARAMS,
    WEIGHTS_INDEX_NAME as WEIGHTS_INDEX_NAME,
    WEIGHTS_NAME as WEIGHTS_NAME,
    WEIGHTS_PATTERN_NAME as WEIGHTS_PATTERN_NAME,
    XPU_PROFILING_AVAILABLE_PYTORCH_VERSION as XPU_PROFILING_AVAILABLE_PYTORCH_VERSION,
)
from accelerate.compat.env import (
    clear_environment as clear_environment,
    get_int_from_env as get_int_from_env,
    parse_choice_from_env as parse_choice_from_env,
    parse_flag_from_env as parse_flag_from_env,
    patch_environment as patch_environment,
    purge_accelerate_environment as purge_accelerate_environment,
    str_to_bool as str_to_bool,
)
from accelerate.compat.orphans import (
    convert_bytes as convert_bytes,
    get_pretty_name as get_pretty_name,
    merge_dicts as merge_dicts,
    recursive_getattr as recursive_getattr,
)
from accelerate.compat.probes import (
    is_4bit_bnb_available as is_4bit_bnb_available,
    is_8bit_bnb_available as is_8bit_bnb_available,
    is_aim_available as is_aim_available,
    is_amdsmi_available as is_amdsmi_available,
    is_bitsandbytes_multi_backend_available as is_bitsandbytes_multi_backend_available,
    is_bnb_available as is_bnb_available,
    is_boto3_available as is_boto3_available,
    is_clearml_available as is_clearml_available,
    is_comet_ml_available as is_comet_ml_available,
    is_datasets_available as is_datasets_available,
    is_deepspeed_available as is_deepspeed_available,
    is_dvclive_available as is_dvclive_available,
    is_import_timer_available as is_import_timer_available,
    is_lomo_available as is_lomo_available,
    is_matplotlib_available as is_matplotlib_available,
    is_megatron_lm_available as is_megatron_lm_available,
    is_mlflow_available as is_mlflow_available,
    is_msamp_available as is_msamp_available,
    is_pandas_available as is_pandas_available,
    is_peft_available as is_peft_available,
    is_pippy_available as is_pippy_available,
    is_pynvml_available as is_pynvml_available,
    is_pytest_available as is_pytest_available,
    is_rich_available as is_rich_available,
    is_sagemaker_available as is_sagemaker_available,
    is_schedulefree_available as is_schedulefree_available,
    is_swanlab_available as is_swanlab_available,
    is_tensorboard_available as is_tensorboard_available,
    is_timm_available as is_timm_available,
    is_torchao_available as is_torchao_available,
    is_torchdata_available as is_torchdata_available,
    is_torchdata_stateful_dataloader_available as is_torchdata_stateful_dataloader_available,
    is_torchvision_available as is_torchvision_available,
    is_trackio_available as is_trackio_available,
    is_transformer_engine_available as is_transformer_engine_available,
    is_transformer_engine_mxfp8_available as is_transformer_engine_mxfp8_available,
    is_transformers_available as is_transformers_available,
    is_triton_available as is_triton_available,
    is_wandb_available as is_wandb_available,
    is_weights_only_available as is_weights_only_available,
    torchao_required as torchao_required,
)
from accelerate.compat.system import (
    are_libraries_initialized as are_libraries_initialized,
    check_cuda_p2p_ib_support as check_cuda_p2p_ib_support,
    check_os_kernel as check_os_kernel,
    convert_dict_to_env_variables as convert_dict_to_env_variables,
    get_cpu_distributed_information as get_cpu_distributed_information,
    get_gpu_info as get_gpu_info,
    is_port_in_use as is_port_in_use,
    set_numa_affinity as set_numa_affinity,
)
from accelerate.compat.versions import (
    compare_versions as compare_versions,
    is_torch_version as is_torch_version,
)
from accelerate.devices.support import (
    check_cuda_fp8_capability as check_cuda_fp8_capability,
    get_current_device_type as get_current_device_type,
    is_bf16_available as is_bf16_available,
    is_cuda_available as is_cuda_available,
    is_fp16_available as is_fp16_available,
    is_fp8_available as is_fp8_available,
    is_habana_gaudi1 as is_habana_gaudi1,
    is_hpu_available as is_hpu_available,
    is_mlu_available as is_mlu_available,
    is_mps_available as is_mps_available,
    is_musa_available as is_musa_available,
    is_neuron_available as is_neuron_available,
    is_npu_available as is_npu_available,
    is_rocm_available as is_rocm_available,
    is_sdaa_available as is_sdaa_available,
    is_torch_xla_available as is_torch_xla_available,
    is_xccl_available as is_xccl_available,
    is_xpu_available as is_xpu_available,
)
from accelerate.launching.forked import (
    PrepareForLaunch as PrepareForLaunch,
)
from accelerate.modules.batch import (
    concatenate as concatenate,
    find_batch_size as find_batch_size,
    get_data_structure as get_data_structure,
    ignorant_find_batch_size as ignorant_find_batch_size,
    initialize_tensors as initialize_tensors,
    listify as listify,
    slice_tensors as slice_tensors,
)
from accelerate.modules.compile import (
    compile_regions as compile_regions,
    compile_regions_deepspeed as compile_regions_deepspeed,
    compile_regions_fsdp2 as compile_regions_fsdp2,
    has_compiled_regions as has_compiled_regions,
    is_compiled_module as is_compiled_module,
)
from accelerate.modules.fp32 import (
    convert_outputs_to_fp32 as convert_outputs_to_fp32,
    convert_to_fp32 as convert_to_fp32,
)
from accelerate.modules.nested import (
    find_device as find_device,
    honor_type as honor_type,
    is_namedtuple as is_namedtuple,
    is_tensor_information as is_tensor_information,
    is_torch_tensor as is_torch_tensor,
    recursively_apply as recursively_apply,
    send_to_device as send_to_device,
    TensorInformation as TensorInformation,
)
from accelerate.modules.peft import (
    is_peft_model as is_peft_model,
)
from accelerate.modules.traverse import (
    get_model_tp_size as get_model_tp_size,
    get_module_children_bottom_up as get_module_children_bottom_up,
    model_has_dtensor as model_has_dtensor,
)
from accelerate.modules.unwrap import (
    extract_model_from_parallel as extract_model_from_parallel,
)
from accelerate.options.accumulation import (
    GradientAccumulationPlugin as GradientAccumulationPlugin,
)
from accelerate.options.data import (
    DataLoaderConfiguration as DataLoaderConfiguration,
)
from accelerate.options.dynamo import (
    TorchDynamoPlugin as TorchDynamoPlugin,
)
from accelerate.options.enums import (
    ComputeEnvironment as ComputeEnvironment,
    CustomDtype as CustomDtype,
    DDPCommunicationHookType as DDPCommunicationHookType,
    DistributedType as DistributedType,
    DynamoBackend as DynamoBackend,
    LoggerType as LoggerType,
    PrecisionType as PrecisionType,
    RNGType as RNGType,
    SageMakerDistributedType as SageMakerDistributedType,
)
from accelerate.options.fsdp import (
    FullyShardedDataParallelPlugin as FullyShardedDataParallelPlugin,
)
from accelerate.options.handlers import (
    AutocastKwargs as AutocastKwargs,
    DistributedDataParallelKwargs as DistributedDataParallelKwargs,
    GradScalerKwargs as GradScalerKwargs,
    InitProcessGroupKwargs as InitProcessGroupKwargs,
    KwargsHandler as KwargsHandler,
)
from accelerate.options.profile import (
    ProfileKwargs as ProfileKwargs,
)
from accelerate.options.project import (
    ProjectConfiguration as ProjectConfiguration,
)
from accelerate.precision.autocast import (
    get_mixed_precision_context_manager as get_mixed_precision_context_manager,
)
from accelerate.precision.scaler import (
    get_grad_scaler as get_grad_scaler,
)
from accelerate.runtime.collectives import (
    broadcast as broadcast,
    broadcast_object_list as broadcast_object_list,
    gather as gather,
    gather_object as gather_object,
    pad_across_processes as pad_across_processes,
    reduce as reduce,
    wait_for_everyone as wait_for_everyone,
)
from accelerate.runtime.batch_size import (
    find_executable_batch_size as find_executable_batch_size,
)
from accelerate.runtime.memory import (
    release_memory as release_memory,
)
from accelerate.runtime.one_holder import (
    copy_tensor_to_devices as copy_tensor_to_devices,
)
from accelerate.runtime.padding import (
    pad_input_tensors as pad_input_tensors,
)
from accelerate.runtime.progress import (
    tqdm as tqdm,
)
from accelerate.runtime.rank_group import (
    CannotPadNestedTensorWarning as CannotPadNestedTensorWarning,
)
from accelerate.runtime.rng import (
    set_seed as set_seed,
    synchronize_rng_state as synchronize_rng_state,
    synchronize_rng_states as synchronize_rng_states,
)
from accelerate.state import (
    deepspeed_required as deepspeed_required,
)
from accelerate.utils.launch import (
    _filter_args as _filter_args,
    prepare_deepspeed_cmd_env as prepare_deepspeed_cmd_env,
    prepare_multi_gpu_env as prepare_multi_gpu_env,
    prepare_sagemager_args_inputs as prepare_sagemager_args_inputs,
    prepare_simple_launcher_cmd_env as prepare_simple_launcher_cmd_env,
    prepare_tpu as prepare_tpu,
)

__all__ = [
    "AutocastKwargs",
    "CannotPadNestedTensorWarning",
    "ComputeEnvironment",
    "CustomDtype",
    "DDPCommunicationHookType",
    "DataLoaderConfiguration",
    "DistributedDataParallelKwargs",
    "DistributedType",
    "DynamoBackend",
    "FullyShardedDataParallelPlugin",
    "GradScalerKwargs",
    "GradientAccumulationPlugin",
    "InitProcessGroupKwargs",
    "KwargsHandler",
    "LoggerType",
    "MITA_PROFILING_AVAILABLE_PYTORCH_VERSION",
    "MODEL_NAME",
    "OPTIMIZER_NAME",
    "PROFILE_PATTERN_NAME",
    "PrecisionType",
    "PrepareForLaunch",
    "ProfileKwargs",
    "ProjectConfiguration",
    "RNGType",
    "RNG_STATE_NAME",
    "SAFE_MODEL_NAME",
    "SAFE_WEIGHTS_INDEX_NAME",
    "SAFE_WEIGHTS_NAME",
    "SAFE_WEIGHTS_PATTERN_NAME",
    "SAMPLER_NAME",
    "SCALER_NAME",
    "SCHEDULER_NAME",
    "SageMakerDistributedType",
    "TORCH_DISTRIBUTED_OPERATION_TYPES",
    "TORCH_LAUNCH_PARAMS",
    "TensorInformation",
    "TorchDynamoPlugin",
    "WEIGHTS_INDEX_NAME",
    "WEIGHTS_NAME",
    "WEIGHTS_PATTERN_NAME",
    "XPU_PROFILING_AVAILABLE_PYTORCH_VERSION",
    "are_libraries_initialized",
    "broadcast",
    "broadcast_object_list",
    "check_cuda_fp8_capability",
    "check_cuda_p2p_ib_support",
    "check_os_kernel",
    "clean_state_dict_for_safetensors",
    "clear_environment",
    "compare_versions",
    "compile_regions",
    "compile_regions_deepspeed",
    "compile_regions_fsdp2",
    "concatenate",
    "convert_bytes",
    "convert_dict_to_env_variables",
    "convert_outputs_to_fp32",
    "convert_to_fp32",
    "copy_tensor_to_devices",
    "deepspeed_required",
    "extract_model_from_parallel",
    "find_batch_size",
    "find_device",
    "find_executable_batch_size",
    "gather",
    "gather_object",
    "get_cpu_distributed_information",
    "get_current_device_type",
    "get_data_structure",
    "get_gpu_info",
    "get_grad_scaler",
    "get_int_from_env",
    "get_mixed_precision_context_manager",
    "get_model_tp_size",
    "get_module_children_bottom_up",
    "get_pretty_name",
    "has_compiled_regions",
    "honor_type",
    "ignorant_find_batch_size",
    "initialize_tensors",
    "install_xla",
    "is_4bit_bnb_available",
    "is_8bit_bnb_available",
    "is_aim_available",
    "is_amdsmi_available",
    "is_bf16_available",
    "is_bitsandbytes_multi_backend_available",
    "is_bnb_available",
    "is_boto3_available",
    "is_clearml_available",
    "is_comet_ml_available",
    "is_compiled_module",
    "is_cuda_available",
    "is_datasets_available",
    "is_deepspeed_available",
    "is_dvclive_available",
    "is_fp16_available",
    "is_fp8_available",
    "is_habana_gaudi1",
    "is_hpu_available",
    "is_import_timer_available",
    "is_lomo_available",
    "is_matplotlib_available",
    "is_megatron_lm_available",
    "is_mlflow_available",
    "is_mlu_available",
    "is_mps_available",
    "is_msamp_available",
    "is_musa_available",
    "is_namedtuple",
    "is_neuron_available",
    "is_npu_available",
    "is_pandas_available",
    "is_peft_available",
    "is_peft_model",
    "is_pippy_available",
    "is_port_in_use",
    "is_pynvml_available",
    "is_pytest_available",
    "is_rich_available",
    "is_rocm_available",
    "is_sagemaker_available",
    "is_schedulefree_available",
    "is_sdaa_available",
    "is_swanlab_available",
    "is_tensor_information",
    "is_tensorboard_available",
    "is_timm_available",
    "is_torch_tensor",
    "is_torch_version",
    "is_torch_xla_available",
    "is_torchao_available",
    "is_torchdata_available",
    "is_torchdata_stateful_dataloader_available",
    "is_torchvision_available",
    "is_trackio_available",
    "is_transformer_engine_available",
    "is_transformer_engine_mxfp8_available",
    "is_transformers_available",
    "is_triton_available",
    "is_wandb_available",
    "is_weights_only_available",
    "is_xccl_available",
    "is_xpu_available",
    "listify",
    "load",
    "merge_dicts",
    "model_has_dtensor",
    "pad_across_processes",
    "pad_input_tensors",
    "parse_choice_from_env",
    "parse_flag_from_env",
    "patch_environment",
    "prepare_deepspeed_cmd_env",
    "prepare_multi_gpu_env",
    "prepare_sagemager_args_inputs",
    "prepare_simple_launcher_cmd_env",
    "prepare_tpu",
    "purge_accelerate_environment",
    "recursive_getattr",
    "recursively_apply",
    "reduce",
    "release_memory",
    "save",
    "send_to_device",
    "set_numa_affinity",
    "set_seed",
    "slice_tensors",
    "str_to_bool",
    "synchronize_rng_state",
    "synchronize_rng_states",
    "torchao_required",
    "tqdm",
    "wait_for_everyone",
    "write_basic_config",
]
