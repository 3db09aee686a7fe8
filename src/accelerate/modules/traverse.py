"""Walk through a model: children first, classes by name, what is sharded. Called by engines and users."""

from typing import Literal, overload

from torch import nn
from torch.distributed.tensor import DTensor

__all__ = [
    "get_model_tp_size",
    "get_module_children_bottom_up",
    "get_module_class_from_name",
    "model_has_dtensor",
]


@overload
def get_module_children_bottom_up(model: nn.Module, return_fqns: Literal[False] = ...) -> list[nn.Module]: ...
@overload
def get_module_children_bottom_up(
    model: nn.Module, return_fqns: Literal[True]
) -> list[tuple[str, nn.Module]]: ...
@overload
def get_module_children_bottom_up(
    model: nn.Module, return_fqns: bool
) -> list[nn.Module] | list[tuple[str, nn.Module]]: ...


def get_module_children_bottom_up(
    model: nn.Module, return_fqns: bool = False
) -> list[nn.Module] | list[tuple[str, nn.Module]]:
    """Return a model and everything inside it, each module after what it contains; the model comes last.

    A module that stands in two places is listed once, under its first name.

    Args:
        model: where to start.
        return_fqns: give pairs of the dotted name and the module; the name of the model itself is empty.

    Example:
        >>> model = nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.ReLU()))
        >>> [name for name, _ in get_module_children_bottom_up(model, return_fqns=True)]
        ['0', '1.0', '1', '']
    """
    named: list[tuple[str, nn.Module]] = []
    _append(model, "", named, set())
    return named if return_fqns else [module for _, module in named]


def _append(module: nn.Module, name: str, named: list[tuple[str, nn.Module]], seen: set[int]) -> None:
    seen.add(id(module))
    for child_name, child in module.named_children():
        if id(child) not in seen:
            _append(child, f"{name}.{child_name}" if name else child_name, named, seen)
    named.append((name, module))


def get_module_class_from_name(module: nn.Module, name: str) -> type[nn.Module] | None:
    """Return the class of that name among the classes of a model and of everything inside it, or None.

    Args:
        module: where to look.
        name: name of the class, without its module.

    Example:
        >>> get_module_class_from_name(nn.Sequential(nn.Linear(1, 1)), "Linear")
        <class 'torch.nn.modules.linear.Linear'>
    """
    return next((type(part) for part in module.modules() if type(part).__name__ == name), None)


def model_has_dtensor(model: nn.Module) -> bool:
    """Return whether any parameter of a model is sharded or replicated over a mesh, as a DTensor."""
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def get_model_tp_size(model: nn.Module) -> int | None:
    """Return over how many ranks a library has split the layers of a model, as it notes in `model.tp_size`.

    None when it noted nothing.
    """
    return getattr(model, "tp_size", None)
