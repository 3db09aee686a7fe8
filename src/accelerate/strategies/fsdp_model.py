"""Parts of FSDP version 2 that need no strategy: blocks, first weights, optimizers, clipping.

Called by strategies/fsdp2 on every rank.
"""

from collections.abc import Callable, Iterable, MutableMapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, offload_wrapper
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn import Module, Parameter
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

from accelerate.errors import ConfigurationError
from accelerate.modules.traverse import get_module_children_bottom_up
from accelerate.modules.wrapping import repeated_blocks
from accelerate.options.fsdp import FullyShardedDataParallelPlugin
from accelerate.runtime.current import Current

__all__ = ["Source", "blocks", "checkpoint_activations", "clip", "named", "switch_parameters"]


def named(model: Module) -> dict[str, Parameter]:
    """Return every parameter by name; one that is tied has several."""
    return dict(model.named_parameters(remove_duplicate=False))


def blocks(model: Module, plugin: FullyShardedDataParallelPlugin) -> list[Module]:
    """Return the modules to be sharded on their own, inner ones first, without the root.

    Where the policy chooses none, they are the model's repeated blocks.

    Raises:
        ConfigurationError: a class name is not in the model.
    """
    plugin.set_auto_wrap_policy(model)
    parts = get_module_children_bottom_up(model)[:-1]
    policy = plugin.auto_wrap_policy
    keywords = getattr(policy, "keywords", {})
    chosen: list[Module] = []
    if "transformer_layer_cls" in keywords:
        classes = tuple(keywords["transformer_layer_cls"])
        chosen = [part for part in parts if isinstance(part, classes)]
    elif "min_num_params" in keywords:
        chosen = _by_size(parts, keywords["min_num_params"])
    elif policy is not None:
        chosen = [part for part in parts if _asks(policy, part)]
    return chosen or repeated_blocks(model)


def _by_size(parts: Sequence[Module], least: int) -> list[Module]:
    """Return the modules that have `least` parameters beside those of chosen modules inside them."""
    chosen: list[Module] = []
    taken: set[Parameter] = set()
    for part in parts:
        left = set(part.parameters()) - taken
        if sum(parameter.numel() for parameter in left) >= least:
            chosen.append(part)
            taken |= left
    return chosen


def _asks(policy: Any, part: Module) -> bool:
    try:
        return bool(policy(part))
    except TypeError:  # the form of version 1
        return bool(
            policy(module=part, recurse=False, nonwrapped_numel=sum(p.numel() for p in part.parameters()))
        )


def checkpoint_activations(model: Module, chosen: Sequence[Module], *, offload: bool) -> list[Module]:
    """Put activation checkpointing around the chosen modules, in place; return what took their place.

    Args:
        model: holds the modules.
        chosen: what is computed again in the backward pass, as a unit each.
        offload: keep the inputs of these units in CPU memory.
    """
    new = {part: checkpoint_wrapper(offload_wrapper(part) if offload else part) for part in chosen}
    for parent in list(model.modules()):
        if parent not in new.values():
            for name, child in list(parent._modules.items()):
                if child in new:
                    parent._modules[name] = new[child]
    return [new[part] for part in chosen]


