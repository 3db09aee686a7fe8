"""What the caller of `Accelerator(...)` asked for: arguments and environment, settled once. A value.

Precedence, in one place: precision is argument, else environment, else "no"; accumulation steps are the
plugin's, else the environment's, else the argument's; the CPU is asked for by argument or environment.
"""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from accelerate.errors import ConfigurationError, EnvironmentVariableError
from accelerate.options.accumulation import GradientAccumulationPlugin
from accelerate.options.data import DataLoaderConfiguration
from accelerate.options.enums import RNGType
from accelerate.options.handlers import (
    AutocastKwargs,
    DistributedDataParallelKwargs,
    GradScalerKwargs,
    InitProcessGroupKwargs,
    KwargsHandler,
)
from accelerate.options.project import ProjectConfiguration

__all__ = [
    "NOT_GIVEN",
    "Request",
    "accumulation_plugin",
    "dataloader_configuration",
    "refuse_absent_engines",
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
    accumulation: GradientAccumulationPlugin = field(default_factory=lambda: GradientAccumulationPlugin(1))
    dataloader: DataLoaderConfiguration = field(default_factory=DataLoaderConfiguration)
    project: ProjectConfiguration = field(default_factory=ProjectConfiguration)
    rng_types: tuple[str | RNGType, ...] = ("generator",)
    ddp: DistributedDataParallelKwargs | None = None
    process_group: InitProcessGroupKwargs | None = None
    autocast: AutocastKwargs | None = None
    scaler: GradScalerKwargs | None = None


# handler class -> the field of Request that it fills
_HANDLER_FIELDS: dict[type[KwargsHandler], str] = {
    DistributedDataParallelKwargs: "ddp",
    InitProcessGroupKwargs: "process_group",
    AutocastKwargs: "autocast",
    GradScalerKwargs: "scaler",
}


# What a launcher asks for in the environment and this version does not have.
_ABSENT_ENGINES = {
    "ACCELERATE_USE_FSDP": "FSDP",
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "ParallelismConfig",
}


def refuse_absent_engines(environ: Mapping[str, str]) -> None:
    """Check that the environment asks for no engine that is missing, rather than train without it.

    Raises:
        ConfigurationError: it does.
    """
    for variable, engine in _ABSENT_ENGINES.items():
        if environ.get(variable, "").lower() == "true":
            raise ConfigurationError(
                f"{variable}={environ[variable]} in the environment asks for {engine}, which is not "
                f"available in this version. Unset {variable}, or start without that option."
            )


def sort_handlers(handlers: Iterable[KwargsHandler] | None) -> dict[str, KwargsHandler]:
    """Return the handlers by the field of `Request` that each fills.

    Raises:
        AssertionError: an element is no KwargsHandler (callers of the interface catch this type).
        ConfigurationError: two of one class, or a class that this version does not know.
    """
    sorted_handlers: dict[str, KwargsHandler] = {}
    for handler in handlers or ():
        if not isinstance(handler, KwargsHandler):
            raise AssertionError(
                f"kwargs_handlers must hold KwargsHandler objects, such as DistributedDataParallelKwargs(); "
                f"it holds {handler!r}."
            )
        name = next((name for kind, name in _HANDLER_FIELDS.items() if isinstance(handler, kind)), None)
        if name is None:
            known = ", ".join(kind.__name__ for kind in _HANDLER_FIELDS)
            raise ConfigurationError(
                f"kwargs_handlers holds a {type(handler).__name__}, which is not available in this version; "
                f"it has {known}."
            )
        if name in sorted_handlers:
            raise ConfigurationError(
                f"kwargs_handlers holds two {type(handler).__name__}; pass one with all the settings."
            )
        sorted_handlers[name] = handler
    return sorted_handlers


def accumulation_plugin(
    steps: int, plugin: GradientAccumulationPlugin | None, environ: Mapping[str, str]
) -> GradientAccumulationPlugin:
    """Settle the accumulation steps.

    Raises:
        ConfigurationError: both `steps` and a plugin were given, or the number is below 1.
    """
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
                stacklevel=4,
            )
        steps = from_environment
    if steps < 1:
        raise ConfigurationError(f"gradient_accumulation_steps={steps}: it must be at least 1.")
    return GradientAccumulationPlugin(num_steps=steps)


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
