"""ClusterConfig and SageMakerConfig: a configuration file as an object. Clients load them; the questionnaire
makes them. What the keys mean is in options/config_file.py.
"""

import dataclasses
import os
from collections.abc import Mapping
from enum import Enum
from typing import Any

from typing_extensions import Self

from accelerate.compat import env
from accelerate.errors import ConfigurationError, listing
from accelerate.options.config_file import default_config_file as _default_config_file
from accelerate.options.config_file import parse, parse_text, renew, to_text, write
from accelerate.options.enums import ComputeEnvironment, DistributedType, SageMakerDistributedType

__all__ = [
    "BaseConfig",
    "ClusterConfig",
    "SageMakerConfig",
    "cache_dir",
    "default_config_file",
    "default_json_config_file",
    "default_yaml_config_file",
    "hf_cache_home",
    "load_config_from_file",
]

# Clients read these as constants: they are computed when this module is imported.
default_yaml_config_file = str(_default_config_file(env.snapshot()))
default_json_config_file = default_yaml_config_file  # as in the interface: there is one default file
default_config_file = default_yaml_config_file
cache_dir = os.path.dirname(default_config_file)
hf_cache_home = os.path.dirname(cache_dir)


def load_config_from_file(config_file: str | None) -> "ClusterConfig | SageMakerConfig":
    """Load a configuration file.

    Args:
        config_file: its path; the default file when None.

    Returns:
        A `ClusterConfig`, or a `SageMakerConfig` where `compute_environment` says AMAZON_SAGEMAKER.

    Raises:
        MissingConfigurationError: there is no such file (a FileNotFoundError).
        ConfigurationError: a key is unknown or missing, or a value cannot be read; all of that is listed.
    """
    path = default_config_file if config_file is None else str(config_file)
    content = parse_text(path)
    on_aws = content.get("compute_environment") == ComputeEnvironment.AMAZON_SAGEMAKER.value
    return (SageMakerConfig if on_aws else ClusterConfig)._from_content(content, path)


@dataclasses.dataclass
class BaseConfig:
    """What every configuration has.

    Attributes:
        compute_environment: this machine or Amazon SageMaker.
        distributed_type: how the run is distributed.
        mixed_precision: no, fp16, bf16 or fp8.
        use_cpu: whether the run stays on the CPU.
        debug: whether the shapes of all collectives are checked.
    """

    compute_environment: ComputeEnvironment
    distributed_type: DistributedType | SageMakerDistributedType
    mixed_precision: str
    use_cpu: bool
    debug: bool

    def __post_init__(self) -> None:
        """Turn texts into members of their enumerations, and a missing section into an empty one."""
        if isinstance(self.compute_environment, str):
            self.compute_environment = ComputeEnvironment(self.compute_environment)
        if isinstance(self.distributed_type, str):
            on_aws = self.compute_environment is ComputeEnvironment.AMAZON_SAGEMAKER
            kinds = SageMakerDistributedType if on_aws else DistributedType
            self.distributed_type = kinds(self.distributed_type)
        if getattr(self, "dynamo_config", None) is None:
            setattr(self, "dynamo_config", {})  # noqa: B010  # the subclasses declare it

    def to_dict(self) -> dict[str, Any]:
        """Return what is written into a file: values of enumerations, and nothing that is None or empty."""
        texts = {
            name: value.value if isinstance(value, Enum) else value for name, value in vars(self).items()
        }
        return {name: value for name, value in texts.items() if value is not None and value != {}}

    @staticmethod
    def process_config(config_dict: dict[str, Any]) -> dict[str, Any]:
        """Return constructor arguments from what stands in a file: defaults filled in, old keys renewed.

        Args:
            config_dict: the mapping of the file.

        Raises:
            ConfigurationError: `distributed_type` is missing.
        """
        values = {**config_dict}
        values["compute_environment"] = values.get("compute_environment") or "LOCAL_MACHINE"
        if "distributed_type" not in values:
            raise ConfigurationError("A `distributed_type` must be specified in the config file.")
        if values["distributed_type"] is False:
            values["distributed_type"] = "NO"  # YAML reads an unquoted NO as false
        if values["distributed_type"] == "NO":
            values.setdefault("num_processes", 1)
        legacy_fp16 = values.pop("fp16", None)
        if values.get("mixed_precision") is False:
            values["mixed_precision"] = "no"
        values.setdefault("mixed_precision", "fp16" if legacy_fp16 else None)
        backend = values.pop("dynamo_backend", None)
        if backend is not None and not values.get("dynamo_config"):
            off = backend is False or str(backend).upper() == "NO"
            values["dynamo_config"] = {} if off else {"dynamo_backend": backend}
        for name in ("use_cpu", "debug", "enable_cpu_affinity"):
            values.setdefault(name, False)
        return values

    @classmethod
    def from_json_file(cls, json_file: str | None = None) -> Self:
        """Load a file as this class; `load_config_from_file` finds out which class it is.

        Args:
            json_file: path; the default file when None.
        """
        return cls._from_file(default_json_config_file if json_file is None else json_file)

    @classmethod
    def from_yaml_file(cls, yaml_file: str | None = None) -> Self:
        """Load a file as this class; `load_config_from_file` finds out which class it is.

        Args:
            yaml_file: path; the default file when None.
        """
        return cls._from_file(default_yaml_config_file if yaml_file is None else yaml_file)

    def to_json_file(self, json_file: str) -> None:
        """Write JSON, sorted by key.

        Args:
            json_file: path.
        """
        import json

        with open(json_file, "w", encoding="utf-8") as file:
            file.write(json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n")

    def to_yaml_file(self, yaml_file: str) -> None:
        """Write YAML, sorted by key.

        Args:
            yaml_file: path.
        """
        import yaml

        with open(yaml_file, "w", encoding="utf-8") as file:
            file.write(yaml.safe_dump(self.to_dict()))

    def save(self, path: str) -> None:
        """Write JSON where the path ends in .json, else YAML."""
        write(to_text(self.to_dict(), path), path)

    @classmethod
    def _from_file(cls, path: str) -> Self:
        return cls._from_content(parse_text(path), str(path))

    @classmethod
    def _from_content(cls, content: Mapping[str, Any], path: str) -> Self:
        problems = parse(content, path).problems
        if problems:
            raise ConfigurationError(_in_words_of_the_interface(problems, path))
        values = cls.process_config(renew(content))
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})


