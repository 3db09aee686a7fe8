"""A training job on Amazon SageMaker, as a value. Called by commands/launch.py and utils/launch.py."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from accelerate.compat import env
from accelerate.errors import ConfigurationError, MissingPackageError, listing
from accelerate.launching.base import Launcher
from accelerate.launching.command import script_environment
from accelerate.launching.target import check_target
from accelerate.options.enums import SageMakerDistributedType
from accelerate.options.launch import LaunchPlan

__all__ = ["SageMakerJob", "SageMakerLauncher", "hyperparameters", "plan_job", "submit"]

_NEEDED = ("ec2_instance_type", "iam_role_name")


class SageMakerLauncher(Launcher):
    """Submits a job instead of starting processes. Chosen by the compute environment of the file.

    Args:
        settings: the fields of a `SageMakerConfig`.
    """

    name: ClassVar[str] = "sagemaker"

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings

    def accepts(self, plan: LaunchPlan) -> bool:
        """Return that no plan asks for it by itself."""
        return False

    def problems(self, plan: LaunchPlan) -> list[str]:
        """Return what SageMaker needs and has not got."""
        try:
            check_target(plan, None)
            plan_job(self._settings, plan)
        except ConfigurationError as error:
            return [str(error)]
        return []

    def command(self, plan: LaunchPlan) -> list[str]:
        """Return the script and its arguments, which SageMaker turns into a command of its own."""
        return [plan.training_script, *plan.training_script_args]

    def environ(self, plan: LaunchPlan) -> dict[str, str]:
        """Return the variables of the job."""
        environ: dict[str, str] = plan_job(self._settings, plan).estimator["environment"]
        return environ

    def run(self, plan: LaunchPlan) -> int:
        """Submit the job and wait for it; a failing job is an exception of SageMaker's."""
        submit(plan_job(self._settings, plan))
        return 0


@dataclass(frozen=True, kw_only=True)
class SageMakerJob:
    """What is handed to SageMaker.

    Attributes:
        estimator: arguments of `sagemaker.huggingface.HuggingFace`.
        inputs: channel -> where its data is; None for none.
        credentials: variables with which AWS is called.
    """

    estimator: dict[str, Any]
    inputs: dict[str, str] | None = None
    credentials: dict[str, str] = field(default_factory=dict)


def plan_job(settings: Mapping[str, Any], plan: LaunchPlan) -> SageMakerJob:
    """Return the job. Reads the files with inputs and metrics, and does nothing else.

    Args:
        settings: the fields of a `SageMakerConfig`.
        plan: the launch: script, its arguments, precision, keys.

    Raises:
        ConfigurationError: what SageMaker needs is missing, or an argument of the script has no value.
    """
    problems = [f"{name}: the configuration file lacks it" for name in _NEEDED if not settings.get(name)]
    if not settings.get("profile") and not (plan.aws_access_key_id and plan.aws_secret_access_key):
        problems.append(
            "no way to sign in to AWS: write `profile` into the configuration file, or pass both "
            "--aws_access_key_id and --aws_secret_access_key"
        )
    if not plan.training_script.endswith(".py") or plan.module or plan.no_python:
        problems.append(f"{plan.training_script}: SageMaker runs a script, whose name ends in .py")
    if problems:
        raise ConfigurationError(listing(problems))
    return SageMakerJob(
        estimator=_estimator(settings, plan),
        inputs=_inputs(settings.get("sagemaker_inputs_file")),
        credentials=_credentials(settings, plan),
    )


def submit(job: SageMakerJob) -> None:
    """Hand the job to SageMaker, and wait for it. For its time the credentials are in the environment.

    Raises:
        MissingPackageError: the package sagemaker is not installed.
    """
    try:
        from sagemaker.huggingface import HuggingFace  # type: ignore[import-not-found]
    except ImportError as error:
        raise MissingPackageError(
            "a launch on Amazon SageMaker needs the package sagemaker: pip install sagemaker"
        ) from error
    with env.patch_environment(**job.credentials):
        HuggingFace(**job.estimator).fit(inputs=job.inputs)


def _credentials(settings: Mapping[str, Any], plan: LaunchPlan) -> dict[str, str]:
    region = {"AWS_DEFAULT_REGION": str(settings.get("region") or "us-east-1")}
    if settings.get("profile"):
        return region | {"AWS_PROFILE": str(settings["profile"])}
    keys = {
        "AWS_ACCESS_KEY_ID": plan.aws_access_key_id,
        "AWS_SECRET_ACCESS_KEY": plan.aws_secret_access_key,
    }
    return region | {name: key for name, key in keys.items() if key is not None}


def _estimator(settings: Mapping[str, Any], plan: LaunchPlan) -> dict[str, Any]:
    script = Path(plan.training_script)
    kind = SageMakerDistributedType(settings.get("distributed_type") or "NO")
    parallel = {"smdistributed": {"dataparallel": {"enabled": True}}}
    environment = {
        "ACCELERATE_USE_SAGEMAKER": "true",
        **{name: text for name, text in script_environment(plan).items() if name.startswith("ACCELERATE_")},
        "ACCELERATE_SAGEMAKER_DISTRIBUTED_TYPE": kind.value,
    }
    arguments = {
        "image_uri": settings.get("image_uri"),
        "entry_point": script.name,
        "source_dir": str(script.parent),
        "role": settings["iam_role_name"],
        "transformers_version": settings.get("transformers_version", "4.17.0"),
        "pytorch_version": settings.get("pytorch_version", "1.10.2"),
        "py_version": settings.get("py_version", "py38"),
        "base_job_name": settings.get("base_job_name", "accelerate-sagemaker-1"),
        "instance_count": settings.get("num_machines") or 1,
        "instance_type": settings["ec2_instance_type"],
        "debugger_hook_config": False,
        "distribution": parallel if kind is SageMakerDistributedType.DATA_PARALLEL else None,
        "hyperparameters": hyperparameters(plan.training_script_args),
        "environment": environment,
        "metric_definitions": _metrics(settings.get("sagemaker_metrics_file")),
    }
    return arguments | dict(settings.get("additional_args") or {})


def hyperparameters(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of a script as SageMaker passes them on: name -> value.

    Raises:
        ConfigurationError: an argument is no pair of `--name` and a value.
    """
    words = [part for word in arguments for part in (word.split("=", 1) if word[:2] == "--" else [word])]
    pairs: dict[str, Any] = {}
    while words:
        name = words.pop(0)
        if not name.startswith("-") or not words or words[0].startswith("--"):
            raise ConfigurationError(
                f"{name} in the arguments of the script: SageMaker passes on pairs of a name and a value, as "
                "in --lr 0.1; give a switch a value too"
            )
        pairs[name.lstrip("-")] = _value(words.pop(0))
    return pairs


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _rows(file: str | None) -> list[list[str]]:
    """Return the cells of a tab-separated file below its first line."""
    if file is None:
        return []
    lines = Path(file).read_text(encoding="utf-8").splitlines()[1:]
    return [line.split("\t") for line in lines if line.strip()]


def _inputs(file: str | None) -> dict[str, str] | None:
    return {row[0].strip(): row[1].strip() for row in _rows(file)} or None


def _metrics(file: str | None) -> list[dict[str, str]] | None:
    return [{"Name": row[0].strip(), "Regex": row[1].strip()} for row in _rows(file)] or None
