"""What the caller of `Accelerator(...)` asked for: arguments and environment, settled once. A value.

Precedence, in one place: precision is argument, else environment, else "no"; accumulation steps are the
plugin's, else the environment's, else the argument's; the CPU is asked for by argument or environment; the
project folder is the configuration's, else the argument's; each field of the dynamo plugin is the
argument's, else the environment's.
"""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, TypeVar

from accelerate.errors import ConfigurationError, EnvironmentVariableError
from accelerate.options.accumulation import GradientAccumulationPlugin
from accelerate.options.data import DataLoaderConfiguration
from accelerate.options.dynamo import TorchDynamoPlugin
from accelerate.options.enums import DynamoBackend, RNGType
from accelerate.options.fsdp import FullyShardedDataParallelPlugin
from accelerate.options.handlers import (
    AutocastKwargs,
    DistributedDataParallelKwargs,
    GradScalerKwargs,
    InitProcessGroupKwargs,
    KwargsHandler,
)
from accelerate.options.profile import ProfileKwargs
from accelerate.options.project import ProjectConfiguration

__all__ = [
    "NOT_GIVEN",
    "Request",
    "accumulation_plugin",
    "dataloader_configuration",
    "dynamo_plugin",
    "fsdp_plugin",
    "project_configuration",
    "refuse_absent",
    "sort_handlers",
]

ACCUMULATION_VARIABLE = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"

# Told apart from False, so that an argument that was really passed is honoured.
NOT_GIVEN: Any = object()

Handler = TypeVar("Handler", bound=KwargsHandler)


@dataclass(frozen=True, kw_only=True)
class Request:
    """Everything that an Accelerator is asked to be, before any hardware was looked at."""

    mixed_precision: str | None = None
    cpu: bool = False
    device_placement: bool = True
    step_scheduler_with_optimizer: bool = True
    step_scheduler_per_process: bool = True
    accumulation: GradientAccumulationPlugin = field(default_factory=lambda: GradientAccumulationPlugin(1))
    dataloader: DataLoaderConfiguration = field(default_factory=DataLoaderConfiguration)
    project: ProjectConfiguration = field(default_factory=ProjectConfiguration)
    rng_types: tuple[str | RNGType, ...] = ("generator",)
    ddp: DistributedDataParallelKwargs | None = None
    process_group: InitProcessGroupKwargs | None = None
    autocast: AutocastKwargs | None = None
    scaler: GradScalerKwargs | None = None
    profile: ProfileKwargs | None = None
    fsdp: FullyShardedDataParallelPlugin | None = None
    dynamo: TorchDynamoPlugin = field(default_factory=lambda: TorchDynamoPlugin(backend=DynamoBackend.NO))


# Variables by which a launcher asks for an engine that this version does not have yet.
_ABSENT_ENGINES = (
    "ACCELERATE_USE_DEEPSPEED",
    "ACCELERATE_USE_MEGATRON_LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG",
)


