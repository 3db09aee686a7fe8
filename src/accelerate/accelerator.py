"""The Accelerator: what a training loop calls. It checks, delegates and returns; it decides nothing itself.

What depends on hardware, engine or precision is in the strategy and the precision object, chosen once in
the constructor.
"""

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, overload

import torch
from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader
from torch.utils.hooks import RemovableHandle

from accelerate import checkpointing
from accelerate.checkpoint import files
from accelerate.compat import env
from accelerate.data.evenness import even_batches as override_even_batches
from accelerate.data.prepare import prepare_data_loader
from accelerate.data.skip import skip_first_batches
from accelerate.errors import ConfigurationError
from accelerate.logging import get_logger
from accelerate.modules.nested import flatten
from accelerate.modules.unwrap import extract_model_from_parallel
from accelerate.optimizer import AcceleratedOptimizer, owners
from accelerate.options import request as requests
from accelerate.options.accumulation import GradientAccumulationPlugin
from accelerate.options.data import DataLoaderConfiguration
from accelerate.options.dynamo import TorchDynamoPlugin
from accelerate.options.enums import DistributedType, DynamoBackend, PrecisionType, RNGType
from accelerate.options.handlers import AutocastKwargs, KwargsHandler
from accelerate.options.profile import ProfileKwargs
from accelerate.options.project import ProjectConfiguration
from accelerate.options.request import NOT_GIVEN, Request
from accelerate.precision.select import select as select_precision
from accelerate.runtime import collectives
from accelerate.runtime.accumulation import accumulation
from accelerate.runtime.current import current
from accelerate.runtime.memory import release_memory
from accelerate.runtime.processes import ProcessHelpers
from accelerate.scheduler import AcceleratedScheduler
from accelerate.state import (
    AcceleratorState,
    GradientState,
    end_training,
    forget_ended_training,
    is_initialized,
    set_up_training,
)
from accelerate.strategies.base import Objects
from accelerate.strategies.select import select as select_strategy
from accelerate.training.marks import mark, renewed
from accelerate.training.metrics import truncate, truncate_full
from accelerate.training.profiling import recorded
from accelerate.training.window import AccumulationWindow

__all__ = ["Accelerator"]

logger = get_logger(__name__)

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
ModelT = TypeVar("ModelT", bound=Module)
Parameters = torch.Tensor | Iterable[torch.Tensor]

# Arguments of the interface whose engines this version does not have yet.
_ABSENT = (
    "deepspeed_plugin",
    "fsdp_plugin",
    "torch_tp_plugin",
    "megatron_lm_plugin",
    "log_with",
    "deepspeed_plugins",
    "parallelism_config",
)

_UNEVEN_WINDOWS = (
    "join_uneven_inputs with gradient_accumulation_steps={0}: the last batch of a rank ends its window. "
    "Unless each rank's number of batches is a multiple of {0}, some ranks wait for others in vain."
)


