"""What can be planned and not started yet: each row says what is missing. Called by Launcher.problems.

Who adds an engine or a launcher takes its row out.
"""

from collections.abc import Callable

from accelerate.options.launch import LaunchPlan

__all__ = ["find_unsupported"]

_ROWS: tuple[tuple[Callable[[LaunchPlan], bool], str], ...] = (
    (
        lambda plan: plan.use_fsdp and str(plan.fsdp_version) == "1",
        "--use_fsdp with FSDP version 1: this version has version 2 only; leave out --fsdp_version 1 and the "
        "options of version 1",
    ),
    (
        lambda plan: plan.use_deepspeed,
        "--use_deepspeed (distributed_type: DEEPSPEED): this version has no DeepSpeed yet; train with data "
        "parallelism, without it",
    ),
    (
        lambda plan: plan.use_megatron_lm,
        "--use_megatron_lm (distributed_type: MEGATRON_LM): this version has no Megatron-LM yet; train with "
        "data parallelism, without it",
    ),
    (
        lambda plan: plan.use_parallelism_config,
        "--use_parallelism_config: this version has no axes of parallelism but data yet; leave it out",
    ),
    (
        lambda plan: plan.mixed_precision == "fp8",
        "--mixed_precision fp8: this version has no fp8 yet; use bf16",
    ),
)


def find_unsupported(plan: LaunchPlan) -> list[str]:
    """Return a line for everything in the plan that this version cannot start."""
    return [text for is_asked, text in _ROWS if is_asked(plan)]
