"""TorchDynamoPlugin: whether and how prepared models are compiled. Passed to `Accelerator`."""

import dataclasses
from typing import Any

from accelerate.errors import ConfigurationError
from accelerate.options.codec import fill_from_environ
from accelerate.options.enums import DynamoBackend
from accelerate.options.field import option
from accelerate.options.handlers import KwargsHandler

__all__ = ["TorchDynamoPlugin"]


@dataclasses.dataclass
class TorchDynamoPlugin(KwargsHandler):
    """Choose arguments of `torch.compile` for prepared models.

    What is not passed is read from the environment when the plugin is made (`ACCELERATE_DYNAMO_*`).

    Args:
        backend: a `DynamoBackend` or its name in any case; NO compiles nothing.
        mode: `default`, `reduce-overhead`, `max-autotune` or another mode of `torch.compile`.
        fullgraph: whether a break in the graph is an error.
        dynamic: whether shapes are traced as symbols; None lets torch find out.
        options: options of the backend.
        disable: whether `torch.compile` does nothing, for tests.
        use_regional_compilation: whether repeated blocks are compiled one by one.

    Raises:
        ConfigurationError: `backend` names no backend.
        EnvironmentVariableError: a variable cannot be read.

    Example:
        >>> from accelerate.utils import TorchDynamoPlugin
        >>> TorchDynamoPlugin(backend="inductor", fullgraph=True).to_kwargs()
        {'backend': 'inductor', 'fullgraph': True}
    """

    backend: DynamoBackend = option(
        None, env="ACCELERATE_DYNAMO_BACKEND", fallback=DynamoBackend.NO, help="backend of torch.compile"
    )
    mode: str | None = option(
        None, env="ACCELERATE_DYNAMO_MODE", fallback="default", help="mode of torch.compile"
    )
    fullgraph: bool | None = option(
        None,
        env="ACCELERATE_DYNAMO_USE_FULLGRAPH",
        fallback=False,
        help="a break in the graph is an error",
    )
    dynamic: bool | None = option(
        None, env="ACCELERATE_DYNAMO_USE_DYNAMIC", help="trace shapes as symbols; unset lets torch find out"
    )
    options: Any = option(None, help="options of the backend")
    disable: bool = option(False, help="torch.compile does nothing")
    use_regional_compilation: bool | None = option(
        None,
        env="ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION",
        fallback=False,
        help="compile repeated blocks one by one",
    )

    def __post_init__(self) -> None:
        if self.backend is not None:
            self.backend = _backend(self.backend)
        fill_from_environ(self)

    def to_dict(self) -> dict[str, Any]:
        """Return a deep copy of every field, the backend in the lower case that torch uses."""
        return {**super().to_dict(), "backend": self.backend.value.lower()}

    def to_kwargs(self) -> dict[str, Any]:
        """Return the arguments of `torch.compile` that differ from the defaults."""
        return {
            name: value for name, value in super().to_kwargs().items() if name != "use_regional_compilation"
        }


def _backend(value: "DynamoBackend | str") -> DynamoBackend:
    try:
        return DynamoBackend(str(value).upper())
    except ValueError:
        raise ConfigurationError(
            f"TorchDynamoPlugin(backend={value!r}): use one of {', '.join(DynamoBackend.list())}"
        ) from None
