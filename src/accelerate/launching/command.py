"""What is started: argument list and environment of a script, as values. Called by every launcher."""

import os
from collections.abc import Callable, Mapping, Sequence

from accelerate.options.field import options
from accelerate.options.launch import LaunchPlan
from accelerate.options.launch_deepspeed import DeepSpeedLaunch
from accelerate.options.launch_fsdp import FSDPLaunch
from accelerate.options.launch_megatron import MegatronLaunch
from accelerate.options.launch_parallel import FP8Launch, ParallelismLaunch
from accelerate.options.launch_platforms import DynamoLaunch

__all__ = [
    "SLURM_RANK_MARK",
    "deepspeed_environment",
    "fp8_environment",
    "fsdp_environment",
    "inherited",
    "megatron_environment",
    "parallelism_environment",
    "path_with",
    "script_command",
    "script_environment",
    "tpu_environment",
]

# Set in processes that are ranks because they are tasks of SLURM (launching/slurm.py).
SLURM_RANK_MARK = "ACCELERATE_SLURM_RANK"

# Written for one rank by torch elastic, or by us; a launch inside that rank must not take itself for it.
_RANK_VARIABLES = frozenset(
    {
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "ROLE_NAME",
        "MASTER_ADDR",
        "MASTER_PORT",
    }
)


def script_command(plan: LaunchPlan, python: Sequence[str]) -> list[str]:
    """Return the argument list that runs the script, module or program of `plan`.

    Args:
        plan: the launch.
        python: interpreter and its own options; left out for a program.
    """
    start = [] if plan.no_python else [*python, *(["-m"] if plan.module else [])]
    return [*start, plan.training_script, *plan.training_script_args]


def script_environment(plan: LaunchPlan) -> dict[str, str]:
    """Return the variables that every process of this launch gets, however it is started."""
    variables = {
        **_texts(plan, DynamoLaunch),
        "ACCELERATE_DYNAMO_BACKEND": _MISSPELLED.get(plan.dynamo_backend, plan.dynamo_backend).upper(),
        "ACCELERATE_MIXED_PRECISION": plan.mixed_precision,
        "OMP_NUM_THREADS": str(plan.num_cpu_threads_per_process),
    }
    if plan.debug:
        variables["ACCELERATE_DEBUG_MODE"] = "true"
    if plan.enable_cpu_affinity:
        variables["ACCELERATE_CPU_AFFINITY"] = "1"
    if plan.gpu_ids is not None and plan.gpu_ids != "all":
        variables["CUDA_VISIBLE_DEVICES"] = plan.gpu_ids.replace(" ", "")
    for is_active, environment in _GROUPS:
        if is_active(plan):
            variables |= environment(plan)
    return variables


def fp8_environment(plan: LaunchPlan) -> dict[str, str]:
    """Return the variables about fp8; the interface has one for each part of the override."""
    overrides = zip(_FP8_OVERRIDES, map(str, plan.fp8_override_linear_precision), strict=False)
    backend = {} if plan.fp8_backend is None else {"ACCELERATE_FP8_BACKEND": plan.fp8_backend.upper()}
    return _texts(plan, FP8Launch) | backend | dict(overrides)


def fsdp_environment(plan: LaunchPlan) -> dict[str, str]:
    """Return the variables about FSDP. Truth values are in lower case, which clients compare with."""
    texts = _texts(plan, FSDPLaunch)
    lowered = {name: text.lower() for name, text in texts.items() if text.lower() in ("true", "false")}
    return texts | lowered | {"ACCELERATE_USE_FSDP": "true"}


def deepspeed_environment(plan: LaunchPlan) -> dict[str, str]:
    """Return the variables about DeepSpeed, among them which fields the configuration file set."""
    fields = [info.name for info in options(DeepSpeedLaunch) if plan.sources.get(info.name) == "file"]
    if plan.sources.get("mixed_precision") == "file":
        fields.append("mixed_precision")
    return _texts(plan, DeepSpeedLaunch) | {
        "ACCELERATE_USE_DEEPSPEED": "true",
        "ACCELERATE_CONFIG_DS_FIELDS": ",".join(fields).lower(),
    }


