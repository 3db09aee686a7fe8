"""The questions about training on Amazon SageMaker. Called by config.py."""

from typing import Any

from accelerate.commands.config.cluster import ask_dynamo
from accelerate.commands.config.config_args import SageMakerConfig
from accelerate.commands.config.interview import Interview, interview, whole_number
from accelerate.options.enums import ComputeEnvironment, SageMakerDistributedType

__all__ = ["ask_sagemaker", "get_sagemaker_input"]

_MODES = {"No distributed training": "NO", "Data parallelism": "DATA_PARALLEL"}
_PARALLEL_INSTANCES = ("ml.p3.16xlarge", "ml.p3dn.24xlarge", "ml.p4dn.24xlarge")


def get_sagemaker_input() -> SageMakerConfig:
    """Ask about training on Amazon SageMaker, and return the configuration. Nothing on AWS is touched.

    Raises:
        ConfigurationError: standard input has ended before the last answer.
    """
    return ask_sagemaker(interview())


def ask_sagemaker(ask: Interview) -> SageMakerConfig:
    """Go through the tree.

    Args:
        ask: puts the questions.
    """
    values: dict[str, Any] = {}
    if ask.confirm(
        "Use a profile of the AWS command line (otherwise keys are passed to launch)?", default=True
    ):
        values["profile"] = ask.text("Name of the profile?", "default")
    values["region"] = ask.text("AWS region?", "us-east-1")
    role = ask.text("Name of the IAM role that runs the training (it must exist)?", check=_something)
    if ask.confirm("Use a Docker image of your own?"):
        values["image_uri"] = ask.text("URI of the image?", check=_something)
    if ask.confirm("Is there a file with input channels?"):
        values["sagemaker_inputs_file"] = ask.text("Path of that file (tab-separated)?", check=_something)
    if ask.confirm("Is there a file with metrics to record?"):
        values["sagemaker_metrics_file"] = ask.text("Path of that file (tab-separated)?", check=_something)
    mode = _MODES[ask.choose("How is the run distributed?", list(_MODES), "No distributed training")]
    values["dynamo_config"] = ask_dynamo(ask)
    values |= _ask_instances(ask, parallel=mode != "NO")
    return SageMakerConfig(
        compute_environment=ComputeEnvironment.AMAZON_SAGEMAKER,
        distributed_type=SageMakerDistributedType(mode),
        mixed_precision=ask.option("mixed_precision", "no"),
        use_cpu=False,
        iam_role_name=role,
        **values,
    )


def _ask_instances(ask: Interview, *, parallel: bool) -> dict[str, Any]:
    if not parallel:
        return {"ec2_instance_type": ask.text("Type of machine?", "ml.p3.2xlarge"), "debug": False}
    return {
        "ec2_instance_type": ask.choose("Type of machine?", _PARALLEL_INSTANCES, _PARALLEL_INSTANCES[0]),
        "debug": ask.option("debug"),
        "num_machines": ask.text("How many machines take part?", "1", whole_number(1)),
    }


def _something(text: str) -> str:
    if not text.strip():
        raise ValueError("an answer is needed")
    return text.strip()
