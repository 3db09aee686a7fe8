"""What `accelerate launch` can be told about axes of parallelism and fp8. Parts of LaunchPlan."""

from dataclasses import dataclass

from accelerate.compat.env import str_to_bool
from accelerate.options.field import option

__all__ = ["FP8Launch", "ParallelismLaunch"]

_AXES = "ParallelismConfig Arguments"
_FP8 = "FP8 Arguments"


def _size(axis: str, what: str) -> int:
    """Declare the size of one axis of the mesh."""
    size: int = option(
        1,
        flag=f"--parallelism_config_{axis}_size",
        env=f"PARALLELISM_CONFIG_{axis.upper()}_SIZE",
        key=f"parallelism_config.parallelism_config_{axis}_size",
        group=_AXES,
        question=f"How many processes along the axis of {what}?",
        help=f"Processes along the axis of {what}.",
    )
    return size


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ParallelismLaunch:
    """Sizes of the axes of the mesh, and how context and sequence parallelism work."""

    parallelism_config_dp_replicate_size: int = _size(
        "dp_replicate", "data parallelism with a whole copy of the model"
    )
    parallelism_config_dp_shard_size: int = _size("dp_shard", "data parallelism with a sharded model")
    parallelism_config_tp_size: int = _size("tp", "tensor parallelism")
    parallelism_config_cp_size: int = _size("cp", "context parallelism")
    parallelism_config_cp_backend: str = option(
        "torch",
        flag="--parallelism_config_cp_backend",
        env="PARALLELISM_CONFIG_CP_BACKEND",
        key="parallelism_config.parallelism_config_cp_backend",
        group=_AXES,
        choices=("torch",),
        help="What does context parallelism.",
    )
    parallelism_config_cp_comm_strategy: str = option(
        "allgather",
        flag="--parallelism_config_cp_comm_strategy",
        env="PARALLELISM_CONFIG_CP_COMM_STRATEGY",
        key="parallelism_config.parallelism_config_cp_comm_strategy",
        group=_AXES,
        values=("allgather", "alltoall"),
        question="How shall keys and values be exchanged in context parallelism?",
        help="How keys and values are exchanged in context parallelism: allgather or alltoall.",
    )
    parallelism_config_sp_size: int = _size("sp", "sequence parallelism")
    parallelism_config_sp_backend: str = option(
        "deepspeed",
        flag="--parallelism_config_sp_backend",
        env="PARALLELISM_CONFIG_SP_BACKEND",
        key="parallelism_config.parallelism_config_sp_backend",
        group=_AXES,
        choices=("deepspeed",),
        help="What does sequence parallelism.",
    )
    parallelism_config_sp_seq_length: str | None = option(
        None,
        flag="--parallelism_config_sp_seq_length",
        env="PARALLELISM_CONFIG_SP_SEQ_LENGTH",
        key="parallelism_config.parallelism_config_sp_seq_length",
        group=_AXES,
        type=str,
        help="Length of all sequences in sequence parallelism, where it is fixed.",
    )
    parallelism_config_sp_seq_length_is_variable: bool = option(
        True,
        flag="--parallelism_config_sp_seq_length_is_variable",
        env="PARALLELISM_CONFIG_SP_SEQ_LENGTH_IS_VARIABLE",
        key="parallelism_config.parallelism_config_sp_seq_length_is_variable",
        group=_AXES,
        parse=str_to_bool,
        help="Whether sequences differ in length in sequence parallelism: true or false.",
    )
    parallelism_config_sp_attn_implementation: str = option(
        "sdpa",
        flag="--parallelism_config_sp_attn_implementation",
        env="PARALLELISM_CONFIG_SP_ATTN_IMPLEMENTATION",
        key="parallelism_config.parallelism_config_sp_attn_implementation",
        group=_AXES,
        help="Attention in sequence parallelism: sdpa, flash_attention_2, flash_attention_3 or the name of a "
        "kernel on the Hub.",
    )