class Accelerator(ProcessHelpers):
    """Run an ordinary training loop on whatever hardware the script was started on.

    Every rank makes one and calls the same methods in the same order. Making it starts the run: it finds
    the device and, under a launcher, joins the process group.

    Args:
        device_placement: move models, optimizer state and batches to the device of this rank.
        split_batches: share each batch among all processes, rather than give each a batch of its own.
        mixed_precision: number format of the step, "no", "bf16" or "fp16"; by default what the launcher asked
            for, else "no".
        gradient_accumulation_steps: micro-batches per optimizer step.
        cpu: use the CPU also where an accelerator is present.
        dataloader_config: how loaders are shared among processes.
        rng_types: random states that are made equal on all ranks at each epoch's start.
        project_dir: folder for checkpoints and logs.
        project_config: the same with more settings.
        gradient_accumulation_plugin: accumulation with more settings; not together with the steps.
        step_scheduler_with_optimizer: let schedulers follow the optimizer's steps.
        kwargs_handlers: options for the process group, for DistributedDataParallel and for other objects
            of torch, at most one of each class.
        dynamo_backend: compile prepared models with this backend of `torch.compile`; by default what the
            launcher asked for, else not at all.
        dynamo_plugin: the same with more settings; not together with the backend.
        deepspeed_plugin, fsdp_plugin, torch_tp_plugin, megatron_lm_plugin, deepspeed_plugins,
            parallelism_config, log_with: not available in this version.

    Raises:
        ConfigurationError: arguments contradict each other or cannot be had here (a ValueError).
        LaunchError: the other ranks cannot be reached.

    Example:
        ```python
        from accelerate import Accelerator

        accelerator = Accelerator()
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for inputs, targets in loader:
            loss = loss_function(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        ```
    """

    def __init__(
        self,
        device_placement: bool = True,
        split_batches: bool = NOT_GIVEN,
        mixed_precision: PrecisionType | str | None = None,
        gradient_accumulation_steps: int = 1,
        cpu: bool = False,
        dataloader_config: DataLoaderConfiguration | None = None,
        deepspeed_plugin: Any = None,
        fsdp_plugin: Any = None,
        torch_tp_plugin: Any = None,
        megatron_lm_plugin: Any = None,
        rng_types: list[str | RNGType] | None = None,
        log_with: Any = None,
        project_dir: str | PathLike[str] | None = None,
        project_config: ProjectConfiguration | None = None,
        gradient_accumulation_plugin: GradientAccumulationPlugin | None = None,
        step_scheduler_with_optimizer: bool = True,
        kwargs_handlers: list[KwargsHandler] | None = None,
        dynamo_backend: DynamoBackend | str | None = None,
        dynamo_plugin: TorchDynamoPlugin | None = None,
        deepspeed_plugins: Any = None,
        parallelism_config: Any = None,
    ) -> None:
        given, environ = locals(), env.snapshot()
        requests.refuse_absent({name: given[name] for name in _ABSENT}, environ)
        request = Request(
            mixed_precision=mixed_precision,
            cpu=cpu,
            device_placement=device_placement,
            step_scheduler_with_optimizer=step_scheduler_with_optimizer,
            accumulation=requests.accumulation_plugin(
                gradient_accumulation_steps, gradient_accumulation_plugin, environ
            ),
            dataloader=requests.dataloader_configuration(split_batches, dataloader_config),
            project=requests.project_configuration(project_dir, project_config),
            rng_types=("generator",) if rng_types is None else tuple(rng_types),
            dynamo=requests.dynamo_plugin(dynamo_backend, dynamo_plugin),
            **requests.sort_handlers(kwargs_handlers),
        )
        self._set_up(request)

    def _set_up(self, request: Request) -> None:
        group = request.process_group.to_kwargs() if request.process_group is not None else {}
        forget_ended_training()
        is_first = not is_initialized()
        self.state = set_up_training(
            request.mixed_precision, cpu=request.cpu, dynamo_plugin=request.dynamo, **group
        )
        try:
            self._precision = select_precision(
                self.state.mixed_precision, current.kind, autocast=request.autocast, scaler=request.scaler
            )
        except ConfigurationError:
            if is_first:  # another precision can be asked for without starting anew
                AcceleratorState._reset_state()
            raise
        self._strategy = select_strategy(current, self._precision, request)
        current.strategy = self._strategy
        self.gradient_state = GradientState(request.accumulation)
        self.device_placement = request.device_placement
        self.dataloader_config = request.dataloader
        self.step_scheduler_with_optimizer = request.step_scheduler_with_optimizer
        self.project_configuration = request.project
        self.rng_types: list[str | RNGType] = list(request.rng_types)
        self.ddp_handler = request.ddp
        self.init_handler = request.process_group
        self.autocast_handler = request.autocast
        self.scaler_handler = request.scaler
        self.profile_handler = request.profile
        self.scaler = self._precision.scaler
        self.native_amp = self._precision.name in ("fp16", "bf16")
        self.trackers: list[Any] = []
        self.log_with: list[Any] = []
        self.step = 0
        self.flag_tensor: torch.Tensor | None = None
        self._models: list[Module] = []
        self._optimizers: list[AcceleratedOptimizer] = []
        self._schedulers: list[AcceleratedScheduler] = []
        self._dataloaders: list[Any] = []
        self._custom_objects: list[Any] = []
        self._save_model_state_pre_hook: OrderedDict[int, Callable[..., None]] = OrderedDict()
        self._load_model_state_pre_hook: OrderedDict[int, Callable[..., None]] = OrderedDict()

    # ---- who and where -----------------------------------------------------------------------------------

    @property
    def distributed_type(self) -> DistributedType:
        """The interface's name for strategy and device together."""
        return current.distributed_type

    @property
    def use_distributed(self) -> bool:
        """Whether there is more than one process."""
        return current.use_distributed

    @property
    def multi_device(self) -> bool:
        """Whether several accelerators train together."""
        return self.use_distributed and self.device.type != "cpu"

    @property
    def num_processes(self) -> int:
        """Number of processes over all machines."""
        return current.num_processes

    @property
    def process_index(self) -> int:
        """Rank of this process."""
        return current.process_index

    @property
    def local_process_index(self) -> int:
        """Rank of this process among those of its machine."""
        return current.local_process_index

    @property
    def device(self) -> torch.device:
        """The device of this rank."""
        return current.device

    @property
    def is_main_process(self) -> bool:
        """Whether this is rank 0 of the whole run."""
        return current.is_main_process

    @property
    def is_local_main_process(self) -> bool:
        """Whether this is the first rank of its machine."""
        return current.is_local_main_process

    @property
    def is_last_process(self) -> bool:
        """Whether this is the highest rank."""
        return current.is_last_process

    @property
    def mixed_precision(self) -> str:
        """The number format of the step: no, fp16, bf16 or fp8."""
        return self.state.mixed_precision

    @property
    def deepspeed_plugin(self) -> Any:
        """The active DeepSpeed plugin, None where DeepSpeed is not in use."""
        return self.state.deepspeed_plugin

    @property
    def is_fsdp2(self) -> bool:
        """Whether the model is sharded by FSDP version 2."""
        return self.state.is_fsdp2

    # ---- how batches are shared ----------------------------------------------------------------------------

    @property
    def split_batches(self) -> bool:
        """Whether each batch is shared among all processes."""
        return self.dataloader_config.split_batches

    @property
    def dispatch_batches(self) -> bool | None:
        """Whether rank 0 reads for all; None lets the kind of dataset decide."""
        return self.dataloader_config.dispatch_batches

    @property
    def even_batches(self) -> bool:
        """Whether a last global batch is filled up, so that all ranks get equally many batches."""
        return self.dataloader_config.even_batches

    @even_batches.setter
    def even_batches(self, value: bool) -> None:
        self.dataloader_config.even_batches = value

    @property
    def use_seedable_sampler(self) -> bool:
        """Whether the order of samples is a function of seed and epoch alone."""
        return self.dataloader_config.use_seedable_sampler

    @property
    def non_blocking(self) -> bool:
        """Whether batches are copied to the device asynchronously."""
        return self.dataloader_config.non_blocking

    @property
    def use_stateful_dataloader(self) -> bool:
        """Whether loaders are torchdata's StatefulDataLoader."""
        return self.dataloader_config.use_stateful_dataloader

    @property
    def project_dir(self) -> str | PathLike[str] | None:
        """Folder for checkpoints and logs."""
        return self.project_configuration.project_dir

    @property
    def logging_dir(self) -> str | PathLike[str] | None:
        """Folder for logs."""
        return self.project_configuration.logging_dir

    @property
    def save_iteration(self) -> int:
        """Number of the next automatically named checkpoint."""
        return self.project_configuration.iteration

    @property
    def should_save_model(self) -> bool:
        """Whether this strategy can write full weights."""
        return True

    # ---- preparing -----------------------------------------------------------------------------------------

    @overload
    def prepare(self, arg: T, /, *, device_placement: list[bool | None] | None = None) -> T: ...
    @overload
    def prepare(
        self, arg1: T1, arg2: T2, /, *, device_placement: list[bool | None] | None = None
    ) -> tuple[T1, T2]: ...
    @overload
    def prepare(
        self, arg1: T1, arg2: T2, arg3: T3, /, *, device_placement: list[bool | None] | None = None
    ) -> tuple[T1, T2, T3]: ...
    @overload
    def prepare(
        self, arg1: T1, arg2: T2, arg3: T3, arg4: T4, /, *, device_placement: list[bool | None] | None = None
    ) -> tuple[T1, T2, T3, T4]: ...
    @overload
    def prepare(
        self,
        arg1: T1,
        arg2: T2,
        arg3: T3,
        arg4: T4,
        arg5: T5,
        /,
        *,
        device_placement: list[bool | None] | None = None,
    ) -> tuple[T1, T2, T3, T4, T5]: ...
    @overload
    def prepare(self, *args: Any, device_placement: list[bool | None] | None = None) -> tuple[Any, ...]: ...
    def prepare(self, *args: Any, device_placement: list[bool | None] | None = None) -> Any:
        """Make models, optimizers, data loaders and schedulers ready for this run.

        Every rank calls it with the same kinds of objects in the same order; the order itself does not
        matter. Anything else, and what was prepared before, passes through.

        Args:
            args: the objects.
            device_placement: for each object, whether to move it to the device; None: as the Accelerator.

        Returns:
            The prepared object, or a tuple of them in the order of `args`.

        Raises:
            ConfigurationError: no object, or `device_placement` has another length.
        """
        if not args:
            raise ConfigurationError("prepare() needs at least one object: a model, an optimizer, a loader …")
        placement = [None] * len(args) if device_placement is None else device_placement
        if len(placement) != len(args):
            raise ConfigurationError(
                f"device_placement has {len(placement)} elements, but {len(args)} objects were passed."
            )
        placed = [self.device_placement if place is None else place for place in placement]
        results = self._prepare_all([renewed(item, current) for item in args], placed)
        return results[0] if len(results) == 1 else tuple(results)

    def _prepare_all(self, objects: list[Any], placed: list[bool]) -> list[Any]:
        """Return what takes the place of each object; an object that stands there twice is prepared once."""
        first = {id(item): index for index, item in reversed(list(enumerate(objects)))}
        fresh = [index for index in sorted(first.values()) if not self._pass_through(objects[index])]
        models, optimizers, loaders, schedulers = (
            [index for index in fresh if isinstance(objects[index], kind)]
            for kind in (Module, Optimizer, DataLoader, LRScheduler)
        )
        request = Objects(
            models=[objects[index] for index in models],
            placed=[self._is_placed(objects[index], placed[index]) for index in models],
            optimizers=[objects[index] for index in optimizers],
            loaders=[objects[index] for index in loaders],
            schedulers=[objects[index] for index in schedulers],
        )
        self._strategy.validate(request)
        ready = self._strategy.prepare(request, self._prepare_placed)
        results: dict[int, Any] = {}
        for index, model in zip(models, ready.models, strict=True):
            known = self._pass_through(model)
            results[index] = model if known else self._register_model(objects[index], model)
        for index, optimizer in zip(optimizers, ready.optimizers, strict=True):
            results[index] = self.prepare_optimizer(optimizer, device_placement=placed[index])
        for index in loaders:
            results[index] = self.prepare_data_loader(objects[index], device_placement=placed[index])
        for index in schedulers:
            results[index] = self.prepare_scheduler(objects[index])
        return [results.get(first[id(item)], item) for item in objects]

    def _prepare_placed(self, model: Module, place: bool) -> Module:
        return self.prepare_model(model, device_placement=place)

    def _pass_through(self, item: Any) -> bool:
        """Return whether `item` was prepared before; if so, make sure that this Accelerator knows it."""
        if not getattr(item, "_is_accelerate_prepared", False):
            return False
        registries: tuple[tuple[type, list[Any]], ...] = (
            (AcceleratedOptimizer, self._optimizers),
            (AcceleratedScheduler, self._schedulers),
            (DataLoader, self._dataloaders),
        )
        for kind, registry in registries:
            if isinstance(item, kind):
                if not any(known is item for known in registry):
                    registry.append(item)
                return True
        if isinstance(item, Module):
            module = item if self._strategy.traits.lists_wrapped_model else self._strategy.unwrap(item)
            if not any(known is module for known in self._models):
                self._models.append(module)
        return True

    def _is_placed(self, model: Module, place: bool) -> bool:
        if self.verify_device_map(model):
            raise ConfigurationError(
                "You can't train a model that has been loaded with `device_map='auto'` in any distributed "
                "mode. Start one process with `accelerate launch --num_processes 1`, or load the model "
                "without a device map."
            )
        return place and len(getattr(model, "hf_device_map", None) or ()) <= 1

    def verify_device_map(self, model: Module) -> bool:
        """Return whether some part of `model` is spread over devices although several processes train."""
        return (
            self.use_distributed
            and not env.is_true("ACCELERATE_BYPASS_DEVICE_MAP")
            and any(len(getattr(module, "hf_device_map", None) or ()) > 1 for module in model.modules())
        )

    def _register_model(self, module: Module, model: Module) -> Module:
        # A model that the user has compiled is listed as what is inside, for the names in checkpoints.
        is_listed = self._strategy.traits.lists_wrapped_model
        self._models.append(model if is_listed else self._strategy.unwrap(module))
        return mark(model, current)

    def prepare_model(
        self, model: Module, device_placement: bool | None = None, evaluation_mode: bool = False
    ) -> Module:
        """Make one model ready for this run; `prepare` calls this for each.

        Args:
            model: the user's module.
            device_placement: move it to the device of this rank; None: as the Accelerator.
            evaluation_mode: it will not be trained, so that nothing is wrapped around it.
        """
        model = renewed(model, current)
        if self._pass_through(model):
            return model
        place = self._is_placed(
            model, self.device_placement if device_placement is None else device_placement
        )
        return self._register_model(
            model, self._strategy.prepare_model(model, place=place, evaluation=evaluation_mode)
        )

    def prepare_data_loader(
        self,
        data_loader: DataLoader[Any],
        device_placement: bool | None = None,
        slice_fn_for_dispatch: Callable[..., Any] | None = None,
    ) -> DataLoader[Any]:
        """Make a data loader give this rank its share of every epoch.

        Args:
            data_loader: the user's loader.
            device_placement: move batches to the device of this rank; None: as the Accelerator.
            slice_fn_for_dispatch: how rank 0 cuts a batch when it reads for all.
        """
        data_loader = renewed(data_loader, current)
        if self._pass_through(data_loader):
            return data_loader
        config = self.dataloader_config
        prepared = prepare_data_loader(
            data_loader,
            self.device,
            num_processes=self.num_processes,
            process_index=self.process_index,
            split_batches=config.split_batches,
            put_on_device=self.device_placement if device_placement is None else device_placement,
            rng_types=self.rng_types.copy(),
            dispatch_batches=config.dispatch_batches,
            even_batches=config.even_batches,
            slice_fn_for_dispatch=slice_fn_for_dispatch,
            use_seedable_sampler=config.use_seedable_sampler,
            data_seed=config.data_seed,
            non_blocking=config.non_blocking,
            use_stateful_dataloader=config.use_stateful_dataloader,
        )
        self._dataloaders.append(prepared)
        return mark(prepared, current)

    def skip_first_batches(self, dataloader: T, num_batches: int = 0) -> T:
        """Return a loader for the rest of an epoch, to resume in its middle; see the function of this name.

        Args:
            dataloader: a prepared loader; the next epochs are read from it as before.
            num_batches: how many batches of this process were seen; they are not loaded.
        """
        return skip_first_batches(dataloader, num_batches)

    def prepare_optimizer(
        self, optimizer: Optimizer, device_placement: bool | None = None
    ) -> AcceleratedOptimizer:
        """Wrap one optimizer, so that it steps only when gradients are synchronised.

        Args:
            optimizer: the user's optimizer.
            device_placement: move its state to the device of this rank; None: as the Accelerator.
        """
        optimizer = renewed(optimizer, current)
        if self._pass_through(optimizer) and isinstance(optimizer, AcceleratedOptimizer):
            return optimizer
        prepared = AcceleratedOptimizer(
            optimizer,
            device_placement=self.device_placement if device_placement is None else device_placement,
            scaler=self.scaler,
            step_function=self._strategy.step,
            zero_grad_function=self._strategy.zero_grad,
        )
        self._optimizers.append(prepared)
        return mark(prepared, current)

    def prepare_scheduler(self, scheduler: LRScheduler) -> AcceleratedScheduler:
        """Wrap one learning-rate scheduler, so that it advances with the optimizer it belongs to.

        Args:
            scheduler: the user's scheduler; its optimizer should be prepared before or in the same call.
        """
        scheduler = renewed(scheduler, current)
        if isinstance(scheduler, AcceleratedScheduler) and self._pass_through(scheduler):
            return scheduler
        owner = getattr(scheduler, "optimizer", None)
        matching = [known for known in self._optimizers if owner is known or owner is known.optimizer]
        prepared = AcceleratedScheduler(
            scheduler,
            matching or self._optimizers,
            step_with_optimizer=self.step_scheduler_with_optimizer,
            split_batches=self.split_batches,
        )
        self._schedulers.append(prepared)
        return mark(prepared, current)

    # ---- one step ------------------------------------------------------------------------------------------

    @property
    def sync_gradients(self) -> bool:
        """Whether the micro-batch in hand ends with an optimizer step."""
        return accumulation.sync_gradients

    @sync_gradients.setter
    def sync_gradients(self, value: bool) -> None:
        accumulation.sync_gradients = value

    @property
    def gradient_accumulation_steps(self) -> int:
        """Micro-batches per optimizer step; shared by all Accelerators of this process."""
        return accumulation.num_steps

    @gradient_accumulation_steps.setter
    def gradient_accumulation_steps(self, value: int) -> None:
        if value < 1:
            raise ConfigurationError(f"gradient_accumulation_steps = {value}: it must be at least 1.")
        self.gradient_state.plugin_kwargs["num_steps"] = value

    @property
    def optimizer_step_was_skipped(self) -> bool:
        """Whether any prepared optimizer left the parameters alone in its last step."""
        return any(optimizer.step_was_skipped for optimizer in self._optimizers)

    def accumulate(self, *models: Module) -> AbstractContextManager[None]:
        """Return the block of one micro-batch: gradients stay local until the window is full.

        Inside it call `backward`, `optimizer.step`, `scheduler.step` and `optimizer.zero_grad` as always;
        they act only when the window ends: every `gradient_accumulation_steps` blocks, and on the last batch
        of a prepared loader.

        Args:
            models: the models trained in this block.
        """
        return AccumulationWindow(self._begin_micro_batch, self.no_sync, models)

    def _begin_micro_batch(self) -> bool:
        self.step = accumulation.tick(self.step)
        return accumulation.sync_gradients or accumulation.options.get("sync_each_batch", False)

    def no_sync(self, model: Module) -> AbstractContextManager[Any]:
        """Return a context in which backward passes through `model` leave gradients local."""
        return self._strategy.no_sync(model)

    @staticmethod
    def trigger_sync_in_backward(model: Module) -> AbstractContextManager[Any]:
        """Return a context whose backward pass synchronises although its forward pass ran under `no_sync`."""
        context: AbstractContextManager[Any] = current.strategy.trigger_sync(model)
        return context

    def backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        """Compute gradients of `loss` divided by the accumulation steps.

        Args:
            loss: 0-d tensor, the mean over this micro-batch.
            kwargs: passed on to `Tensor.backward`.
        """
        steps = accumulation.num_steps
        if steps != 1 and not self._strategy.traits.owns_accumulation:
            loss = loss / steps
        self._strategy.backward(loss, sync=accumulation.sync_gradients, **kwargs)

    def unscale_gradients(self, optimizer: Optimizer | Iterable[Optimizer] | None = None) -> None:
        """Bring gradients to their true size where the precision scales them; needed before reading them.

        Args:
            optimizer: prepared optimizer or optimizers; all when None.
        """
        chosen = self._optimizers if optimizer is None else optimizer
        for item in [chosen] if isinstance(chosen, Optimizer) else chosen:
            self._strategy.unscale(item.optimizer if isinstance(item, AcceleratedOptimizer) else item)

    def clip_grad_norm_(self, parameters: Parameters, max_norm: float, norm_type: float = 2) -> torch.Tensor:
        """Scale gradients in place so that their norm over all parameters is at most `max_norm`.

        Call it when `sync_gradients` is true, on every rank.

        Returns:
            The norm before clipping, 0-d.
        """
        parameters = self._unscale_owners(parameters)
        return self._strategy.clip_grad_norm(parameters, max_norm, norm_type)

    def clip_grad_value_(self, parameters: Parameters, clip_value: float) -> None:
        """Clamp every gradient element in place to [-clip_value, clip_value]."""
        parameters = self._unscale_owners(parameters)
        self._strategy.clip_grad_value(parameters, clip_value)

    def _unscale_owners(self, parameters: Parameters) -> Parameters:
        """Unscale what the optimizers of `parameters` hold, all if they have none; return `parameters`."""
        if self.scaler is None or len(self._optimizers) < 2:
            self.unscale_gradients()
            return parameters
        chosen = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        self.unscale_gradients(owners(self._optimizers, chosen) or None)
        return chosen

    def autocast(self, autocast_handler: AutocastKwargs | None = None) -> AbstractContextManager[Any]:
        """Return a context in which operations compute in this Accelerator's precision.

        Args:
            autocast_handler: options in place of those given to the constructor.
        """
        return self._precision.autocast(autocast_handler or self.autocast_handler)

    @contextmanager
    def join_uneven_inputs(
        self, joinables: Sequence[Any], even_batches: bool | None = None
    ) -> Iterator[None]:
        """Let ranks run out of batches at different times inside the block, without waiting for each other.

        A rank that leaves the block early takes part in the others' communication until all have left; then
        all have the same weights. One pass over the data goes into a block. Collectives other than those of
        the models would still wait. In one process the block does nothing.

        Args:
            joinables: the prepared models that are trained in the block; optimizers only if they communicate.
            even_batches: setting of all prepared loaders in the block; None leaves it.

        Raises:
            ConfigurationError: no model is in `joinables`, or something that was not prepared.
        """
        if not self._strategy.traits.supports_join:
            if self.use_distributed and self.is_main_process:
                warnings.warn(f"join_uneven_inputs has no effect with {self.distributed_type}.", stacklevel=3)
            yield
            return
        if accumulation.num_steps > 1 and self.is_main_process:
            warnings.warn(_UNEVEN_WINDOWS.format(accumulation.num_steps), stacklevel=3)
        with override_even_batches(self._dataloaders, even_batches), self._strategy.join(joinables):
            yield

    def profile(
        self, profile_handler: ProfileKwargs | None = None
    ) -> AbstractContextManager[torch.profiler.profile]:
        """Return a context that records what the block does, and gives the profiler.

        Afterwards each rank that recorded writes `profile_<rank>.json`, a trace for chrome://tracing, into
        the handler's `output_trace_dir`, if it names one.

        Args:
            profile_handler: what is recorded; by default what the constructor was given, else everything.

        Raises:
            ConfigurationError: an activity or the schedule is not understood.
        """
        return recorded(profile_handler or self.profile_handler or ProfileKwargs(), self.process_index)

    def set_trigger(self) -> None:
        """Raise a flag on this rank, for `check_trigger` on all ranks to see."""
        self.flag_tensor = torch.ones(1, dtype=torch.int64, device=self.device)

    def check_trigger(self) -> bool:
        """Return whether any rank raised its flag since the last call, and lower it. Every rank calls it."""
        mine = torch.zeros(1, dtype=torch.int64, device=self.device)
        raised = collectives.reduce(mine if self.flag_tensor is None else self.flag_tensor, "sum")
        self.flag_tensor = None
        return bool(raised.item() >= 1)

    # ---- between ranks -------------------------------------------------------------------------------------

    def gather(self, tensor: Any) -> Any:
        """Concatenate tensors of all ranks along dim 0, on every rank; see `accelerate.utils.gather`."""
        return collectives.gather(tensor)

    def gather_for_metrics(self, input_data: Any, use_gather_object: bool = False) -> Any:
        """Gather, and drop the samples that filled up the last batch of the active loader.

        Args:
            input_data: nested tensors with one row a sample (along dim 0), or a list of objects.
            use_gather_object: gather as objects whatever the data is.

        Returns:
            What `gather` (or `gather_object`) gives, with each sample of the dataset exactly once.
        """
        leaves = [] if use_gather_object else flatten(input_data)[0]
        # A rank whose list is empty must take the same way as one that has objects in it.
        as_objects = not leaves or not all(isinstance(leaf, torch.Tensor) for leaf in leaves)
        gathered = (collectives.gather_object if as_objects else collectives.gather)(input_data)
        loader = accumulation.active_loader
        if loader is None or not loader.end_of_dataloader:
            return gathered
        if loader.remainder < 0:
            logger.info("The last batch is dropped or of unknown size: all gathered samples are kept.")
        if not self.use_distributed:
            return truncate_full(gathered, loader.total_batch_size, loader.remainder)
        return truncate(gathered, input_data, loader.remainder)

    def reduce(self, tensor: Any, reduction: str = "sum", scale: float = 1.0) -> Any:
        """Sum or average tensors over all ranks, on every rank; see `accelerate.utils.reduce`."""
        return collectives.reduce(tensor, reduction, scale)

    def pad_across_processes(
        self, tensor: Any, dim: int = 0, pad_index: int = 0, pad_first: bool = False
    ) -> Any:
        """Pad tensors to the largest size over all ranks; see `accelerate.utils.pad_across_processes`."""
        return collectives.pad_across_processes(tensor, dim=dim, pad_index=pad_index, pad_first=pad_first)

    def unwrap_model(
        self, model: ModelT, keep_fp32_wrapper: bool = True, keep_torch_compile: bool = True
    ) -> ModelT:
        """Return the user's module behind a prepared one.

        Args:
            model: what `prepare` gave.
            keep_fp32_wrapper: leave the forward pass as the precision has made it.
            keep_torch_compile: keep the compiled module around it.
        """
        module: ModelT = extract_model_from_parallel(model, keep_fp32_wrapper, keep_torch_compile)
        return module

    # ---- saving and loading --------------------------------------------------------------------------------

    def save(self, obj: Any, f: str | PathLike[str], safe_serialization: bool = False) -> None:
        """Write `obj` to file `f` from the main process (of each machine with `save_on_each_node`).

        Args:
            obj: what `torch.save` takes; with `safe_serialization` a flat dict of tensors.
            f: the file.
            safe_serialization: write safetensors.
        """
        files.save(obj, f, self.project_configuration.save_on_each_node, safe_serialization)

    def get_state_dict(self, model: Module, unwrap: bool = True) -> dict[str, Any]:
        """Return the full weights of a prepared model.

        Args:
            model: what `prepare` gave.
            unwrap: name weights as in the user's module, rather than in the wrapper.
        """
        return self._strategy.state_dict(model) if unwrap else model.state_dict()

    def save_model(
        self,
        model: Module,
        save_directory: str | PathLike[str],
        max_shard_size: int | str = "10GB",
        safe_serialization: bool = True,
    ) -> None:
        """Write a model's weights for use elsewhere; every rank calls it, the main process writes.

        Args:
            model: what `prepare` gave.
            save_directory: folder, made if need be.
            max_shard_size: bytes a file, or text such as "5GB"; a bigger model is written in several files.
            safe_serialization: write safetensors rather than pickles.

        Raises:
            RuntimeError: some parameters are on the meta device.
        """
        checkpointing.save_model(
            self.get_state_dict(model),
            save_directory,
            max_shard_size=max_shard_size,
            safe_serialization=safe_serialization,
            save_on_each_node=self.project_configuration.save_on_each_node,
        )
        self.wait_for_everyone()

    def register_save_state_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Call `hook(models, weights, folder)` at the start of each `save_state`; it may empty `weights`.

        Returns:
            A handle whose `remove()` takes the hook away.
        """
        return _registered(self._save_model_state_pre_hook, hook)

    def register_load_state_pre_hook(self, hook: Callable[..., None]) -> RemovableHandle:
        """Call `hook(models, folder)` at the start of each `load_state`; it may remove models from the list.

        Returns:
            A handle whose `remove()` takes the hook away.
        """
        return _registered(self._load_model_state_pre_hook, hook)

    def register_for_checkpointing(self, *objects: Any) -> None:
        """Save and load these objects, too, in `save_state` and `load_state`.

        Raises:
            ValueError: one has no `state_dict` and `load_state_dict`.
        """
        unfit = [
            item for item in objects if not (hasattr(item, "state_dict") and hasattr(item, "load_state_dict"))
        ]
        if unfit:
            raise ConfigurationError(
                "register_for_checkpointing takes objects with `state_dict` and `load_state_dict` methods; "
                f"these have not: {', '.join(repr(item) for item in unfit)}."
            )
        self._custom_objects.extend(objects)

    def save_state(
        self,
        output_dir: str | PathLike[str] | None = None,
        safe_serialization: bool = True,
        **save_model_func_kwargs: Any,
    ) -> Path:
        """Write all that training needs to go on; every rank calls it.

        Covers every prepared model, optimizer and scheduler, the scaler, random states of every rank, this
        Accelerator's counter and what was registered for checkpointing.

        Args:
            output_dir: the folder, made if need be; ignored under automatic naming.
            safe_serialization: weights as safetensors, else as pickles.
            save_model_func_kwargs: for engines that write models themselves.

        Returns:
            The folder.

        Raises:
            TypeError: no `output_dir`, and automatic naming is off.
            ConfigurationError: the folder that automatic naming comes to exists.
        """
        return checkpointing.save_state(
            output_dir,
            self._registry(),
            run=current,
            strategy=self._strategy,
            project=self.project_configuration,
            ranks=checkpointing.Ranks.of(current),
            hooks=self._save_model_state_pre_hook.values(),
            safe_serialization=safe_serialization,
            **save_model_func_kwargs,
        )

    def load_state(
        self,
        input_dir: str | PathLike[str] | None = None,
        load_kwargs: dict[str, Any] | None = None,
        **load_model_func_kwargs: Any,
    ) -> None:
        """Bring everything that `save_state` covers into the state of a checkpoint; every rank calls it.

        Args:
            input_dir: the folder; the newest checkpoint of automatic naming when None.
            load_kwargs: passed on to `torch.load` for optimizers, schedulers and loaders.
            load_model_func_kwargs: passed on to each model's `load_state_dict` (`strict`, …).

        Raises:
            ConfigurationError: no such folder, or none was named.
            CheckpointError: a file is missing or damaged, or the number of registered objects differs.
        """
        attributes = checkpointing.load_state(
            input_dir,
            self._registry(),
            run=current,
            strategy=self._strategy,
            project=self.project_configuration,
            ranks=checkpointing.Ranks.of(current),
            hooks=self._load_model_state_pre_hook.values(),
            load_kwargs=load_kwargs,
            **load_model_func_kwargs,
        )
        self.step = attributes.get("step", self.step)
        accumulation.sync_gradients = not attributes["open_window"]

    def _registry(self) -> checkpointing.Registry:
        return checkpointing.Registry(
            models=self._models,
            optimizers=self._optimizers,
            schedulers=self._schedulers,
            loaders=self._dataloaders,
            custom_objects=self._custom_objects,
            scaler=self.scaler,
            step=self.step,
            open_window=not accumulation.sync_gradients,
        )

    # ---- the end -------------------------------------------------------------------------------------------

    def free_memory(self, *objects: Any) -> list[Any]:
        """Forget everything that was prepared and give memory back to the device.

        Args:
            objects: what the caller holds, to be overwritten by the result:
                `model, optimizer = accelerator.free_memory(model, optimizer)`.

        Returns:
            A list of as many None.
        """
        for registry in (self._models, self._optimizers, self._schedulers, self._dataloaders):
            registry.clear()
        self.step = 0
        return release_memory(*objects)

    def clear(self, *objects: Any) -> list[Any]:
        """Do as `free_memory`."""
        return self.free_memory(*objects)

    def end_training(self) -> None:
        """End the run. Every rank calls it, at the end of the script or before another Accelerator is made.

        This process leaves its process group, except in a notebook's launcher, which owns the group. What
        the run was (rank, world size, device, precision) can still be read, and models still run, but
        nothing can be sent any more. The next `Accelerator` starts afresh: another precision, another device
        and other settings are allowed, the accumulation window is closed, and objects that were prepared in
        this run are prepared anew when they are passed to `prepare`.
        """
        end_training()

    def __deepcopy__(self, memo: dict[int, Any]) -> "Accelerator":
        """Return this object itself: there is one run."""
        return self


def _registered(hooks: "OrderedDict[int, Callable[..., None]]", hook: Callable[..., None]) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle
