"""Gradients of an accumulation window that is open when a checkpoint is written. Called by plan and restore.

Inside a window each rank has gradients of its own, which no other rank has: a file a rank. Their mean over
the ranks stands for them on every rank of a world of another size, since what is shared at the end of the
window is the mean over the ranks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from accelerate.errors import CheckpointError

__all__ = ["clear", "collect", "mean", "restore", "split"]

_COUNTED = "window."  # how the names of what is no gradient begin


def collect(
    modules: Sequence[Any], optimizers: Sequence[Any], counted: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return all gradients that there are, by the name of the parameter.

    Args:
        modules: the user's modules.
        optimizers: may hold parameters that are in none of the modules.
        counted: what else belongs to the window, on this rank.

    Raises:
        CheckpointError: a gradient cannot be stored.
    """
    gradients = {_COUNTED + name: value for name, value in counted.items()}
    for name, parameter in _parameters(modules, optimizers):
        gradient = parameter.grad
        if gradient is None:
            continue
        if gradient.layout != torch.strided or type(gradient) is not Tensor:
            raise CheckpointError(
                f"save_state() inside an accumulation window: the gradient of {name} is "
                f"{_kind(gradient)} and cannot be stored. Save after the optimizer's step, when "
                "`accelerator.sync_gradients` is true."
            )
        gradients[name] = gradient.contiguous()
    return gradients


def _kind(gradient: Tensor) -> str:
    return str(gradient.layout) if gradient.layout != torch.strided else f"a {type(gradient).__name__}"


def split(content: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the gradients, and what else belongs to the window."""
    counted = {name[len(_COUNTED) :]: value for name, value in content.items() if name.startswith(_COUNTED)}
    return {name: value for name, value in content.items() if not name.startswith(_COUNTED)}, counted


def restore(gradients: Mapping[str, Tensor], modules: Sequence[Any], optimizers: Sequence[Any]) -> list[str]:
    """Give the parameters these gradients, and take those away that they have besides.

    Returns:
        The names that no parameter has now.
    """
    left = dict(gradients)
    for name, parameter in _parameters(modules, optimizers):
        gradient = left.pop(name, None)
        if gradient is not None and gradient.shape == parameter.shape:
            parameter.grad = torch.empty_like(parameter, requires_grad=False).copy_(gradient)
        else:
            parameter.grad = None
            left |= {name: gradient} if gradient is not None else {}
    return sorted(left)


def clear(modules: Sequence[Any], optimizers: Sequence[Any]) -> None:
    """Take the gradients of a window away that is given up."""
    restore({}, modules, optimizers)


def mean(of_ranks: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean over ranks; a rank without a gradient counts as zeros."""
    total: dict[str, Tensor] = {}
    for gradients in of_ranks:
        for name, gradient in gradients.items():
            total[name] = total[name] + gradient if name in total else gradient
    return {name: gradient / len(of_ranks) for name, gradient in total.items()}


def _parameters(modules: Sequence[Any], optimizers: Sequence[Any]) -> Iterator[tuple[str, Parameter]]:
    """Return every parameter once, with a name that is the same in the next run."""
    seen: set[int] = set()
    for name, parameter in (*_of_modules(modules), *_of_optimizers(optimizers)):
        if id(parameter) not in seen:
            seen.add(id(parameter))
            yield name, parameter


def _of_modules(modules: Sequence[Any]) -> Iterable[tuple[str, Parameter]]:
    for index, module in enumerate(modules):
        for name, parameter in module.named_parameters():
            yield f"models.{index}.{name}", parameter


def _of_optimizers(optimizers: Sequence[Any]) -> Iterable[tuple[str, Parameter]]:
    for index, optimizer in enumerate(optimizers):
        for group, settings in enumerate(optimizer.param_groups):
            for position, parameter in enumerate(settings["params"]):
                yield f"optimizers.{index}.{group}.{position}", parameter