def _words(text: str) -> tuple[str, ...]:
    """Return the items of a list that is separated by commas."""
    return tuple(item.strip() for item in text.split(","))


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class FP8Launch:
    """Which library does fp8, and its recipe."""

    fp8_backend: str | None = option(
        None,
        flag="--fp8_backend",
        env="ACCELERATE_FP8_BACKEND",
        key="fp8_config.fp8_backend",
        group=_FP8,
        choices=("ao", "te", "msamp"),
        type=str,
        question="What shall do fp8: torchao, TransformerEngine or MS-AMP?",
        help="What does fp8: ao (torchao), te (TransformerEngine) or msamp (MS-AMP).",
    )
    fp8_use_autocast_during_eval: bool = option(
        False,
        flag="--fp8_use_autocast_during_eval",
        env="ACCELERATE_FP8_USE_AUTOCAST_DURING_EVAL",
        key="fp8_config.fp8_use_autocast_during_eval",
        group=_FP8,
        question="Compute in fp8 in evaluation too?",
        help="te: compute in fp8 in evaluation too.",
    )
    fp8_margin: int = option(
        0,
        flag="--fp8_margin",
        env="ACCELERATE_FP8_MARGIN",
        key="fp8_config.fp8_margin",
        group=_FP8,
        question="Powers of two by which scaling stays below the largest number?",
        help="te: powers of two by which scaling stays below what the format can hold.",
    )
    fp8_interval: int = option(
        1,
        flag="--fp8_interval",
        env="ACCELERATE_FP8_INTERVAL",
        key="fp8_config.fp8_interval",
        group=_FP8,
        question="Steps from one scaling factor to the next?",
        help="te: steps from one scaling factor to the next.",
    )
    fp8_format: str = option(
        "HYBRID",
        flag="--fp8_format",
        env="ACCELERATE_FP8_FORMAT",
        key="fp8_config.fp8_format",
        group=_FP8,
        choices=("HYBRID", "E4M3", "E5M2"),
        question="Which number format?",
        help="te: number format; HYBRID is E4M3 forward and E5M2 backward.",
    )
    fp8_amax_history_len: int = option(
        1024,
        flag="--fp8_amax_history_len",
        env="ACCELERATE_FP8_AMAX_HISTORY_LEN",
        key="fp8_config.fp8_amax_history_len",
        group=_FP8,
        question="How many steps shall scaling factors look back?",
        help="te: steps that scaling factors look back.",
    )
    fp8_amax_compute_algo: str = option(
        "most_recent",
        flag="--fp8_amax_compute_algo",
        env="ACCELERATE_FP8_AMAX_COMPUTE_ALGO",
        key="fp8_config.fp8_amax_compute_algo",
        group=_FP8,
        choices=("max", "most_recent"),
        question="What shall scaling factors take from those steps?",
        help="te: what scaling factors take from those steps.",
    )
    fp8_override_linear_precision: tuple[object, ...] = option(
        (False, False, False),
        flag="--fp8_override_linear_precision",
        key="fp8_config.fp8_override_linear_precision",
        group=_FP8,
        parse=_words,
        question="Which products in a higher precision: forward, data gradient, weight gradient?",
        help="te: true,false,... for the forward, data-gradient and weight-gradient products that are to be "
        "computed in a higher precision.",
    )
    fp8_opt_level: str = option(
        "O2",
        flag="--fp8_opt_level",
        env="ACCELERATE_FP8_OPT_LEVEL",
        key="fp8_config.fp8_opt_level",
        group=_FP8,
        choices=("O1", "O2"),
        question="Which level of MS-AMP?",
        help="msamp: O1 fp8 for weights and gradients, O2 for optimizer states too.",
    )
    fp8_enable_fsdp_float8_all_gather: bool = option(
        True,
        flag="--fp8_enable_fsdp_float8_all_gather",
        env="ACCELERATE_FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER",
        key="fp8_config.fp8_enable_fsdp_float8_all_gather",
        group=_FP8,
        parse=str_to_bool,
        question="Shall FSDP gather parameters in fp8?",
        help="ao: whether FSDP gathers parameters in fp8.",
    )
    fp8_pad_inner_dim: bool = option(
        True,
        flag="--fp8_pad_inner_dim",
        env="ACCELERATE_FP8_PAD_INNER_DIM",
        key="fp8_config.fp8_pad_inner_dim",
        group=_FP8,
        parse=str_to_bool,
        question="Pad inner dimensions to multiples of 16?",
        help="ao: whether inner dimensions are padded to multiples of 16.",
    )
