"""Weights with several names: find them, tie them again, check where they are. Called by maps and loading."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from accelerate.modules.tensors import owner_of

__all__ = [
    "check_tied_parameters_in_config",
    "check_tied_parameters_on_same_device",
    "find_tied_parameters",
    "retie_parameters",
]

logger = logging.getLogger(__name__)


def find_tied_parameters(model: nn.Module, **kwargs: Any) -> list[list[str]]:
    """Return the groups of names under which one parameter stands in several places, each group sorted.

    Args:
        model: the model; parameters on the meta device count, too.
        kwargs: not used; older callers pass some.

    Example:
        >>> model = nn.ModuleDict({"first": nn.Linear(2, 2), "second": nn.Linear(2, 2)})
        >>> model["second"].weight = model["first"].weight
        >>> find_tied_parameters(model)
        [['first.weight', 'second.weight']]
    """
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [sorted(group) for group in names.values() if len(group) > 1]


def retie_parameters(model: nn.Module, tied_params: Iterable[Sequence[str]]) -> None:
    """Make the names of each group one parameter again, that of the first name with a value.

    Args:
        model: changed in place.
        tied_params: what `find_tied_parameters` gave before the ties were lost.
    """
    for group in tied_params:
        owners = [owner_of(model, name) for name in group]
        parameters = [owner._parameters.get(name) for owner, name in owners]
        kept = next((one for one in parameters if one is not None and not one.is_meta), parameters[0])
        for owner, name in owners:
            if name in owner._parameters:
                owner._parameters[name] = kept


def check_tied_parameters_in_config(model: nn.Module) -> bool:
    """Return whether the configuration of a transformers model says that weights of it are tied."""
    config = getattr(model, "config", None)
    if config is None or not hasattr(model, "get_output_embeddings"):
        return False
    output = model.get_output_embeddings()  # type: ignore[operator]
    words = bool(getattr(config, "tie_word_embeddings", False) and output is not None and output is not False)
    halves = bool(
        getattr(config, "is_encoder_decoder", False) and getattr(config, "tie_encoder_decoder", False)
    )
    return (
        (words and isinstance(output, nn.Module))
        or (halves and isinstance(output, nn.Module))
        or any(hasattr(module, "_tie_weights") for module in model.modules())
    )


def check_tied_parameters_on_same_device(
    tied_params: Iterable[Sequence[str]], device_map: Mapping[str, Any]
) -> None:
    """Warn about every group of tied parameters that a map puts on several devices.

    Args:
        tied_params: groups of names.
        device_map: name of a module -> device.

    Raises:
        ValueError: the map says nothing about one of the names.
    """
    for group in tied_params:
        places = {name: _device_in(device_map, name) for name in group}
        if len(set(places.values())) > 1:
            logger.warning(
                "Tied parameters are on different devices: %s. Please modify your custom device map or set "
                "`device_map='auto'`.",
                places,
            )


def _device_in(device_map: Mapping[str, Any], name: str) -> Any:
    while name not in device_map:
        if not name:
            raise ValueError(
                f"The `device_map` does not contain the module {name}. Give a device to every module, or one "
                "to the name '' for all the others."
            )
        name = name.rpartition(".")[0]
    return device_map[name]
