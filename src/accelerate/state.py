"""The interface's shared states: three classes whose instances all show the one current run.

Users and client libraries construct them freely; inside the package nothing does, it takes the current
run as an argument. `PartialState` is who and where this process is, `AcceleratorState` adds how it trains,
`GradientState` is the accumulation window.
"""

import functools
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn, ParamSpec, TypeVar

import torch

from accelerate.compat.env import parse_choice_from_env
from accelerate.errors import ConfigurationError
from accelerate.options.accumulation import GradientAccumulationPlugin
from accelerate.options.enums import DistributedType, PrecisionType
from accelerate.runtime import process_group
from accelerate.runtime.accumulation import Accumulation, accumulation
from accelerate.runtime.current import Current, RankFacts, current, settle_sharding
from accelerate.runtime.processes import NotInitializedValueError, ProcessHelpers, do_nothing
from accelerate.runtime.thread_local import ThreadLocalSharedDict

__all__ = [
    "AcceleratorState",
    "GradientState",
    "PartialState",
    "ThreadLocalSharedDict",
    "deepspeed_required",
    "do_nothing",
    "is_initialized",
]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_PARTIAL_ATTRIBUTES = frozenset(
    {
        "_cpu",
        "backend",
        "debug",
        "device",
        "distributed_type",
        "fork_launched",
        "local_process_index",
        "num_processes",
        "process_index",
    }
)
_TRAINING_ATTRIBUTES = frozenset(
    {
        "_mixed_precision",
        "deepspeed_plugins",
        "device_mesh",
        "dynamo_plugin",
        "fsdp_plugin",
        "megatron_lm_plugin",
        "parallelism_config",
        "torch_tp_plugin",
    }
)


def _leave_group(group: Any = None) -> None:
    # A run that was reset is not started for it.
    if not current.__dict__.get("fork_launched", False):
        process_group.stop(group)


def is_initialized() -> bool:
    """Return whether an `Accelerator` has set up the training state of this process."""
    return AcceleratorState._shared_state != {}


