"""Sharded data parallelism, version 2: torch's `fully_shard`. Chosen by strategies/select.

Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023.

[Note: whose parameters] `fully_shard` puts new parameters, which are shards, in the place of the user's. The
optimizer still holds the *originals*; `prepare` gives it, in place, the *shard* of each original, with the
state that it had. Originals are known weakly, so that a model and its optimizer may come in separate calls.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakSet

import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, StateDictType, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import Module, Parameter
from torch.optim import Optimizer
from torch.utils.weak import WeakIdKeyDictionary

from accelerate.checkpoint import dcp
from accelerate.errors import ConfigurationError
from accelerate.modules.wrapping import named_ignored
from accelerate.options.fsdp import FullyShardedDataParallelPlugin
from accelerate.options.request import Request
from accelerate.precision.base import Precision
from accelerate.runtime.current import Current
from accelerate.strategies import fsdp_model
from accelerate.strategies.base import Objects, Owned, Parameters, Strategy, Traits, own

__all__ = ["FSDP2"]


class FSDP2(Strategy):
    """Every rank keeps a part of each parameter, gradient and optimizer state; wholes live for a moment.

    `request.fsdp` says how; without a plugin the environment does.
    """

    traits: ClassVar[Traits] = Traits(lists_wrapped_model=True, supports_local_sgd=False)

    def __init__(self, run: Current, precision: Precision, request: Request) -> None:
        super().__init__(run, precision, request)
        self.plugin = request.fsdp or FullyShardedDataParallelPlugin()
        if self.plugin.fsdp_version != 2:
            raise ConfigurationError(
                f"fsdp_version={self.plugin.fsdp_version}: this version trains with FSDP version 2 only. "
                "Leave fsdp_version and the options of version 1 out: reshard_after_forward=True shards as "
                "FULL_SHARD does, False as SHARD_GRAD_OP."
            )
        if precision.name != "no":
            self.plugin.set_mixed_precision(precision.name)
        self._mesh: DeviceMesh | None = None
        self._shards: Any = WeakIdKeyDictionary()  # original -> shard, see [Note: whose parameters]
        self._optimizers: WeakSet[Optimizer] = WeakSet()

    @property
    def mesh(self) -> DeviceMesh:
        """The ranks over which everything is sharded, made at the first use on all ranks together."""
        if self._mesh is None:
            self._mesh = init_device_mesh(
                self.run.device.type, (self.run.num_processes,), mesh_dim_names=("dp_shard",)
            )
        return self._mesh

    def prepare(
        self, objects: Objects, prepare_model: Callable[[Module, bool], Module] | None = None
    ) -> Objects:
        """Return `objects` with models sharded, and the shards in the optimizers."""
        objects = super().prepare(objects, prepare_model)
        self._optimizers.update(own(optimizer) for optimizer in objects.optimizers)
        for optimizer in self._optimizers:
            fsdp_model.switch_parameters(optimizer, self._shards)
        return objects

    def prepare_model(self, model: Module, *, place: bool = True, evaluation: bool = False) -> Module:
        """Return `model` itself, sharded; compiled block by block where compiling is asked for.

        Sharding moves it to the device of this rank, block by block, whatever `place` says.
        """
        if isinstance(model, FSDPModule):
            return model
        model = self.precision.convert(model)
        blocks = fsdp_model.blocks(model, self.plugin)
        if self.plugin.activation_checkpointing:
            blocks = fsdp_model.checkpoint_activations(
                model, blocks, offload=self.plugin.activation_checkpointing_offload
            )
        if self._compiles(model):
            # In place, so that names stay; what gathers and frees parameters is between the compiled blocks.
            for block in blocks or [model]:
                block.compile(**self.dynamo.to_kwargs())
        return self.precision.wrap_forward(self.wrap(model, evaluation=evaluation, blocks=blocks))

    def wrap(self, model: Module, *, evaluation: bool, blocks: Sequence[Module] | None = None) -> Module:
        """Shard `model` in place, its blocks first; every rank starts with rank 0's weights."""
        if blocks is None:
            blocks = fsdp_model.blocks(model, self.plugin)
        ignored = named_ignored(model, self.plugin.ignored_modules)
        inside_ignored = {part for module in ignored for part in module.modules()}
        source = fsdp_model.Source(model, self.run, only_rank_0=self.plugin.cpu_ram_efficient_loading)
        originals = fsdp_model.named(model)
        options = self._options(ignored)
        for block in blocks:
            if block not in inside_ignored:
                fully_shard(block, **options)
        # What the root holds is needed first in the backward pass: torch keeps it by default.
        root = {"reshard_after_forward": None} if self.plugin.reshard_after_forward is True else {}
        fully_shard(model, **{**options, **root})
        for module in ignored:
            module.to(self.run.device)
        source.fill(model, self.plugin.param_init_fn)
        self._note(originals, fsdp_model.named(model))
        return model

    def _options(self, ignored: Iterable[Module]) -> dict[str, Any]:
        """Return the arguments of `fully_shard`, alike for all modules of a model."""
        left_out = {parameter for module in ignored for parameter in module.parameters()}
        if any(parameter.requires_grad for parameter in left_out):
            warnings.warn(
                "ignored_modules has parameters that are trained. Their gradients stay each rank's own, "
                "so that ranks drift apart: freeze them with requires_grad_(False).",
                stacklevel=2,
            )
        options: dict[str, Any] = {
            "mesh": self.mesh,
            "reshard_after_forward": self.plugin.reshard_after_forward,
            "offload_policy": self.plugin.cpu_offload,
            "ignored_params": left_out or None,
        }
        if self.plugin.mixed_precision_policy is not None:
            options["mp_policy"] = self.plugin.mixed_precision_policy
        return options

    def _note(self, originals: dict[str, Parameter], shards: dict[str, Parameter]) -> None:
        for name, original in originals.items():
            if shards[name] is not original:
                self._shards[original] = shards[name]

    @contextmanager
    def no_sync(self, model: Module) -> Iterator[None]:
        """Return a context whose backward passes keep whole gradients on each rank, unreduced."""
        with self._reducing(model, False):
            yield

    @contextmanager
    def trigger_sync(self, model: Module) -> Iterator[None]:
        """Return a context whose backward pass reduces gradients although its forward ran under `no_sync`."""
        with self._reducing(model, True):
            yield

    @contextmanager
    def _reducing(self, model: Module, value: bool) -> Iterator[None]:
        if not isinstance(model, FSDPModule):
            yield
            return
        model.set_requires_gradient_sync(value)
        try:
            yield
        finally:
            model.set_requires_gradient_sync(True)

    def scale_gradients(self, models: Iterable[Module], factor: torch.Tensor) -> None:
        """Multiply this rank's part of each gradient with `factor`."""
        parameters = {id(each): each for model in models for each in model.parameters()}.values()
        for each in parameters:
            if each.grad is not None:
                local = each.grad.to_local() if isinstance(each.grad, DTensor) else each.grad
                local.mul_(factor.to(local.device))

    def clip_grad_norm(self, parameters: Parameters, max_norm: float, norm_type: float = 2) -> torch.Tensor:
        """Scale gradients in place to a norm over all ranks of at most `max_norm`; return the old one."""
        given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        return fsdp_model.clip(given, max_norm, norm_type, self.run.device)

    def clip_grad_value(self, parameters: Parameters, clip_value: float) -> None:
        """Clamp every element of this rank's part of the gradients to [-clip_value, clip_value]."""
        given = [parameters] if isinstance(parameters, torch.Tensor) else parameters
        for each in given:
            if each.grad is not None:
                local = each.grad.to_local() if isinstance(each.grad, DTensor) else each.grad
                local.clamp_(-clip_value, clip_value)

    def state_dict(self, model: Module) -> dict[str, Any]:
        """Return the full weights of `model` in CPU memory, on rank 0; the others get an empty one."""
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        return dict(get_model_state_dict(self.unwrap(model), options=options))

    def save(self, models: Sequence[Module], optimizers: Sequence[Any], folder: Path, **kwargs: Any) -> Owned:
        """Write weights and optimizer state, each rank its part, or whole by rank 0, as the plugin says."""
        whole = self.plugin.state_dict_type is StateDictType.FULL_STATE_DICT
        dcp.save(
            [self.unwrap(model) for model in models], [own(each) for each in optimizers], folder, whole=whole
        )
        return Owned(models=True, optimizers=True)

    def load(self, models: Sequence[Module], optimizers: Sequence[Any], folder: Path) -> Owned:
        """Read what `save` wrote, in either form and at any number of ranks."""
        dcp.load([self.unwrap(model) for model in models], [own(each) for each in optimizers], folder)
        return Owned(models=True, optimizers=True)
