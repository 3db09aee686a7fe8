"""The Accelerator: what a training loop calls. It checks, delegates and returns; it decides nothing itself.

What depends on hardware, engine or precision is in the strategy and the precision object, chosen once in
the constructor.
"""

import dataclasses
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.nn import Module
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from accelerate import checkpointing
from accelerate.checkpoint import files
from accelerate.compat import env
from accelerate.data.clock import StepClock
from accelerate.data.evenness import even_batches as override_even_batches
from accelerate.errors import ConfigurationError
from accelerate.logging import get_logger
from accelerate.modules.nested import flatten
from accelerate.modules.unwrap import extract_model_from_parallel
from accelerate.optimizer import AcceleratedOptimizer, owners
from accelerate.options import request as requests
from accelerate.options.accumulation import GradientAccumulationPlugin
from accelerate.options.data import DataLoaderConfiguration
from accelerate.options.dynamo import TorchDynamoPlugin
from accelerate.options.enums import DistributedType, DynamoBackend, FP8BackendType, PrecisionType, RNGType
from accelerate.options.fsdp import FullyShardedDataParallelPlugin
from accelerate.options.handlers import AutocastKwargs, KwargsHandler
from accelerate.options.profile import ProfileKwargs
from accelerate.options.project import ProjectConfiguration
from accelerate.options.request import NOT_GIVEN, Request
from accelerate.precision.base import Precision
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
from accelerate.strategies.select import select as select_strategy
from accelerate.training import lomo
from accelerate.training.item_mean import ItemMean
from accelerate.training.metrics import gather_real_rows, truncate, truncate_full
from accelerate.training.placement import rank_along, refuse_axis
from accelerate.training.preparing import Preparing
from accelerate.training.profiling import recorded
from accelerate.training.window import AccumulationWindow

__all__ = ["Accelerator"]

logger = get_logger(__name__)

A = TypeVar("A")
ModelT = TypeVar("ModelT", bound=Module)
Parameters = torch.Tensor | Iterable[torch.Tensor]