def deepspeed_required(func: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a function to raise ConfigurationError (a ValueError) in a run without DeepSpeed."""

    @functools.wraps(func)
    def wrapper(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if is_initialized() and current.distributed_type != DistributedType.DEEPSPEED:
            raise ConfigurationError(
                f"`{func.__qualname__}` is for DeepSpeed, and DeepSpeed is not enabled in this run: make the "
                "Accelerator with `deepspeed_plugin=`, or launch with `--use_deepspeed`."
            )
        return func(*args, **kwargs)

    return wrapper


def _missing(owner: object, name: str, known: frozenset[str]) -> NoReturn:
    kind = type(owner).__name__
    if name in known or hasattr(Current, name):  # a property that found no run comes here, too
        raise AttributeError(
            f"`{kind}` object has no attribute `{name}`. This happens if `{kind}._reset_state()` was called "
            "and no `Accelerator` or `PartialState` was made since, or if no plugin that brings it is in use."
        )
    raise AttributeError(f"'{kind}' object has no attribute '{name}'")


class PartialState(Current, ProcessHelpers):
    """Who and where this process is: device, rank, world size. Starts the run when nobody has.

    Every instance shows the same run, so that it can be made anywhere, at no cost.

    Args:
        cpu: use the CPU also where an accelerator is present.
        kwargs: `backend`, `timeout` and whatever else `torch.distributed.init_process_group` takes. In a run
            that was started before, a `timeout` still takes effect, and the others do not.

    Raises:
        ConfigurationError: the launcher's environment variables contradict each other.
        LaunchError: the other ranks cannot be reached.
    """

    _shared_state = current.__dict__
    _known_attrs = sorted(_PARTIAL_ATTRIBUTES | _TRAINING_ATTRIBUTES | {"_shared_state"})

    def __init__(self, cpu: bool = False, **kwargs: Any) -> None:
        self.__dict__ = self._shared_state
        if not self.started:
            # The sagemaker and accelerator marks belong to the interface; they carry no value of their own.
            for mark in ("_from_accelerator", "_use_sagemaker_dp"):
                kwargs.pop(mark, None)
            self.start(cpu=cpu, **kwargs)
        elif kwargs.get("timeout") is not None:
            process_group.set_timeout(kwargs["timeout"])

    def __repr__(self) -> str:
        backend = f"  Backend: {self.backend}" if self.backend else ""
        return (
            f"Distributed environment: {self.distributed_type}{backend}\n"
            f"Num processes: {self.num_processes}\n"
            f"Process index: {self.process_index}\n"
            f"Local process index: {self.local_process_index}\n"
            f"Device: {self.device}\n"
        )

    def __getattr__(self, name: str) -> Any:
        _missing(self, name, _PARTIAL_ATTRIBUTES)

    @staticmethod
    def _reset_state() -> None:
        """Forget the run; the process group is left as it is."""
        current.reset()

    @property
    def initialized(self) -> bool:
        """Whether a run was started in this process."""
        return self.started

    @property
    def default_device(self) -> torch.device:
        """The device of this kind that a process without a rank would use."""
        return torch.device(self.device.type)

    def set_device(self) -> None:
        """Choose the device of this rank from the world and the hardware, as the start of the run does."""
        self.device = self.kind.torch_device(self.world)
        self.kind.select(self.device)

    def destroy_process_group(self, group: Any = None) -> None:
        """Leave the process group, unless a notebook owns it."""
        _leave_group(group)


class AcceleratorState(RankFacts, ProcessHelpers):
    """How this process trains: precision and plugins, beside everything that `PartialState` knows.

    Made by `Accelerator`; every instance shows the same state.

    Raises:
        NotInitializedValueError: no `Accelerator` was made yet.
        ConfigurationError: an `Accelerator` with other settings was made before.
    """

    _shared_state: ClassVar[dict[str, Any]] = {}
    _known_attrs = PartialState._known_attrs

    def __init__(
        self,
        mixed_precision: str | None = None,
        cpu: bool = False,
        dynamo_plugin: Any = None,
        deepspeed_plugin: Any = None,
        fsdp_plugin: Any = None,
        torch_tp_plugin: Any = None,
        megatron_lm_plugin: Any = None,
        parallelism_config: Any = None,
        _from_accelerator: bool = False,
        **kwargs: Any,
    ) -> None:
        self.__dict__ = self._shared_state
        PartialState(cpu, **kwargs)
        if cpu and current.device.type != "cpu":
            raise ConfigurationError(
                "AcceleratorState has already been initialized and cannot be changed, restart your runtime "
                "completely and pass `cpu=True` to `Accelerator()`. "
                f"(The run was started on {current.device}.)"
            )
        if self.initialized:
            self._refuse_another(mixed_precision)
            return
        if not _from_accelerator:
            raise NotInitializedValueError(
                "`AcceleratorState()` shows what an `Accelerator` has set up: make one first, "
                "`accelerator = Accelerator()`."
            )
        self._shared_state.update(
            _mixed_precision=_precision(mixed_precision),
            **dict.fromkeys(("deepspeed_plugins", "device_mesh")),
            dynamo_plugin=dynamo_plugin,
            parallelism_config=parallelism_config,
            torch_tp_plugin=torch_tp_plugin,
            **settle_sharding(current, fsdp_plugin),
        )

    def _refuse_another(self, mixed_precision: str | None) -> None:
        asked = None if mixed_precision is None else _precision(mixed_precision)
        if asked is not None and asked != self._mixed_precision:
            raise ConfigurationError(
                "AcceleratorState has already been initialized and cannot be changed, restart your runtime "
                f"completely and pass `mixed_precision='{asked}'` to `Accelerator()`. "
                f"(The first one was made with `mixed_precision='{self._mixed_precision}'`.)"
            )

    def __repr__(self) -> str:
        return f"{PartialState()!r}\nMixed precision type: {self.mixed_precision}\n"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or (name not in current.__dict__ and not hasattr(Current, name)):
            _missing(self, name, _TRAINING_ATTRIBUTES | _PARTIAL_ATTRIBUTES)
        return getattr(current, name)

    @staticmethod
    def _reset_state(reset_partial_state: bool = False) -> None:
        """Forget how this process trains and, on request, the run itself."""
        AcceleratorState._shared_state.clear()
        if reset_partial_state:
            PartialState._reset_state()

    @property
    def initialized(self) -> bool:
        """Whether an `Accelerator` was made."""
        return self._shared_state != {}

    @property
    def mixed_precision(self) -> str:
        """The precision in use: no, fp16, bf16 or fp8."""
        precision: str = self._mixed_precision
        return precision

    @property
    def fork_launched(self) -> bool:
        """Whether a notebook forked this process, and its group outlives a training."""
        return current.fork_launched

    @property
    def deepspeed_plugin(self) -> Any:
        """The active DeepSpeed plugin, None where DeepSpeed is not in use."""
        return None

    @property
    def is_fsdp2(self) -> bool:
        """Whether the model is sharded by FSDP version 2."""
        plugin = self._shared_state.get("fsdp_plugin")
        return plugin is not None and plugin.fsdp_version == 2

    def destroy_process_group(self, group: Any = None) -> None:
        """Leave the process group, unless a notebook owns it."""
        _leave_group(group)


def _precision(text: str | None) -> str:
    given = ""
    if text is None:
        text = parse_choice_from_env("ACCELERATE_MIXED_PRECISION", "no")
        given = f" (ACCELERATE_MIXED_PRECISION={text})"
    choice = str(text).lower()
    if choice not in PrecisionType:
        raise ConfigurationError(
            f"Unknown mixed_precision mode: {text}{given}. Choose between {PrecisionType.list()}"
        )
    return choice


class GradientState(Accumulation):
    """The accumulation window: whether gradients synchronise now, and where the active loader stands.

    Every instance shows the same window.

    Args:
        gradient_accumulation_plugin: settings that replace those of every Accelerator of this process.
    """

    _shared_state = accumulation.__dict__

    def __init__(self, gradient_accumulation_plugin: GradientAccumulationPlugin | None = None) -> None:
        self.__dict__ = self._shared_state
        if gradient_accumulation_plugin is not None or "plugin_kwargs" not in self.__dict__:
            plugin = gradient_accumulation_plugin
            self.configure({} if plugin is None else plugin_options(plugin))

    def __repr__(self) -> str:
        return (
            f"Sync Gradients: {self.sync_gradients}\n"
            f"At end of current dataloader: {self.end_of_dataloader}\n"
            f"Extra samples added: {self.remainder}\n"
            f"Gradient accumulation plugin: {self.options}\n"
        )

    @staticmethod
    def _reset_state() -> None:
        """Forget the window and its settings."""
        accumulation.reset()

    @property
    def initialized(self) -> bool:
        """Whether anything was configured."""
        return self._shared_state != {}

    def _set_sync_gradients(self, sync_gradients: bool) -> None:
        """Decide by hand whether the current micro-batch synchronises (for loops that count themselves)."""
        self.sync_gradients = sync_gradients

    @property
    def active_dataloader(self) -> Any:
        """The innermost prepared loader that is being iterated, or None."""
        return self.active_loader

    @property
    def in_dataloader(self) -> bool:
        """Whether a prepared loader is being iterated."""
        return self.active_loader is not None

    @property
    def dataloader_references(self) -> list[Any]:
        """The loaders being iterated, outermost first, behind a None that stands for "no loop"."""
        return [None, *(ref() for ref in self._loaders)]

    @dataloader_references.setter
    def dataloader_references(self, loaders: list[Any]) -> None:
        self._loaders = ()
        for loader in loaders:
            if loader is not None:
                self.add_loader(loader)

    @property
    def is_xla_gradients_synced(self) -> bool:
        """Whether gradients were already reduced over XLA devices since the last step."""
        return bool(self.__dict__.get("_is_xla_gradients_synced", False))

    @is_xla_gradients_synced.setter
    def is_xla_gradients_synced(self, value: bool) -> None:
        self.__dict__["_is_xla_gradients_synced"] = value


def plugin_options(plugin: GradientAccumulationPlugin) -> dict[str, Any]:
    """Return a plugin's settings: those that differ from the defaults, and what it says about schedulers."""
    return {**plugin.to_kwargs(), "adjust_scheduler": plugin.adjust_scheduler}


def gradient_state() -> GradientState:
    """Return the public view of the accumulation window, for wrappers that offer it as an attribute."""
    return GradientState()


def partial_state() -> PartialState:
    """Return the public view of the current run, for wrappers that offer it as an attribute."""
    return PartialState()


def accelerator_state() -> AcceleratorState:
    """Return the public view of the training state, for wrappers that offer it as an attribute."""
    return AcceleratorState()


def forget_ended_training() -> None:
    """Make room for another run, with settings of its own, if the former one was ended or lost its group."""
    lost = current.started and current.backend is not None and not process_group.is_started()
    if lost or AcceleratorState._shared_state.get("_ended"):
        AcceleratorState._reset_state(reset_partial_state=True)
        accumulation.reset()


def end_training() -> None:
    """Leave the process group. What the states say stays readable until the next Accelerator."""
    _leave_group()
    if is_initialized():
        AcceleratorState._shared_state["_ended"] = True


def set_up_training(mixed_precision: str | None, *, cpu: bool, **kwargs: Any) -> AcceleratorState:
    """Start the run if need be, settle how it trains, and return the public view.

    Args:
        mixed_precision: no, fp16, bf16 or fp8; the environment's, else "no", when None.
        cpu: use the CPU also where an accelerator is present.
        kwargs: passed on to the process group.
    """
    return AcceleratorState(mixed_precision, cpu, _from_accelerator=True, **kwargs)
