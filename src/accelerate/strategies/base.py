"""Ways to train a model on many ranks: the protocol, whose base class is one process. Used by the facade.

Every method is called on every rank, in this order: `validate`, then `prepare` (which calls
`prepare_model`, and that `wrap`), once a call of `Accelerator.prepare`; `join` around a pass whose length may
differ between ranks; in each step `no_sync` around micro-batches that do
not synchronise, `scale_gradients` where a window's weight is known at its end only, `backward`, `unscale`,
`clip_grad_norm` or `clip_grad_value`, `step`, `zero_grad`; `save` and `load` at checkpoints.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch.nn import Module
from torch.optim import Optimizer

from accelerate.checkpoint import dcp
from accelerate.modules.compile import compile_regions, compile_whole, is_compiled
from accelerate.modules.unwrap import extract_model_from_parallel
from accelerate.offload.state import full_state_dict
from accelerate.options.enums import DynamoBackend
from accelerate.options.request import Request
from accelerate.precision.base import Precision, StepOutcome
from accelerate.runtime.current import Current
from accelerate.runtime.flat import indices_by

__all__ = ["Objects", "Owned", "Strategy", "Traits", "own"]

Parameters = torch.Tensor | Iterable[torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Yes/no facts about a strategy, for callers that must not ask for its type.

    Attributes:
        joint_prepare: model and optimizer must come in one call of `prepare`.
        single_model: at most one model can be prepared.
        owns_accumulation: the engine divides the loss and counts micro-batches itself.
        owns_step: the engine steps the optimizer inside backward.
        lists_wrapped_model: checkpoints are written from the wrapper rather than from the user's module.
        needs_batch_size: the batch size must be known when preparing.
        supports_join: ranks may have different numbers of batches inside `join_uneven_inputs`.
        supports_local_sgd: parameters are whole on every rank, so that they can be averaged.
    """

    joint_prepare: bool = False
    single_model: bool = False
    owns_accumulation: bool = False
    owns_step: bool = False
    lists_wrapped_model: bool = False
    needs_batch_size: bool = False
    supports_join: bool = False
    supports_local_sgd: bool = True


@dataclass(kw_only=True)
class Objects:
    """What one call of `prepare` was given, by kind, in the user's order within each kind.

    Attributes:
        models: the user's modules, then what takes their place.
        placed: for each model, whether it is to be moved to the rank's device.
        optimizers: the user's optimizers.
        loaders: the user's data loaders (engines read batch sizes from them).
        schedulers: the user's learning-rate schedulers.
    """

    models: list[Module] = field(default_factory=list)
    placed: list[bool] = field(default_factory=list)
    optimizers: list[Optimizer] = field(default_factory=list)
    loaders: list[Any] = field(default_factory=list)
    schedulers: list[Any] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Owned:
    """Which parts of a checkpoint a strategy wrote or read itself, so that the common part leaves them.

    Attributes:
        models: weights of all models.
        optimizers: state of all optimizers.
        schedulers: state of all learning rate schedulers.
        gradients: of an accumulation window that is open, on every rank.
    """

    models: bool = False
    optimizers: bool = False
    schedulers: bool = False
    gradients: bool = False


