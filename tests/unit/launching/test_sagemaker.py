import sys
import types
from pathlib import Path
from typing import Any

import pytest

from accelerate.errors import ConfigurationError, MissingPackageError
from accelerate.launching.machine import Machine
from accelerate.launching.plan import resolve
from accelerate.launching.sagemaker import SageMakerJob, SageMakerLauncher, hyperparameters, plan_job, submit
from accelerate.options.launch import LaunchPlan

MACHINE = Machine(installed_gpus=0, gpus=0, evidence="none", cores=4)
SETTINGS = {
    "distributed_type": "DATA_PARALLEL",
    "ec2_instance_type": "ml.p3.16xlarge",
    "iam_role_name": "role",
    "profile": "me",
    "num_machines": 2,
}


def plan(script: str = "s.py", *arguments: str, **typed: Any) -> LaunchPlan:
    given = {"training_script": script, "training_script_args": arguments, **typed}
    return resolve(given, MACHINE, {}).plan


def test_the_job_is_that_of_the_interface() -> None:
    job = plan_job(SETTINGS, plan("code/s.py", "--lr", "1", mixed_precision="bf16"))
    assert job == SageMakerJob(
        estimator={
            "image_uri": None,
            "entry_point": "s.py",
            "source_dir": "code",
            "role": "role",
            "transformers_version": "4.17.0",
            "pytorch_version": "1.10.2",
            "py_version": "py38",
            "base_job_name": "accelerate-sagemaker-1",
            "instance_count": 2,
            "instance_type": "ml.p3.16xlarge",
            "debugger_hook_config": False,
            "distribution": {"smdistributed": {"dataparallel": {"enabled": True}}},
            "hyperparameters": {"lr": 1},
            "environment": {
                "ACCELERATE_USE_SAGEMAKER": "true",
                "ACCELERATE_MIXED_PRECISION": "bf16",
                "ACCELERATE_DYNAMO_BACKEND": "NO",
                "ACCELERATE_DYNAMO_MODE": "default",
                "ACCELERATE_DYNAMO_USE_FULLGRAPH": "False",
                "ACCELERATE_DYNAMO_USE_DYNAMIC": "False",
                "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION": "False",
                "ACCELERATE_SAGEMAKER_DISTRIBUTED_TYPE": "DATA_PARALLEL",
            },
            "metric_definitions": None,
        },
        inputs=None,
        credentials={"AWS_DEFAULT_REGION": "us-east-1", "AWS_PROFILE": "me"},
    )


def test_keys_and_further_arguments() -> None:
    settings = {**SETTINGS, "profile": None, "distributed_type": "NO", "additional_args": {"max_run": 5}}
    job = plan_job(settings, plan(aws_access_key_id="k", aws_secret_access_key="s"))
    assert job.credentials == {
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
    }
    assert (job.estimator["distribution"], job.estimator["max_run"]) == (None, 5)


def test_files_with_inputs_and_metrics(tmp_path: Path) -> None:
    (tmp_path / "inputs").write_text("channel\tplace\ntrain\ts3://a\neval\ts3://b\n")
    (tmp_path / "metrics").write_text("name\tregex\nloss\tloss=(.*)\n")
    files = {name: str(tmp_path / name) for name in ("inputs", "metrics")}
    job = plan_job(
        {**SETTINGS, "sagemaker_inputs_file": files["inputs"], "sagemaker_metrics_file": files["metrics"]},
        plan(),
    )
    assert job.inputs == {"train": "s3://a", "eval": "s3://b"}
    assert job.estimator["metric_definitions"] == [{"Name": "loss", "Regex": "loss=(.*)"}]


def test_hyperparameters_have_types() -> None:
    words = ["--lr", "1e-3", "--name=x", "--n", "3", "--b", "True", "--delta", "-1"]
    assert hyperparameters(words) == {"lr": 0.001, "name": "x", "n": 3, "b": True, "delta": -1}


@pytest.mark.parametrize("words", [["--flag"], ["--flag", "--lr", "1"], ["alone"], ["--lr", "1", "alone"]])
def test_arguments_that_are_no_pairs(words: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="pairs of a name and a value"):
        hyperparameters(words)


def test_all_that_is_missing_is_listed() -> None:
    with pytest.raises(ConfigurationError) as caught:
        plan_job({}, plan("s.sh"))
    for words in ("ec2_instance_type", "iam_role_name", "no way to sign in", "s.sh: SageMaker runs a script"):
        assert words in str(caught.value)


def test_the_launcher_is_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = SageMakerLauncher(SETTINGS)
    script = tmp_path / "s.py"
    script.touch()
    assert launcher.problems(plan(str(script))) == []
    assert "there is no script" in launcher.problems(plan("missing.py"))[0]
    assert launcher.command(plan("s.py", "--lr", "1")) == ["s.py", "--lr", "1"]
    assert launcher.environ(plan())["ACCELERATE_USE_SAGEMAKER"] == "true"
    assert not launcher.accepts(plan())


def test_submitting_needs_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sagemaker", None)
    with pytest.raises(MissingPackageError, match="pip install sagemaker"):
        submit(plan_job(SETTINGS, plan()))


def test_submitting_hands_the_job_over(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    calls: list[Any] = []

    class HuggingFace:
        def __init__(self, **arguments: Any) -> None:
            calls.append((arguments["entry_point"], os.environ["AWS_PROFILE"]))

        def fit(self, inputs: object) -> None:
            calls.append(inputs)

    package, module = types.ModuleType("sagemaker"), types.ModuleType("sagemaker.huggingface")
    module.HuggingFace = HuggingFace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sagemaker", package)
    monkeypatch.setitem(sys.modules, "sagemaker.huggingface", module)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    assert SageMakerLauncher(SETTINGS).run(plan()) == 0
    assert calls == [("s.py", "me"), None]
    assert "AWS_PROFILE" not in os.environ
