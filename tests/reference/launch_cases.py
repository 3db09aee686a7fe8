"""What is launched when the reference is recorded and when ours is compared with it."""

__all__ = ["CASES", "INHERITED"]

CONFIG = "distributed_type: {}\nnum_processes: {}\n{}"

# name -> (arguments, configuration file)
CASES: dict[str, tuple[str, str | None]] = {
    "plain": ("", None),
    "cpu": ("--cpu", None),
    "ranks": ("--multi_gpu --num_processes 2", None),
    "precision": ("--mixed_precision bf16", None),
    "settings": ("--enable_cpu_affinity --debug --num_cpu_threads_per_process 3 --gpu_ids 0", None),
    "dynamo": ("--dynamo_backend inductor --dynamo_mode max-autotune --dynamo_use_fullgraph", None),
    "fsdp1": ("--use_fsdp --num_processes 2 --fsdp_version 1 --fsdp_sharding_strategy SHARD_GRAD_OP", None),
    "fsdp2": (
        "--use_fsdp --num_processes 2 --fsdp_version 2 --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP "
        "--fsdp_transformer_layer_cls_to_wrap A,B --fsdp_state_dict_type SHARDED_STATE_DICT "
        "--fsdp_offload_params True",
        None,
    ),
    "context parallelism": (
        "--use_parallelism_config --use_fsdp --num_processes 2 --fsdp_version 2 "
        "--parallelism_config_cp_size 2",
        None,
    ),
    "sequence parallelism": (
        "--use_parallelism_config --use_fsdp --num_processes 2 --fsdp_version 2 "
        "--parallelism_config_sp_size 2",
        None,
    ),
    "megatron": (
        "--use_megatron_lm --num_processes 2 --megatron_lm_tp_degree 2 --megatron_lm_no_load_optim True "
        "--megatron_lm_sequence_parallelism true --megatron_lm_num_micro_batches 2",
        None,
    ),
    "deepspeed": (
        "--use_deepspeed --num_processes 1 --zero_stage 3 --offload_param_device cpu --zero3_init_flag true "
        "--gradient_clipping 0.5",
        None,
    ),
    "fp8": ("--mixed_precision fp8 --fp8_backend ao --fp8_pad_inner_dim false", None),
    "file: precision": ("", CONFIG.format("'NO'", 1, "mixed_precision: bf16\n")),
    "file: fp16": ("", CONFIG.format("'NO'", 1, "fp16: true\n")),
    "file: cpu": ("", CONFIG.format("'NO'", 1, "use_cpu: true\n")),
    "file: dynamo": (
        "",
        CONFIG.format("'NO'", 1, "dynamo_config:\n  dynamo_backend: INDUCTOR\n  use_dynamic: true\n"),
    ),
    "file: fsdp": (
        "",
        CONFIG.format(
            "FSDP",
            2,
            "fsdp_config:\n  fsdp_version: 2\n  offload_params: true\n  fsdp_ignored_modules: head\n",
        ),
    ),
    "file: axes": (
        "",
        CONFIG.format(
            "FSDP",
            2,
            "fsdp_config:\n  fsdp_version: 2\nparallelism_config:\n  parallelism_config_dp_shard_size: 2\n",
        ),
    ),
    "file: deepspeed": (
        "",
        CONFIG.format("DEEPSPEED", 1, "mixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 1\n"),
    ),
    "file: fp8": (
        "",
        CONFIG.format(
            "'NO'", 1, "mixed_precision: fp8\nfp8_config:\n  backend: AO\n  pad_inner_dim: false\n"
        ),
    ),
}

# Set by the machine, by Python, or by torch's launcher for one rank.
INHERITED = frozenset(
    {
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "HF_HOME",
        "HOME",
        "LC_CTYPE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "PATH",
        "PWD",
        "PYTHONPATH",
        "RANK",
        "ROLE_NAME",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "SHLVL",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "WORLD_SIZE",
        "_",
    }
)