def megatron_environment(plan: LaunchPlan) -> dict[str, str]:
    """Return the variables about Megatron-LM."""
    return _texts(plan, MegatronLaunch) | {"ACCELERATE_USE_MEGATRON_LM": "true"}


def parallelism_environment(plan: LaunchPlan) -> dict[str, str]:
    """Return the variables about the axes; those of context and sequence parallelism where they are used."""
    # Where it is open the interface says so, and its reader expects the word.
    texts = {"PARALLELISM_CONFIG_SP_SEQ_LENGTH": "None"} | _texts(plan, ParallelismLaunch)
    unused: tuple[str, ...] = (
        () if plan.parallelism_config_cp_size > 1 else ("PARALLELISM_CONFIG_CP_COMM_STRATEGY",)
    )
    if plan.parallelism_config_sp_size == 1:
        unused += tuple(name for name in texts if name.startswith(_SEQUENCE) and name not in _ALWAYS)
    kept = {name: text for name, text in texts.items() if name not in unused}
    return kept | {"ACCELERATE_USE_PARALLELISM_CONFIG": "true"}


def tpu_environment(plan: LaunchPlan) -> dict[str, str]:
    """Return the variables that choose the precision of a TPU."""
    if plan.mixed_precision != "bf16":
        return {}
    return {"XLA_DOWNCAST_BF16" if plan.downcast_bf16 else "XLA_USE_BF16": "1"}


# Forward, data-gradient and weight-gradient products.
_FP8_OVERRIDES = tuple(f"ACCELERATE_FP8_OVERRIDE_{part}" for part in ("FPROP", "DGRAD", "WGRAD"))
_SEQUENCE = "PARALLELISM_CONFIG_SP_"
_ALWAYS = frozenset({"PARALLELISM_CONFIG_SP_SIZE", "PARALLELISM_CONFIG_SP_BACKEND"})
# The parser offers this backend under a wrong name only; torch knows it under the right one.
_MISSPELLED = {"torhchxla_trace_once": "torchxla_trace_once"}

# Whether a part of the plan is in use -> its variables.
_GROUPS: tuple[tuple[Callable[[LaunchPlan], bool], Callable[[LaunchPlan], dict[str, str]]], ...] = (
    (lambda plan: plan.mixed_precision == "fp8", fp8_environment),
    (lambda plan: plan.use_fsdp, fsdp_environment),
    (lambda plan: plan.use_deepspeed, deepspeed_environment),
    (lambda plan: plan.use_megatron_lm, megatron_environment),
    (lambda plan: plan.use_parallelism_config, parallelism_environment),
    (lambda plan: plan.tpu, tpu_environment),
)


def _texts(plan: LaunchPlan, group: type) -> dict[str, str]:
    """Return the variable of each option of a group that is not None, as the interface writes it."""
    return {
        info.env: str(value)
        for info in options(group)
        if info.env is not None and (value := getattr(plan, info.name)) is not None
    }


def path_with(path: str | None, folder: str) -> str:
    """Return a list of folders, as PYTHONPATH has it, with one more at its end, made absolute."""
    return os.pathsep.join([*([path] if path else []), os.path.abspath(folder)])


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's environment without what belongs to the caller's own rank or device choice."""
    kept = {name: text for name, text in environ.items() if name != "ACCELERATE_USE_CPU"}
    if "TORCHELASTIC_RUN_ID" not in environ and SLURM_RANK_MARK not in environ:
        return kept
    return {
        name: text
        for name, text in kept.items()
        if name not in _RANK_VARIABLES and not name.startswith("TORCHELASTIC_") and name != SLURM_RANK_MARK
    }