class Strategy:
    """One process: the model is the user's own module, on the device of this rank.

    Args:
        run: the current run.
        precision: the number format of the step.
        request: what the user asked for; each strategy reads the options that concern it.
    """

    traits: ClassVar[Traits] = Traits()

    def __init__(self, run: Current, precision: Precision, request: Request) -> None:
        self.run = run
        self.precision = precision
        self.dynamo = request.dynamo

    def validate(self, objects: Objects) -> None:
        """Raise a ConfigurationError if `objects` cannot be prepared together; change nothing."""

    def prepare(
        self, objects: Objects, prepare_model: Callable[[Module, bool], Module] | None = None
    ) -> Objects:
        """Return `objects` with models and optimizers made ready for this strategy.

        Args:
            objects: what was given to one call of `Accelerator.prepare`.
            prepare_model: makes one model ready, given whether to place it; the Accelerator passes its own
                method, which a subclass may have overridden. This object's when None.
        """
        make = prepare_model or self._prepare_placed
        objects.models = [
            make(model, place) for model, place in zip(objects.models, objects.placed, strict=True)
        ]
        return objects

    def _prepare_placed(self, model: Module, place: bool) -> Module:
        return self.prepare_model(model, place=place)

    def prepare_model(self, model: Module, *, place: bool = True, evaluation: bool = False) -> Module:
        """Return what takes the place of `model`.

        Args:
            model: the user's module.
            place: move it to the device of this rank.
            evaluation: it will not be trained, so that gradients need no synchronisation.
        """
        if place:
            model = model.to(self.run.device)
        model = self.precision.wrap_forward(self.precision.convert(model))
        if not self._compiles(model):
            return self.wrap(model, evaluation=evaluation)
        if self.dynamo.use_regional_compilation:
            # Wrappers go around the whole, so that what `unwrap` finds inside of them has compiled blocks.
            return self.wrap(compile_regions(model, **self.dynamo.to_kwargs()), evaluation=evaluation)
        return compile_whole(self.wrap(model, evaluation=evaluation), **self.dynamo.to_kwargs())

    def _compiles(self, model: Module) -> bool:
        return self.dynamo.backend != DynamoBackend.NO and not is_compiled(model)

    def wrap(self, model: Module, *, evaluation: bool) -> Module:
        """Return `model`, ready in every other respect, inside what this strategy puts around it."""
        return model

    def join(self, joinables: Sequence[Any]) -> AbstractContextManager[Any]:
        """Return a context in which ranks may run out of batches at different times.

        Args:
            joinables: what is trained inside: prepared models, and optimizers that communicate themselves.
        """
        return nullcontext()

    def no_sync(self, model: Module) -> AbstractContextManager[Any]:
        """Return a context whose backward passes leave gradients local."""
        return nullcontext()

    def trigger_sync(self, model: Module) -> AbstractContextManager[Any]:
        """Return a context whose backward pass synchronises although its forward pass ran under `no_sync`."""
        return nullcontext()

    def backward(self, loss: torch.Tensor, *, sync: bool = True, **kwargs: Any) -> None:
        """Compute gradients of `loss`, already divided by the accumulation steps.

        Args:
            loss: 0-d tensor.
            sync: whether this micro-batch ends the accumulation window (for engines that must be told).
            kwargs: passed on to `Tensor.backward`.
        """
        self.precision.scale(loss).backward(**kwargs)  # type: ignore[no-untyped-call]

    def scale_gradients(self, models: Iterable[Module], factor: torch.Tensor) -> None:
        """Multiply what backward passes of the window in hand have left with `models`.

        Args:
            models: prepared or bare; a parameter that several of them hold is multiplied once.
            factor: 0-d tensor on the device of this rank; ranks may differ in it.
        """
        parameters = {id(each): each for model in models for each in model.parameters()}.values()
        gradients = [each.grad for each in parameters if each.grad is not None]
        for device, indices in indices_by(lambda gradient: gradient.device, gradients).items():
            torch._foreach_mul_([gradients[index] for index in indices], factor.to(device))

    def unscale(self, optimizer: Optimizer) -> None:
        """Bring the gradients of `optimizer` (the user's own) to their true size, at most once a step."""
        self.precision.unscale(optimizer)

    def clip_grad_norm(self, parameters: Parameters, max_norm: float, norm_type: float = 2) -> torch.Tensor:
        """Scale gradients in place to a global norm of at most `max_norm`; return the old norm (0-d)."""
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type=norm_type)

    def clip_grad_value(self, parameters: Parameters, clip_value: float) -> None:
        """Clamp every gradient element in place to [-clip_value, clip_value]."""
        torch.nn.utils.clip_grad_value_(parameters, clip_value)

    def step(self, optimizer: Optimizer, closure: Any = None) -> StepOutcome:
        """Let `optimizer` (the user's own) make one step."""
        return self.precision.step(optimizer, closure)

    def zero_grad(self, optimizer: Optimizer, set_to_none: bool | None = None) -> None:
        """Drop the gradients of `optimizer`'s parameters; None leaves it to `optimizer` how."""
        if set_to_none is None:
            optimizer.zero_grad()  # a user's optimizer may take no argument
        else:
            optimizer.zero_grad(set_to_none=set_to_none)

    def unwrap(self, model: Module) -> Module:
        """Return the user's module behind what `prepare_model` gave, neither wrapped nor compiled."""
        module: Module = extract_model_from_parallel(model, keep_torch_compile=False)
        return module

    def state_dict(self, model: Module) -> dict[str, Any]:
        """Return the full weights of `model` under the user's module's names, on every rank that saves."""
        return full_state_dict(self.unwrap(model))

    def save(self, models: Sequence[Module], optimizers: Sequence[Any], folder: Path, **kwargs: Any) -> Owned:
        """Write into `folder` what only this strategy can write, for all prepared objects.

        Every rank calls it, with a folder that becomes a checkpoint only when all ranks have written:
        nothing in it may depend on its name. Files and folders of any name and depth are kept, brought to
        the disk and summed up, each by one of the ranks.

        Args:
            models: what `prepare_model` gave.
            optimizers: the prepared optimizers.
            folder: where to write; seen by all ranks, or with folders of their own by those of one machine.
            kwargs: what the user passed to `save_state` for the engine.
        """
        return Owned()

    def load(self, models: Sequence[Module], optimizers: Sequence[Any], folder: Path) -> Owned:
        """Read from `folder` what `save` wrote; every rank calls it, after all files were checked.

        This one reads what sharded training has written, since whole models can be put together from parts.
        """
        if not dcp.wrote(folder):
            return Owned()
        dcp.load([self.unwrap(model) for model in models], [own(each) for each in optimizers], folder)
        return Owned(models=True, optimizers=True)


def own(optimizer: Any) -> Optimizer:
    """Return the user's optimizer inside what `prepare` made of it."""
    inner: Optimizer = getattr(optimizer, "optimizer", optimizer)
    return inner
