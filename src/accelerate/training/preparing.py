"""What `prepare` does with each kind of object. A part of the Accelerator, which inherits it.

`prepare` sorts its arguments by kind, has the strategy check and make them ready, and gives them back in the
order in which they came; the methods for one kind are what it calls for each, and can be called alone.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast, overload

from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from accelerate.compat import env
from accelerate.data.prepare import prepare_data_loader
from accelerate.data.skip import skip_first_batches
from accelerate.errors import ConfigurationError, NothingGivenError
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.options.data import DataLoaderConfiguration
from accelerate.options.enums import RNGType
from accelerate.runtime.current import current
from accelerate.scheduler import AcceleratedScheduler
from accelerate.state import accelerator_state
from accelerate.strategies.base import Objects, Strategy
from accelerate.training.lomo import no_step, steps_in_backward
from accelerate.training.marks import mark, renewed

__all__ = ["Preparing"]

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
ModelT = TypeVar("ModelT", bound=Module)
LoaderT = TypeVar("LoaderT", bound=DataLoader[Any])
Placement = list[bool | None] | None


class Preparing:
    """The methods that make objects ready for a run.

    Attributes:
        device_placement: move models, optimizer state and batches to the device of this rank.
        dataloader_config: how loaders are shared among processes.
        rng_types: random states that are made equal on all ranks at each epoch's start.
        scaler: gradient scaler to step through, None in full precision.
        step_scheduler_with_optimizer: let schedulers follow the optimizer's steps.
        step_scheduler_per_process: advance them once a process with each of these steps.
    """

    device_placement: bool
    dataloader_config: DataLoaderConfiguration
    rng_types: list[str | RNGType]
    scaler: Any
    step_scheduler_with_optimizer: bool
    step_scheduler_per_process: bool
    _strategy: Strategy
    _models: list[Module]
    _optimizers: list[AcceleratedOptimizer]
    _schedulers: list[AcceleratedScheduler]
    _dataloaders: list[Any]

    @overload
    def prepare(self, a: A, /, *, device_placement: Placement = None) -> A: ...
    @overload
    def prepare(self, a: A, b: B, /, *, device_placement: Placement = None) -> tuple[A, B]: ...
    @overload
    def prepare(self, a: A, b: B, c: C, /, *, device_placement: Placement = None) -> tuple[A, B, C]: ...
    @overload
    def prepare(
        self, a: A, b: B, c: C, d: D, /, *, device_placement: Placement = None
    ) -> tuple[A, B, C, D]: ...
    @overload
    def prepare(
        self, a: A, b: B, c: C, d: D, e: E, /, *, device_placement: Placement = None
    ) -> tuple[A, B, C, D, E]: ...
    @overload
    def prepare(
        self, a: A, b: B, c: C, d: D, e: E, f: F, /, *, device_placement: Placement = None
    ) -> tuple[A, B, C, D, E, F]: ...
    @overload
    def prepare(self, *args: Any, device_placement: Placement = None) -> tuple[Any, ...]: ...
    def prepare(self, *args: Any, device_placement: Placement = None) -> Any:
        """Make models, optimizers, data loaders and schedulers ready for this run.

        Every rank calls it with the same kinds of objects in the same order; the order itself does not
        matter. Anything else, and what was prepared before, passes through.

        Args:
            args: the objects.
            device_placement: for each object, whether to move it to the device; None: as the Accelerator.

        Returns:
            The prepared object, or a tuple of them in the order of `args`. A type checker sees the types that
            were passed, so that the user's names can be used again; `prepare_optimizer` and
            `prepare_scheduler` are typed with what they return.

        Raises:
            NothingGivenError: no object (a ValueError, and an IndexError as in the interface).
            ConfigurationError: `device_placement` has another length, or the strategy cannot prepare this.

        Example:
            >>> import torch
            >>> from accelerate import Accelerator
            >>> accelerator = Accelerator(cpu=True)
            >>> model = torch.nn.Linear(2, 1)
            >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            >>> optimizer, model = accelerator.prepare(optimizer, model)  # in any order
            >>> optimizer
            AcceleratedOptimizer(SGD (...
            >>> accelerator.end_training()
        """
        if not args:
            raise NothingGivenError("prepare() needs at least one object: a model, an optimizer, a loader …")
        placement = [None] * len(args) if device_placement is None else device_placement
        if len(placement) != len(args):
            raise ConfigurationError(
                f"device_placement has {len(placement)} elements, but {len(args)} objects were passed: give "
                "True, False or None for each."
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
        """Return whether some part of `model` is spread over devices although several processes train.

        `prepare` refuses such a model. ACCELERATE_BYPASS_DEVICE_MAP=true says that it is meant.
        """
        return (
            current.use_distributed
            and not env.is_true("ACCELERATE_BYPASS_DEVICE_MAP")
            and any(len(getattr(module, "hf_device_map", None) or ()) > 1 for module in model.modules())
        )

    def _register_model(self, module: Module, model: Module) -> Module:
        # A model that the user has compiled is listed as what is inside, for the names in checkpoints.
        is_listed = self._strategy.traits.lists_wrapped_model
        self._models.append(model if is_listed else self._strategy.unwrap(module))
        return mark(model, current)

    def prepare_model(
        self, model: ModelT, device_placement: bool | None = None, evaluation_mode: bool = False
    ) -> ModelT:
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
        prepared = self._strategy.prepare_model(model, place=place, evaluation=evaluation_mode)
        # A wrapper answers for the module in it, so that the user's type is of more use than the wrapper's.
        return cast(ModelT, self._register_model(model, prepared))

    def prepare_data_loader(
        self,
        data_loader: LoaderT,
        device_placement: bool | None = None,
        slice_fn_for_dispatch: Callable[..., Any] | None = None,
    ) -> LoaderT:
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
            current.device,
            num_processes=current.num_processes,
            process_index=current.process_index,
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
            torch_device_mesh=accelerator_state().device_mesh,
        )
        self._dataloaders.append(prepared)
        return cast(LoaderT, mark(prepared, current))

    def skip_first_batches(self, dataloader: A, num_batches: int = 0) -> A:
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
            step_function=no_step if steps_in_backward(optimizer) else self._strategy.step,
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
            split_batches=self.dataloader_config.split_batches,
            per_process=self.step_scheduler_per_process,
        )
        self._schedulers.append(prepared)
        return mark(prepared, current)