def refuse_absent(arguments: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Raise if something is asked for that this version does not have.

    Args:
        arguments: those of `Accelerator(...)` whose engines are absent; None, "no" and empty ask for nothing.
        environ: the environment, in which a launcher may ask for the same.

    Raises:
        ConfigurationError: something is asked for; the message says how to leave it out.
    """
    asked = [f"{name}={value!r}" for name, value in arguments.items() if _asks(value)]
    if asked:
        raise ConfigurationError(
            f"Accelerator({', '.join(asked)}): not available in this version. Leave it out."
        )
    wanted = {name: environ.get(name, "") for name in _ABSENT_ENGINES}
    found = [f"{name}={value}" for name, value in wanted.items() if value.strip().lower() in ("1", "true")]
    if found:
        raise EnvironmentVariableError(
            f"{', '.join(found)} in the environment: not available in this version. Unset it, or start with "
            "`accelerate launch` without the option that sets it."
        )


def _asks(value: Any) -> bool:
    value = getattr(value, "backend", value)  # a TorchDynamoPlugin may say "no", too
    return value is not None and str(value).strip().lower() not in ("", "no", "[]", "{}")


# handler class -> the field of Request that it fills
_HANDLER_FIELDS: dict[type[KwargsHandler], str] = {
    DistributedDataParallelKwargs: "ddp",
    InitProcessGroupKwargs: "process_group",
    AutocastKwargs: "autocast",
    GradScalerKwargs: "scaler",
    ProfileKwargs: "profile",
}

# handler class -> the argument of Accelerator that takes it
_ARGUMENTS: dict[type[KwargsHandler], str] = {
    GradientAccumulationPlugin: "gradient_accumulation_plugin",
    TorchDynamoPlugin: "dynamo_plugin",
}


def sort_handlers(handlers: Iterable[KwargsHandler] | None) -> dict[str, Any]:
    """Return the handlers by the field of `Request` that each fills.

    Raises:
        AssertionError: an element is no KwargsHandler (callers of the interface catch this type).
        ConfigurationError: two of one class, or a class that this version does not know.
    """
    sorted_handlers: dict[str, Any] = {}
    for handler in handlers or ():
        if not isinstance(handler, KwargsHandler):
            raise AssertionError(
                f"kwargs_handlers must hold KwargsHandler objects, such as DistributedDataParallelKwargs(); "
                f"it holds {handler!r}."
            )
        name = next((name for kind, name in _HANDLER_FIELDS.items() if isinstance(handler, kind)), None)
        if name is None:
            raise ConfigurationError(_out_of_place(handler))
        if name in sorted_handlers:
            raise ConfigurationError(
                f"kwargs_handlers holds two {type(handler).__name__}; pass one with all the settings."
            )
        sorted_handlers[name] = handler
    return sorted_handlers


def _out_of_place(handler: KwargsHandler) -> str:
    argument = _ARGUMENTS.get(type(handler))
    if argument is not None:
        return f"kwargs_handlers holds {handler!r}: pass it as Accelerator({argument}=...)."
    known = ", ".join(kind.__name__ for kind in _HANDLER_FIELDS)
    return (
        f"kwargs_handlers holds a {type(handler).__name__}, which is not available in this version; "
        f"it has {known}."
    )


def dynamo_plugin(backend: DynamoBackend | str | None, plugin: TorchDynamoPlugin | None) -> TorchDynamoPlugin:
    """Settle whether and how models are compiled.

    Raises:
        ConfigurationError: both were given, or `backend` names none.
    """
    if backend is not None and plugin is not None:
        raise ConfigurationError(
            f"dynamo_backend={str(backend)!r} and dynamo_plugin={plugin!r} were both passed: pass one."
        )
    return plugin or TorchDynamoPlugin(backend=backend)  # type: ignore[arg-type]  # None: the environment's


def fsdp_plugin(
    plugin: FullyShardedDataParallelPlugin | None, environ: Mapping[str, str]
) -> FullyShardedDataParallelPlugin | None:
    """Settle whether and how models are sharded; ACCELERATE_USE_FSDP asks for it by the environment.

    Raises:
        ConfigurationError: `plugin` is none.
    """
    if plugin is not None and not isinstance(plugin, FullyShardedDataParallelPlugin):
        raise ConfigurationError(
            f"Accelerator(fsdp_plugin={plugin!r}): pass a FullyShardedDataParallelPlugin. Leave it out to "
            "train without sharding."
        )
    if plugin is None and environ.get("ACCELERATE_USE_FSDP", "").strip().lower() in ("1", "true"):
        return FullyShardedDataParallelPlugin()
    return plugin


def accumulation_plugin(
    steps: int | str, plugin: GradientAccumulationPlugin | None, environ: Mapping[str, str]
) -> GradientAccumulationPlugin:
    """Settle the accumulation steps.

    Raises:
        ConfigurationError: both `steps` and a plugin were given, or `steps` is no whole number above 0.
    """
    steps = _whole(steps)
    if plugin is not None:
        if steps != 1:
            raise ConfigurationError(
                f"gradient_accumulation_steps={steps} and gradient_accumulation_plugin={plugin!r} "
                "were both passed: pass one of them."
            )
        return plugin
    text = environ.get(ACCUMULATION_VARIABLE)
    if text is not None:
        try:
            from_environment = int(text)
        except ValueError:
            raise EnvironmentVariableError(
                f"{ACCUMULATION_VARIABLE}={text!r} in the environment is not an integer."
            ) from None
        if steps not in (1, from_environment):
            warnings.warn(
                f"{ACCUMULATION_VARIABLE}={from_environment} in the environment replaces "
                f"gradient_accumulation_steps={steps}.",
                stacklevel=3,
            )
        if from_environment < 1:
            raise EnvironmentVariableError(f"{ACCUMULATION_VARIABLE}={text}: it must be at least 1.")
        steps = from_environment
    return GradientAccumulationPlugin(num_steps=steps)


def _whole(steps: int | str) -> int:
    """Return a number that was passed as such, or as text."""
    try:
        number = int(steps)
    except (TypeError, ValueError, OverflowError):
        number = 0
    if number < 1 or (not isinstance(steps, str) and number != steps):
        raise ConfigurationError(
            f"gradient_accumulation_steps={steps!r}: it must be a whole number, at least 1."
        )
    return number


def dataloader_configuration(
    split_batches: Any, configuration: DataLoaderConfiguration | None
) -> DataLoaderConfiguration:
    """Settle how loaders are shared out; the constructor's `split_batches` fills the configuration's.

    Raises:
        ConfigurationError: the two contradict each other.
    """
    if split_batches is NOT_GIVEN:
        return configuration or DataLoaderConfiguration()
    if configuration is not None and configuration.split_batches != split_batches:
        raise ConfigurationError(
            f"split_batches={split_batches} contradicts dataloader_config={configuration!r}: pass it in "
            "DataLoaderConfiguration only."
        )
    return configuration or DataLoaderConfiguration(split_batches=bool(split_batches))


def project_configuration(
    project_dir: str | PathLike[str] | None, configuration: ProjectConfiguration | None
) -> ProjectConfiguration:
    """Settle where the run writes; `project_dir` fills the configuration's, in place, where that is None."""
    project = configuration or ProjectConfiguration()
    if project_dir is None or project.project_dir == project_dir:
        return project
    if project.project_dir is None:
        project.set_directories(project_dir)
    else:
        warnings.warn(
            f"project_dir={project_dir!r} is not used: project_config names {project.project_dir!r}. "
            "Pass one of them.",
            stacklevel=3,
        )
    return project
