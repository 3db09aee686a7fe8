"""What is started: argument list and environment of a script, as values. Called by every launcher."""

from collections.abc import Mapping, Sequence

from accelerate.options.launch import LaunchPlan

__all__ = ["inherited", "script_command", "script_environment"]

# Written by torch elastic for one rank; a launch inside that rank must not take itself for it.
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

# torch.compile is off until the script or a later flag asks for it; the interface writes all five, always.
_DYNAMO = {
    "ACCELERATE_DYNAMO_BACKEND": "NO",
    "ACCELERATE_DYNAMO_MODE": "default",
    "ACCELERATE_DYNAMO_USE_FULLGRAPH": "False",
    "ACCELERATE_DYNAMO_USE_DYNAMIC": "False",
    "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION": "False",
}


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
        **_DYNAMO,
        "ACCELERATE_MIXED_PRECISION": plan.mixed_precision,
        "OMP_NUM_THREADS": str(plan.num_cpu_threads_per_process),
    }
    if plan.debug:
        variables["ACCELERATE_DEBUG_MODE"] = "true"
    if plan.gpu_ids is not None and plan.gpu_ids != "all":
        variables["CUDA_VISIBLE_DEVICES"] = plan.gpu_ids.replace(" ", "")
    return variables


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's environment without what belongs to the caller's own rank or device choice."""
    kept = {name: text for name, text in environ.items() if name != "ACCELERATE_USE_CPU"}
    if "TORCHELASTIC_RUN_ID" not in environ:
        return kept
    return {
        name: text
        for name, text in kept.items()
        if name not in _RANK_VARIABLES and not name.startswith("TORCHELASTIC_")
    }