def _in_words_of_the_interface(problems: tuple[str, ...], path: str) -> str:
    return f"the config file at {path} cannot be used: {listing(problems)}"


@dataclasses.dataclass
class ClusterConfig(BaseConfig):
    """A configuration for this machine, or for several that are reached over the network."""

    num_processes: int = -1
    machine_rank: int = 0
    num_machines: int = 1
    gpu_ids: str | None = None
    main_process_ip: str | None = None
    main_process_port: int | None = None
    rdzv_backend: str | None = "static"
    same_network: bool | None = False
    main_training_function: str = "main"
    enable_cpu_affinity: bool = False
    fp8_config: dict[str, Any] | None = None
    deepspeed_config: dict[str, Any] | None = None
    fsdp_config: dict[str, Any] | None = None
    parallelism_config: dict[str, Any] | None = None
    megatron_lm_config: dict[str, Any] | None = None
    mpirun_config: dict[str, Any] | None = None
    downcast_bf16: bool = False
    tpu_name: str | None = None
    tpu_zone: str | None = None
    tpu_use_cluster: bool = False
    tpu_use_sudo: bool = False
    command_file: str | None = None
    commands: list[str] = None  # type: ignore[assignment]  # as the interface declares it
    tpu_vm: list[str] = None  # type: ignore[assignment]
    tpu_env: list[str] = None  # type: ignore[assignment]
    dynamo_config: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        """Turn a missing section into an empty one."""
        for name in (
            "deepspeed_config",
            "fsdp_config",
            "megatron_lm_config",
            "mpirun_config",
            "fp8_config",
            "parallelism_config",
        ):
            if getattr(self, name) is None:
                setattr(self, name, {})
        super().__post_init__()


@dataclasses.dataclass
class SageMakerConfig(BaseConfig):
    """A configuration for training on Amazon SageMaker."""

    ec2_instance_type: str
    iam_role_name: str
    image_uri: str | None = None
    profile: str | None = None
    region: str = "us-east-1"
    num_machines: int = 1
    gpu_ids: str = "all"
    base_job_name: str = f"accelerate-sagemaker-{num_machines}"
    pytorch_version: str = "1.10.2"
    transformers_version: str = "4.17.0"
    py_version: str = "py38"
    sagemaker_inputs_file: str | None = None
    sagemaker_metrics_file: str | None = None
    additional_args: dict[str, Any] | None = None
    dynamo_config: dict[str, Any] | None = None
    enable_cpu_affinity: bool = False
