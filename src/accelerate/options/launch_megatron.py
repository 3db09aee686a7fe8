"""What `accelerate launch` can be told about Megatron-LM. A part of LaunchPlan (options/launch.py)."""

from dataclasses import dataclass
from typing import Any

from accelerate.compat.env import str_to_bool
from accelerate.options.field import option

__all__ = ["MegatronLaunch"]

_TRUTH = ("true", "false")


def _megatron(name: str, default: Any, help: str, **more: Any) -> Any:
    """Declare one option: flag, variable and key all follow from its name."""
    return option(
        default,
        flag=f"--megatron_lm_{name}",
        env=f"MEGATRON_LM_{name.upper()}",
        key=f"megatron_lm_config.megatron_lm_{name}",
        group="Megatron-LM Arguments",
        help=help,
        **more,
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class MegatronLaunch:
    """Options of Megatron-LM; what is None is left to its plugin."""

    megatron_lm_tp_degree: int = _megatron(
        "tp_degree",
        1,
        "Processes of tensor parallelism.",
        question="How many processes of tensor parallelism?",
    )
    megatron_lm_use_custom_fsdp: bool = _megatron(
        "use_custom_fsdp", False, "Whether Megatron's own FSDP is used.", parse=str_to_bool
    )
    megatron_lm_no_load_optim: bool = _megatron(
        "no_load_optim", False, "Whether optimizer states are left out when loading.", parse=str_to_bool
    )
    megatron_lm_eod_mask_loss: bool = _megatron(
        "eod_mask_loss", False, "Whether the loss leaves out tokens that end a document.", parse=str_to_bool
    )
    megatron_lm_overlap_cpu_optimizer_d2h_h2d: bool = _megatron(
        "overlap_cpu_optimizer_d2h_h2d",
        False,
        "Whether copies to and from an optimizer on the CPU overlap with its step.",
        parse=str_to_bool,
    )
    megatron_lm_no_save_optim: bool = _megatron(
        "no_save_optim", False, "Whether optimizer states are left out when saving.", parse=str_to_bool
    )
    megatron_lm_optimizer_cpu_offload: bool = _megatron(
        "optimizer_cpu_offload", False, "Whether the optimizer runs on the CPU.", parse=str_to_bool
    )
    megatron_lm_use_precision_aware_optimizer: bool = _megatron(
        "use_precision_aware_optimizer",
        False,
        "Whether optimizer states are kept in a lower precision.",
        parse=str_to_bool,
    )
    megatron_lm_decoder_last_pipeline_num_layers: int | None = _megatron(
        "decoder_last_pipeline_num_layers",
        None,
        "Layers on the last pipeline stage. Default: as many as on the others.",
        type=int,
    )
    megatron_lm_pp_degree: int = _megatron(
        "pp_degree",
        1,
        "Processes of pipeline parallelism.",
        question="How many processes of pipeline parallelism?",
    )
    megatron_lm_num_micro_batches: int | None = _megatron(
        "num_micro_batches",
        None,
        "Micro-batches of a step in pipeline parallelism.",
        type=int,
        question="How many micro-batches to a step?",
    )
    megatron_lm_sequence_parallelism: str | None = _megatron(
        "sequence_parallelism",
        None,
        "true: tensor parallelism also splits norms and dropout along the sequence.",
        type=str,
        values=_TRUTH,
        question="Split norms and dropout along the sequence too?",
    )
    megatron_lm_recompute_activations: str | None = _megatron(
        "recompute_activations",
        None,
        "true: activations are computed again in the backward pass.",
        type=str,
        values=_TRUTH,
        question="Compute activations again in the backward pass (saves memory)?",
    )
    megatron_lm_use_distributed_optimizer: str | None = _megatron(
        "use_distributed_optimizer",
        None,
        "true: optimizer states are sharded over data parallelism.",
        type=str,
        values=_TRUTH,
        question="Shard optimizer states over data parallelism?",
    )
    megatron_lm_gradient_clipping: float = _megatron(
        "gradient_clipping",
        1.0,
        "Largest norm of the gradients; 0 clips nothing.",
        question="Largest norm of the gradients (0: no clipping)?",
    )
    megatron_lm_recompute_granularity: str | None = _megatron(
        "recompute_granularity", None, "What is computed again: full or selective.", type=str
    )
    megatron_lm_recompute_method: str | None = _megatron(
        "recompute_method", None, "How full layers are chosen: uniform or block.", type=str
    )
    megatron_lm_recompute_num_layers: int | None = _megatron(
        "recompute_num_layers", None, "Layers that are computed again together.", type=int
    )
    megatron_lm_attention_backend: str | None = _megatron(
        "attention_backend", None, "true: attention is computed by a fused kernel.", type=str
    )
    megatron_lm_expert_model_parallel_size: int | None = _megatron(
        "expert_model_parallel_size", None, "Processes over which experts are divided.", type=int
    )
    megatron_lm_context_parallel_size: int | None = _megatron(
        "context_parallel_size", None, "Processes of context parallelism.", type=int
    )
    megatron_lm_attention_dropout: float | None = _megatron(
        "attention_dropout", None, "Probability of dropout in attention.", type=float
    )
    megatron_lm_hidden_dropout: float | None = _megatron(
        "hidden_dropout", None, "Probability of dropout in hidden states.", type=float
    )
    megatron_lm_attention_softmax_in_fp32: str | None = _megatron(
        "attention_softmax_in_fp32",
        None,
        "true: the softmax of attention is computed in fp32.",
        type=str,
        values=_TRUTH,
    )
    megatron_lm_expert_tensor_parallel_size: int | None = _megatron(
        "expert_tensor_parallel_size", None, "Processes of tensor parallelism inside experts.", type=int
    )
    megatron_lm_calculate_per_token_loss: str | None = _megatron(
        "calculate_per_token_loss",
        None,
        "true: the loss is divided by the number of tokens of the step.",
        type=str,
        values=_TRUTH,
    )
    megatron_lm_use_rotary_position_embeddings: str | None = _megatron(
        "use_rotary_position_embeddings",
        None,
        "true: positions are rotary embeddings.",
        type=str,
        values=_TRUTH,
    )