class Source:
    """The weights that a model starts with: rank 0's, which are sent into the shards of all ranks.

    Made before the model is sharded. Where only rank 0 has them, the other ranks' are never read and no
    rank needs memory for whole parameters but rank 0.

    Args:
        model: not yet sharded.
        run: the current run.
        only_rank_0: the other ranks' weights are of no account, as after `cpu_ram_efficient_loading`.
    """

    def __init__(self, model: Module, run: Current, *, only_rank_0: bool) -> None:
        self._run = run
        is_meta = any(parameter.is_meta for parameter in model.parameters())
        metas = [is_meta]
        if run.num_processes > 1:
            gathered: list[Any] = [None] * run.num_processes
            dist.all_gather_object(gathered, is_meta)
            metas = gathered
        if only_rank_0 and metas[0]:
            raise ConfigurationError(
                "cpu_ram_efficient_loading=True, but rank 0's model is on the meta device: load the weights "
                "on rank 0, or leave the option out and pass param_init_fn."
            )
        self._initialise = all(metas)
        self._values: dict[str, torch.Tensor] = {}
        if not self._initialise and (not metas[0] or only_rank_0):
            self._keep(model)

    def _keep(self, model: Module) -> None:
        if self._run.is_main_process:
            tensors = {**named(model), **dict(model.named_buffers(remove_duplicate=False))}
            self._values = {name: tensor.detach() for name, tensor in tensors.items()}

    def fill(self, model: Module, initialise: Callable[[Module], None] | None) -> None:
        """Give the sharded `model` its weights; every rank calls it.

        Args:
            model: sharded.
            initialise: fills a module, where no rank has weights; its `reset_parameters` by default.
        """
        if any(parameter.is_meta for parameter in model.parameters()):
            model.to_empty(device=self._run.device)
        if self._initialise:
            _initialise(model, initialise)
            return
        with torch.no_grad():
            tensors = {**named(model), **dict(model.named_buffers(remove_duplicate=False))}
            done: set[int] = set()
            for name, tensor in tensors.items():
                if id(tensor) not in done:
                    done.add(id(tensor))
                    self._send(name, tensor)

    def _send(self, name: str, tensor: torch.Tensor) -> None:
        device = self._run.device
        value = self._values.get(name)
        if value is None:
            value = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
        value = value.to(device=device, dtype=tensor.dtype).contiguous()
        if not isinstance(tensor, DTensor):
            if self._run.num_processes > 1:
                dist.broadcast(value, src=0)
            tensor.copy_(value)
            return
        local = distribute_tensor(value, tensor.device_mesh, tensor.placements).to_local()
        tensor.to_local().copy_(local)


def _initialise(model: Module, initialise: Callable[[Module], None] | None) -> None:
    for part in model.modules():
        if initialise is not None:
            initialise(part)
        elif callable(reset := getattr(part, "reset_parameters", None)):
            reset()
        elif any(True for _ in part.parameters(recurse=False)):
            raise ConfigurationError(
                f"{type(part).__name__} is on the meta device and has no `reset_parameters`: pass "
                "FullyShardedDataParallelPlugin(param_init_fn=...), or load weights on rank 0 and pass "
                "cpu_ram_efficient_loading=True."
            )


def switch_parameters(optimizer: Optimizer, shards: MutableMapping[Any, Any]) -> None:
    """Give an optimizer the shard of each parameter that has one, in place, with groups, order and state.

    Args:
        optimizer: the user's own.
        shards: original parameter -> what took its place in the model.
    """
    for group in optimizer.param_groups:
        for index, original in enumerate(group["params"]):
            shard = shards.get(original)
            if shard is None:
                continue
            group["params"][index] = shard
            if original in optimizer.state:
                state = optimizer.state.pop(original)
                optimizer.state[shard] = {key: _like(value, original, shard) for key, value in state.items()}


def _like(value: Any, original: torch.Tensor, shard: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.shape == original.shape and value.ndim:
        return distribute_tensor(value.to(shard.device), shard.device_mesh, shard.placements)
    return value


def clip(
    parameters: Iterable[torch.Tensor], max_norm: float, norm_type: float, device: torch.device
) -> torch.Tensor:
    """Scale gradients in place to a norm over all ranks of at most `max_norm`; return the old norm (0-d)."""
    gradients = [each.grad for each in parameters if each.grad is not None]
    sharded = [gradient for gradient in gradients if isinstance(gradient, DTensor)]
    whole = [gradient for gradient in gradients if not isinstance(gradient, DTensor)]
    norms = [get_total_norm(kind, norm_type) for kind in (sharded, whole) if kind]
    if not norms:
        return torch.tensor(0.0, device=device)
    parts = [norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in norms]
    total: torch.Tensor = torch.linalg.vector_norm(
        torch.stack([part.to(device) for part in parts]), norm_type
    )
    factor = torch.clamp(max_norm / (total + 1e-6), max=1.0)
    for local in (*(gradient.to_local() for gradient in sharded), *whole):
        local.mul_(factor.to(local.device))
    return total