# Arguments of the interface whose engines this version does not have yet.
_ABSENT = (
    "deepspeed_plugin",
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


class Accelerator(Preparing, ProcessHelpers):
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
        step_scheduler_per_process: advance schedulers once a process with each optimizer step, as the
            interface does: right for a schedule that counts the batches of one process. With False they
            advance once a step, whatever the number of processes: right for one that counts optimizer steps.
        fsdp_plugin: how models are sharded over ranks; ACCELERATE_USE_FSDP=true asks for it, too.
        deepspeed_plugin, torch_tp_plugin, megatron_lm_plugin, deepspeed_plugins,
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
        fsdp_plugin: FullyShardedDataParallelPlugin | None = None,
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
        *,
        step_scheduler_per_process: bool = True,
    ) -> None:
        given, environ = locals(), env.snapshot()
        requests.refuse_absent({name: given[name] for name in _ABSENT}, environ)
        request = Request(
            mixed_precision=mixed_precision,
            cpu=cpu,
            device_placement=device_placement,
            step_scheduler_with_optimizer=step_scheduler_with_optimizer,
            step_scheduler_per_process=step_scheduler_per_process,
            accumulation=requests.accumulation_plugin(
                gradient_accumulation_steps, gradient_accumulation_plugin, environ
            ),
            dataloader=requests.dataloader_configuration(split_batches, dataloader_config),
            project=requests.project_configuration(project_dir, project_config),
            rng_types=("generator",) if rng_types is None else tuple(rng_types),
            dynamo=requests.dynamo_plugin(dynamo_backend, dynamo_plugin),
            fsdp=requests.fsdp_plugin(fsdp_plugin, environ),
            **requests.sort_handlers(kwargs_handlers),
        )
        self._set_up(request)

    def _set_up(self, request: Request) -> None:
        """Start the run and choose how it trains: all that another process must not do differently."""
        group = request.process_group.to_kwargs() if request.process_group is not None else {}
        forget_ended_training()
        is_first = not is_initialized()
        self.state = set_up_training(
            request.mixed_precision,
            cpu=request.cpu,
            dynamo_plugin=request.dynamo,
            fsdp_plugin=request.fsdp,
            **group,
        )
        self._precision = self._choose_precision(request, is_first=is_first)
        # The first Accelerator has settled for all of them whether models are sharded.
        settled = dataclasses.replace(request, fsdp=getattr(self.state, "fsdp_plugin", None))
        self._strategy = select_strategy(current, self._precision, settled)
        current.strategy = self._strategy
        self.gradient_state = GradientState(request.accumulation)
        self._take_over(request)
        self._begin_empty()

    def _choose_precision(self, request: Request, *, is_first: bool) -> Precision:
        try:
            return select_precision(
                self.state.mixed_precision, current.kind, autocast=request.autocast, scaler=request.scaler
            )
        except ConfigurationError:
            if is_first:  # another precision can be asked for without starting anew
                AcceleratorState._reset_state()
            raise

    def _take_over(self, request: Request) -> None:
        self.device_placement = request.device_placement
        self.dataloader_config = request.dataloader
        self.step_scheduler_with_optimizer = request.step_scheduler_with_optimizer
        self.step_scheduler_per_process = request.step_scheduler_per_process
        self.project_configuration = request.project
        self.rng_types: list[str | RNGType] = list(request.rng_types)
        self.ddp_handler = request.ddp
        self.init_handler = request.process_group
        self.autocast_handler = request.autocast
        self.scaler_handler = request.scaler
        self.profile_handler = request.profile
        self.scaler = self._precision.scaler
        self.native_amp = self._precision.name in ("fp16", "bf16")
        self.fp8_enabled = self._precision.name == "fp8"

    def _begin_empty(self) -> None:
        self.trackers: list[Any] = []
        self.log_with: list[Any] = []
        self.step = 0
        self.flag_tensor: torch.Tensor | None = None
        self._item_mean = ItemMean(current, self._strategy)
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

    @property
    def is_composable_parallelism_enabled(self) -> bool:
        """Whether other axes of parallelism can be stacked on the strategy; FSDP version 2 allows it."""
        return self.is_fsdp2

    @property
    def has_lomo_optimizer(self) -> bool:
        """Whether an optimizer was prepared that updates in the backward pass (LOMO)."""
        return bool(lomo.fused(self._optimizers))

    # ---- fp8 and the axes of a mesh ------------------------------------------------------------------------

    # Handlers of fp8 libraries; this version takes none.
    fp8_recipe_handler: Any = None
    ao_recipe_handler: Any = None
    te_recipe_handler: Any = None
    msamp_recipe_handler: Any = None
    has_fp8_handler: bool = False
    delayed_fp8_autocast: bool = False

    @property
    def fp8_backend(self) -> FP8BackendType:
        """The library that computes in fp8."""
        return FP8BackendType.NO

    @property
    def parallelism_config(self) -> Any:
        """The axes that were asked for, None without."""
        return self.state.parallelism_config

    @property
    def torch_device_mesh(self) -> Any:
        """The mesh of all ranks, None when there is no axis but that of replicas."""
        return self.state.device_mesh

    @property
    def tensor_parallel_rank(self) -> int:
        """Place of this rank along the axis of tensor parallelism."""
        return rank_along(self.torch_device_mesh, "tp", "Tensor parallelism")

    @property
    def data_parallel_rank(self) -> int:
        """Place of this rank along the axis of replicas in a mesh."""
        return rank_along(self.torch_device_mesh, "dp_replicate", "Data parallelism in a mesh")

    @property
    def data_parallel_shard_rank(self) -> int:
        """Place of this rank along the axis of sharded data parallelism."""
        return rank_along(self.torch_device_mesh, "dp_shard", "Sharded data parallelism")

    @property
    def pipeline_parallel_rank(self) -> int:
        """Place of this rank along the axis of pipeline parallelism."""
        refuse_axis("Pipeline parallelism")

    @property
    def context_parallel_rank(self) -> int:
        """Place of this rank along the axis of context parallelism."""
        refuse_axis("Context parallelism")

    def maybe_context_parallel(
        self,
        buffers: list[torch.Tensor] | None = None,
        buffer_seq_dims: list[int] | None = None,
        no_restore_buffers: set[torch.Tensor] | None = None,
    ) -> AbstractContextManager[None]:
        """Return a context in which a step's sequences are cut up along the context axis, if there is one.

        Without that axis, which this version does not have, the block runs as it stands; a log line says so
        once.

        Args:
            buffers: the tensors that hold sequences.
            buffer_seq_dims: for each of them, the dim along which the sequence runs.
            no_restore_buffers: those that need not be whole again afterwards.

        Example:
            >>> from accelerate import Accelerator
            >>> accelerator = Accelerator(cpu=True)
            >>> tokens = torch.zeros(2, 8)
            >>> with accelerator.maybe_context_parallel(buffers=[tokens], buffer_seq_dims=[1]):
            ...     tuple(tokens.shape)
            (2, 8)
            >>> accelerator.end_training()
        """
        logger.warning_once("There is no context axis: `maybe_context_parallel` leaves the block as it is.")
        return nullcontext()

    def deepspeed_ulysses_dl_adapter(self, dl: A, model: Any) -> A:
        """Return `dl`, made to give each rank its part of the sequence under sequence parallelism.

        Without that axis, which this version does not have, every rank sees whole sequences: `dl` is
        returned as it is.

        Args:
            dl: a prepared loader.
            model: the prepared model that it feeds.
        """
        return dl

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

        Example:
            >>> from accelerate import Accelerator
            >>> accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
            >>> model = accelerator.prepare(torch.nn.Linear(1, 1))
            >>> for _ in range(4):
            ...     with accelerator.accumulate(model):
            ...         accelerator.sync_gradients
            False
            True
            False
            True
            >>> accelerator.end_training()
        """
        return AccumulationWindow(self._begin_micro_batch, self.no_sync, models)

    def _begin_micro_batch(self, models: Sequence[Module]) -> bool:
        self._item_mean.begin(models)
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

    def backward(
        self, loss: torch.Tensor, *, num_items: int | float | torch.Tensor | None = None, **kwargs: Any
    ) -> None:
        """Compute gradients of `loss`, weighed so that the micro-batches of a window add up to one batch.

        Without `num_items` the loss is a mean, and is divided by the accumulation steps. With it the loss is
        a sum, and the step is made with the gradient of (sum of all losses) / (number of all items) over the
        window and over all ranks: exact also where micro-batches, ranks or windows hold different numbers of
        items. All losses of a window are given in the same way, on every rank, one in each `accumulate`.

        Args:
            loss: mean over this micro-batch or, with `num_items`, sum over its items.
            num_items: samples, tokens that count, or whatever `loss` is a sum over, on this rank.
            kwargs: passed on to `Tensor.backward`; `learning_rate` is for `lomo_backward`.

        Raises:
            ConfigurationError: a window holds losses of both kinds, or two sums in one micro-batch.
            TypeError: a learning rate, but no optimizer that takes it in the backward pass.

        Example:
            >>> from accelerate import Accelerator
            >>> accelerator = Accelerator(cpu=True)
            >>> model = accelerator.prepare(torch.nn.Linear(1, 1, bias=False))
            >>> accelerator.backward(model(torch.tensor([[1.0], [2.0], [3.0]])).sum(), num_items=3)
            >>> model.weight.grad
            tensor([[2.]])
            >>> accelerator.end_training()
        """
        if num_items is not None:
            loss = loss * self._item_weight(num_items)
        elif accumulation.num_steps != 1 and not self._strategy.traits.owns_accumulation:
            self._item_mean.refuse_mean()
            loss = loss / accumulation.num_steps
        if "learning_rate" not in kwargs:
            self._strategy.backward(loss, sync=accumulation.sync_gradients, **kwargs)
        elif self.has_lomo_optimizer:
            self.lomo_backward(loss, kwargs["learning_rate"])
        else:
            lomo.refuse_learning_rate()

    def _item_weight(self, num_items: int | float | torch.Tensor) -> torch.Tensor:
        return self._item_mean.weight(
            num_items,
            num_steps=accumulation.num_steps,
            sync=accumulation.sync_gradients,
            alike=accumulation.options.get("sync_each_batch", False),
            models=self._models,
        )

    def lomo_backward(self, loss: torch.Tensor, learning_rate: float) -> None:
        """Compute gradients of `loss` with a LOMO optimizer, which updates each parameter on the way.

        `backward(loss, learning_rate=...)` does the same, and divides the loss by the accumulation steps.

        Args:
            loss: 0-d tensor.
            learning_rate: of this update.

        Raises:
            ConfigurationError: no learning rate, or not exactly one LOMO optimizer was prepared.
        """
        lomo.fused_backward(self._optimizers, loss, learning_rate)

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

        Example:
            >>> from accelerate import Accelerator
            >>> accelerator = Accelerator(cpu=True)
            >>> model = accelerator.prepare(torch.nn.Linear(2, 1, bias=False))
            >>> accelerator.backward(model(torch.tensor([[3.0, 4.0]])).sum())
            >>> accelerator.clip_grad_norm_(model.parameters(), max_norm=1.0)
            tensor(5.)
            >>> model.weight.grad
            tensor([[0.6000, 0.8000]])
            >>> accelerator.end_training()
        """
        parameters = self._unscale_owners(parameters)
        return self._strategy.clip_grad_norm(parameters, max_norm, norm_type)

    def clip_grad_value_(self, parameters: Parameters, clip_value: float) -> None:
        """Clamp every gradient element in place to [-clip_value, clip_value]; every rank calls it.

        Example:
            >>> from accelerate import Accelerator
            >>> accelerator = Accelerator(cpu=True)
            >>> model = accelerator.prepare(torch.nn.Linear(2, 1, bias=False))
            >>> accelerator.backward(model(torch.tensor([[3.0, -0.5]])).sum())
            >>> accelerator.clip_grad_value_(model.parameters(), 1.0)
            >>> model.weight.grad
            tensor([[ 1.0000, -0.5000]])
            >>> accelerator.end_training()
        """
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

        Example:
            >>> from accelerate import Accelerator
            >>> accelerator = Accelerator(cpu=True, mixed_precision="bf16")
            >>> with accelerator.autocast():
            ...     (torch.ones(2, 2) @ torch.ones(2, 2)).dtype
            torch.bfloat16
            >>> accelerator.end_training()
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

        Example:
            >>> from accelerate import Accelerator
            >>> accelerator = Accelerator(cpu=True)
            >>> with accelerator.profile(ProfileKwargs(activities=["cpu"])) as profiler:
            ...     total = torch.ones(3) + 1
            >>> "aten::add" in {event.key for event in profiler.key_averages()}
            True
            >>> accelerator.end_training()
        """
        return recorded(profile_handler or self.profile_handler or ProfileKwargs(), self.process_index)

    def step_clock(self, loader: Iterable[A]) -> StepClock[A]:
        """Return `loader` with a clock that notes how long its batches let the loop wait.

        Args:
            loader: prepared or not; iterate what is returned in its place.

        Example:
            >>> from accelerate import Accelerator
            >>> accelerator = Accelerator(cpu=True)
            >>> clock = accelerator.step_clock(accelerator.prepare(torch.utils.data.DataLoader(range(4))))
            >>> for batch in clock:
            ...     total = batch.sum()
            >>> clock.times.steps, 0 <= clock.times.share <= 1
            (4, True)
            >>> accelerator.end_training()
        """
        return StepClock(loader)

    def set_trigger(self) -> None:
        """Raise a flag on this rank, for `check_trigger` on all ranks to see.

        Example:
            >>> from accelerate import Accelerator
            >>> accelerator = Accelerator(cpu=True)
            >>> accelerator.set_trigger()
            >>> accelerator.check_trigger(), accelerator.check_trigger()
            (True, False)
            >>> accelerator.end_training()
        """
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

        Example:
            >>> from torch.utils.data import DataLoader
            >>> from accelerate import Accelerator
            >>> accelerator = Accelerator(cpu=True)
            >>> loader = accelerator.prepare(DataLoader(torch.arange(5), batch_size=2))
            >>> [accelerator.gather_for_metrics(batch).tolist() for batch in loader]
            [[0, 1], [2, 3], [4]]
            >>> accelerator.end_training()
        """
        leaves = [] if use_gather_object else flatten(input_data)[0]
        # A rank whose list is empty must take the same way as one that has objects in it.
        as_objects = not leaves or not all(isinstance(leaf, torch.Tensor) for leaf in leaves)
        loader = accumulation.active_loader
        real_rows = getattr(loader, "real_rows", None)
        if real_rows is not None and self.use_distributed:
            return gather_real_rows(input_data, real_rows, as_objects)
        gathered = (collectives.gather_object if as_objects else collectives.gather)(input_data)
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

        Example:
            >>> from accelerate import Accelerator
            >>> accelerator = Accelerator(cpu=True)
            >>> model = torch.nn.Linear(1, 1)
            >>> accelerator.unwrap_model(accelerator.prepare(model)) is model
            True
            >>> accelerator.end_training()
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

        Example:
            >>> from accelerate import Accelerator
            >>> accelerator = Accelerator(cpu=True)
            >>> list(accelerator.get_state_dict(accelerator.prepare(torch.nn.Linear(1, 1))))
            ['weight', 'bias']
            >>> accelerator.end_training()
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
        """Write all that training needs to go on, whole or not at all; every rank calls it.

        Covers every prepared model, optimizer, scheduler and loader, the scaler, random states of every rank,
        this Accelerator's counter, gradients of a window that is open, and what was registered for
        checkpointing.

        Args:
            output_dir: the folder, made if need be; ignored under automatic naming.
            safe_serialization: weights as safetensors, else as pickles.
            save_model_func_kwargs: for engines that write models themselves.

        Returns:
            The folder.

        Raises:
            TypeError: no `output_dir`, and automatic naming is off.
            ConfigurationError: the folder that automatic naming comes to exists.
            CheckpointError: with several ranks, one has failed; all raise it, and it names rank and cause.
            OSError: in one process, a file cannot be written.
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
            input_dir: the folder; the newest whole checkpoint of automatic naming when None or "latest".
            load_kwargs: passed on to `torch.load` for optimizers, schedulers and loaders.
            load_model_func_kwargs: passed on to each model's `load_state_dict` (`strict`, …). With
                `strict=True`, a damaged newer checkpoint and what was not restored are errors, not warnings.

        Raises:
            ConfigurationError: no such folder, or none was named.
            CheckpointError: a file is missing or damaged, or the number of registered objects differs; or
                another rank has failed.
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
        self._item_mean.load_state_dict(attributes["counted"])

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
            counted=self._item_mean.state_dict(),
        )

    # ---- the end -------------------------------------------------------------------------------------------

    def free_memory(self, *objects: Any) -> list[Any]:
        """Forget everything that was prepared and give memory back to the device.

        Args:
            objects: what the caller holds, to be overwritten by the result:
                `model, optimizer = accelerator.free_memory(model, optimizer)`.

        Returns:
            A list of as many None.

        Example:
            >>> from accelerate import Accelerator
            >>> accelerator = Accelerator(cpu=True)
            >>> model = accelerator.prepare(torch.nn.Linear(1, 1))
            >>> (model,) = accelerator.free_memory(model)
            >>> model is None
            True
            >>> accelerator.end_training()
        """
        for registry in (self._models, self._optimizers, self._schedulers, self._dataloaders):
            registry.clear()
        self.step = 0
        self._item_mean.reset()
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

        Example:
            >>> from accelerate import Accelerator
            >>> accelerator = Accelerator(cpu=True)
            >>> accelerator.end_training()
            >>> accelerator = Accelerator(cpu=True, mixed_precision="bf16")
            >>> accelerator.mixed_precision
            'bf16'
            >>> accelerator.end_training()
        """
        end_training()

    def __deepcopy__(self, memo: dict[int, Any]) -> "Accelerator":
        """Return this object itself: there is one run."""
        return self


def _registered(hooks: "OrderedDict[int, Callable[..., None]]", hook: Callable[..., None]) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle
