"""Configuration files: YAML or JSON text to launch options and back. Read by commands/launch.py and config/.

[Note: keys]
A *key* is where a value stands in the file: `num_processes`, or with its *section*, as in
`fsdp_config.fsdp_version`. Options name their keys (options/launch_*.py). A *legacy* key is an old or another
spelling, or one that has gone; the table `LEGACY` says what becomes of each, and each is warned about. In
some sections the prefix of the section may be left out (`SHORT`).
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from accelerate.errors import ConfigurationError, MissingConfigurationError
from accelerate.options.config_values import convert, is_absent
from accelerate.options.enums import ComputeEnvironment, DistributedType, SageMakerDistributedType
from accelerate.options.field import OptionInfo, options
from accelerate.options.launch import LaunchPlan

__all__ = [
    "LEGACY",
    "ConfigFile",
    "default_config_file",
    "flatten",
    "parse",
    "parse_text",
    "read",
    "renew",
    "sections",
    "to_content",
    "to_text",
    "write",
]


@dataclass(frozen=True, kw_only=True)
class Legacy:
    """What becomes of a key that is no longer written.

    Attributes:
        key: the key that it stands for now; None where its value has no effect any more.
        why: the rest of the warning.
    """

    key: str | None
    why: str


LEGACY: Mapping[str, Legacy] = {
    "fp16": Legacy(key="mixed_precision", why="fp16: true is now mixed_precision: fp16"),
    "dynamo_backend": Legacy(
        key="dynamo_config.dynamo_backend", why="it belongs under dynamo_config, as dynamo_backend"
    ),
    "ipex_config": Legacy(key=None, why="torch itself is optimized for Intel processors; remove it"),
    "use_xpu": Legacy(key=None, why="Intel GPUs are found without it; remove it"),
    "fsdp_config.fsdp_backward_prefetch_policy": Legacy(
        key="fsdp_config.fsdp_backward_prefetch", why="its name is now fsdp_backward_prefetch"
    ),
    "fsdp_config.limit_all_gathers": Legacy(key=None, why="this limit is always on; remove it"),
    "fp8_config.amax_history_length": Legacy(
        key="fp8_config.fp8_amax_history_len", why="its name is fp8_amax_history_len"
    ),
    "fp8_config.amax_compute_algorithm": Legacy(
        key="fp8_config.fp8_amax_compute_algo", why="its name is fp8_amax_compute_algo"
    ),
    "fp8_config.optimization_level": Legacy(key="fp8_config.fp8_opt_level", why="its name is fp8_opt_level"),
}

# Section -> prefix that its keys may lack.
SHORT = {"fsdp_config": "fsdp_", "fp8_config": "fp8_", "dynamo_config": "dynamo_"}

_TYPE_OF_PARADIGM = {
    "use_deepspeed": "DEEPSPEED",
    "use_fsdp": "FSDP",
    "use_megatron_lm": "MEGATRON_LM",
    "tpu": "XLA",
    "multi_gpu": "MULTI_GPU",
}

# Values with which files of the interface say that something is left open.
_OPEN = {"num_processes": -1}

# Keys that other commands read, or that only one kind of file has.
COMMON = ("compute_environment", "distributed_type")
OTHER_COMMANDS = ("command_file", "commands")
SAGEMAKER = (
    "additional_args",
    "base_job_name",
    "ec2_instance_type",
    "iam_role_name",
    "image_uri",
    "profile",
    "py_version",
    "pytorch_version",
    "region",
    "sagemaker_inputs_file",
    "sagemaker_metrics_file",
    "transformers_version",
)
SAGEMAKER_SHARED = ("mixed_precision", "use_cpu", "debug", "num_machines", "gpu_ids", "enable_cpu_affinity")


@dataclass(frozen=True, kw_only=True)
class ConfigFile:
    """What a configuration file says.

    Attributes:
        path: where it is.
        compute_environment: LOCAL_MACHINE or AMAZON_SAGEMAKER.
        distributed_type: name of the distributed type; None when the file leaves it open.
        values: option of the launch -> value.
        keys: option of the launch -> the key that gave its value, as it is spelled in the file.
        rest: key -> value, of what is no option of the launch.
        problems: everything that is wrong with the file, a line each.
        warnings: legacy keys, a line each.
    """

    path: str
    compute_environment: str = ComputeEnvironment.LOCAL_MACHINE.value
    distributed_type: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    rest: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def on_sagemaker(self) -> bool:
        """Whether the run is a job on Amazon SageMaker."""
        return self.compute_environment == ComputeEnvironment.AMAZON_SAGEMAKER.value


def default_config_file(environ: Mapping[str, str]) -> Path:
    """Return where the default configuration file is, whether it exists or not."""
    cache_folder = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    home = environ.get("HF_HOME") or os.path.join(cache_folder, "huggingface")
    return Path(os.path.expanduser(home)) / "accelerate" / "default_config.yaml"


def read(path: str | Path) -> ConfigFile:
    """Read a configuration file; what is wrong with its keys and values is in `problems`.

    Raises:
        MissingConfigurationError: there is no such file (a FileNotFoundError).
        ConfigurationError: the text is no YAML or JSON, or no mapping.
    """
    return parse(parse_text(path), str(path))


def parse_text(path: str | Path) -> dict[str, Any]:
    """Return the mapping that a file holds, whatever its keys: JSON where its name says so, else YAML.

    Raises:
        MissingConfigurationError: there is no such file (a FileNotFoundError).
        ConfigurationError: the text is no YAML or JSON, or no mapping.
    """
    file = Path(path)
    if file.is_dir():
        raise MissingConfigurationError(f"the configuration file {path} is a folder: give a file in it")
    if not file.exists():
        raise MissingConfigurationError(
            f"the configuration file {path} does not exist: give the path of one, or write it with "
            f"`accelerate config --config_file {path}`"
        )
    try:
        text = file.read_text(encoding="utf-8")
        content = _load_json(text) if file.suffix == ".json" else _load_yaml(text)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path} holds no `key: value` lines but {type(content).__name__}")
    return {str(key): value for key, value in content.items()}


# Most launches read no file: what reads one is loaded when there is one.
def _load_json(text: str) -> Any:
    import json

    return json.loads(text)


def _load_yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def to_text(content: Mapping[str, Any], path: str | Path) -> str:
    """Return a mapping as text with sorted keys: JSON where the name of its file ends in .json, else YAML."""
    if str(path).endswith(".json"):
        import json

        return json.dumps(content, indent=2, sort_keys=True) + "\n"
    import yaml

    return str(yaml.safe_dump(dict(content)))


def write(text: str, path: str | Path) -> None:
    """Write a configuration file, and the folder for it.

    Raises:
        ConfigurationError: there can be no such file.
    """
    file = Path(path)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"the configuration file {path} cannot be written: {error.strerror}; give another place with "
            "--config_file, or a home that can be written to in HF_HOME"
        ) from error


def parse(content: Mapping[str, Any], path: str) -> ConfigFile:
    """Return what a mapping means for a launch.

    Args:
        content: what stands in the file.
        path: its name, for messages.
    """
    return _Parser(path).parse(content)


def renew(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping with legacy keys inside sections renamed, and without those that have gone."""
    new: dict[str, Any] = {key: dict(v) if isinstance(v, dict) else v for key, v in content.items()}
    for written, legacy in LEGACY.items():
        section, _, name = written.rpartition(".")
        holder = new.get(section) if section else new
        if not isinstance(holder, dict) or name not in holder:
            continue
        if legacy.key is None:
            del holder[name]
        elif section:
            holder.setdefault(legacy.key.rpartition(".")[2], holder.pop(name))
    return new


def to_content(plan: LaunchPlan) -> dict[str, Any]:
    """Return what a file holds that stands for a plan: read again, it gives the same launch.

    Defaults are left out, and so is what no file holds: the script, the output, torch elastic's own options.
    """
    content: dict[str, Any] = {"distributed_type": _distributed_type(plan)}
    for info in options(LaunchPlan):
        value = getattr(plan, info.name)
        unsaid = value == info.default and plan.sources.get(info.name, "default") == "default"
        if info.key is None or value is None or unsaid:
            continue
        section, _, name = info.key.rpartition(".")
        target = content.setdefault(section, {}) if section else content
        target[name] = list(value) if isinstance(value, tuple) else value
    return content


def _distributed_type(plan: LaunchPlan) -> str:
    for name, kind in _TYPE_OF_PARADIGM.items():
        if getattr(plan, name):
            return kind
    return "MULTI_CPU" if plan.cpu and plan.num_processes > 1 else "NO"


def flatten(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (key, value) for everything in a mapping, sections opened."""
    for name, value in content.items():
        if name in sections() and isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", item) for inner, item in value.items())
        else:
            yield name, value


@cache
def sections() -> frozenset[str]:
    """Return the names of all sections."""
    return frozenset(key.partition(".")[0] for key in _by_key() if "." in key)


@cache
def _by_key() -> Mapping[str, OptionInfo]:
    return {info.key: info for info in options(LaunchPlan) if info.key is not None}


class _Parser:
    """Reads one file, and collects what is wrong with it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._values: dict[str, Any] = {}
        self._keys: dict[str, str] = {}
        self._rest: dict[str, Any] = {}
        self._problems: list[str] = []
        self._warnings: list[str] = []

    def parse(self, content: Mapping[str, Any]) -> ConfigFile:
        environment = self._member(content, "compute_environment", ComputeEnvironment) or "LOCAL_MACHINE"
        on_aws = environment == ComputeEnvironment.AMAZON_SAGEMAKER.value
        kinds = SageMakerDistributedType if on_aws else DistributedType
        distributed_type = self._member(content, "distributed_type", kinds)
        known = _sagemaker_keys() if on_aws else (*_by_key(), *OTHER_COMMANDS)
        for key, value in flatten(content):
            if key not in COMMON:
                self._take(key, value, known)
        return ConfigFile(
            path=self._path,
            compute_environment=environment,
            distributed_type=distributed_type,
            values=self._values,
            keys=self._keys,
            rest=self._rest,
            problems=tuple(self._problems),
            warnings=tuple(self._warnings),
        )

    def _member(self, content: Mapping[str, Any], key: str, kind: Any) -> str | None:
        """Return the value of an enumeration. YAML reads an unquoted NO as false."""
        value = content.get(key)
        if value is None:
            return None
        text = "NO" if value is False else str(value).upper()
        names = [str(member.value) for member in kind]
        if text in names:
            return text
        self._problems.append(f"{key}: {value} in {self._path}: use one of {', '.join(names)}")
        return None

    def _take(self, written: str, value: Any, known: tuple[str, ...]) -> None:
        key = _full(written)
        legacy = LEGACY.get(written)
        if legacy is not None:
            self._warnings.append(f"{written} in {self._path}: {legacy.why}")
            if legacy.key is None or is_absent(value):
                return
            key = legacy.key
            if key in self._given_keys():
                return  # the present spelling wins
            value = _modernized(written, value)
        if written in sections():
            if not is_absent(value):
                self._problems.append(f"{written} in {self._path}: this is a section of keys, not one value")
        elif key not in known:
            self._problems.append(f"{written} in {self._path}: there is no such key{_hint(written, known)}")
        elif not is_absent(value) and _OPEN.get(key) != value:
            self._store(written, key, value)

    def _store(self, written: str, key: str, value: Any) -> None:
        info = _by_key().get(key)
        if info is None:
            self._rest[key] = value
            return
        try:
            self._values[info.name] = convert(info, value)
            self._keys[info.name] = written
        except ValueError as error:
            self._problems.append(f"{written}: {_shown(value)} in {self._path}: {error}")

    def _given_keys(self) -> set[str]:
        return {_full(key) for key in self._keys.values() if key not in LEGACY}


def _sagemaker_keys() -> tuple[str, ...]:
    dynamo = [key for key in _by_key() if key.startswith("dynamo_config.")]
    return (*SAGEMAKER, *SAGEMAKER_SHARED, *dynamo)


def _full(written: str) -> str:
    """Return a key with the prefix of its section, where it may lack it."""
    section, _, name = written.partition(".")
    prefix = SHORT.get(section, "")
    return f"{section}.{prefix}{name}" if name and not name.startswith(prefix) else written


def _modernized(written: str, value: Any) -> Any:
    if written == "fp16":
        return "fp16" if value and str(value).lower() not in ("no", "false") else "no"
    return value


def _hint(written: str, known: tuple[str, ...]) -> str:
    """Return the nearest key, in words: first the same name in another place."""
    from difflib import get_close_matches

    name = written.rpartition(".")[2]
    elsewhere = [key for key in known if key.rpartition(".")[2] == name]
    near = elsewhere or get_close_matches(_full(written), known, n=1) or get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
