"""Outputs of a model in float32, whatever the model computed in. Called by precisions and by users.

[Note: containers of outputs] Beside lists, tuples (named ones too) and mappings, as everywhere in this room,
a model may return a dataclass, frozen or not, or a mapping that is a dataclass as well. What holds nothing
to convert is given back as it is; what does is copied, never changed.
"""

import copy
import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from accelerate.modules.forward import ForwardWrapper
from accelerate.modules.nested import honor_type

__all__ = ["ConvertOutputsToFp32", "convert_outputs_to_fp32", "convert_to_fp32"]

_HALVES = (torch.float16, torch.bfloat16)


def convert_to_fp32(tensor: Any) -> Any:
    """Return nested containers with every float16 and bfloat16 tensor in float32; other leaves are kept.

    Args:
        tensor: see [Note: containers of outputs].

    Example:
        >>> outputs = {"loss": torch.ones(1, dtype=torch.bfloat16), "count": torch.ones(1).int()}
        >>> [tensor.dtype for tensor in convert_to_fp32(outputs).values()]
        [torch.float32, torch.int32]
    """
    return _convert(tensor, ())


class ConvertOutputsToFp32(ForwardWrapper):
    """A forward pass whose half-precision outputs come back in float32.

    It can be pickled and deep-copied together with the module that it belongs to.

    Args:
        model_forward: the forward pass inside.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the forward pass inside and convert what it returns."""
        return _convert(self.model_forward(*args, **kwargs), ())


def convert_outputs_to_fp32(model_forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `model_forward` and gives its half-precision outputs in float32.

    Example:
        >>> model = torch.nn.Linear(2, 2, dtype=torch.bfloat16)
        >>> convert_outputs_to_fp32(model)(torch.ones(1, 2, dtype=torch.bfloat16)).dtype
        torch.float32
    """
    converted = ConvertOutputsToFp32(model_forward)

    @functools.wraps(model_forward)
    def forward(*args: Any, **kwargs: Any) -> Any:
        return converted(*args, **kwargs)

    return forward


def _convert(data: Any, around: tuple[int, ...]) -> Any:
    """Convert `data`, which stands inside the dataclasses whose ids are `around`."""
    if isinstance(data, Tensor):
        return data.float() if data.dtype in _HALVES else data
    if isinstance(data, (list, tuple)):
        items = [_convert(item, around) for item in data]
        return data if all(map(operator.is_, items, data)) else honor_type(data, items)
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        # One that holds itself, as a node that knows its parent does, is not followed in a circle.
        return data if id(data) in around else _convert_dataclass(data, (*around, id(data)))
    if isinstance(data, Mapping):
        values = {key: _convert(value, around) for key, value in data.items()}
        return (
            data
            if all(map(operator.is_, values.values(), data.values()))
            else honor_type(data, values.items())
        )
    return data


def _convert_dataclass(data: Any, around: tuple[int, ...]) -> Any:
    names = [field.name for field in dataclasses.fields(data) if hasattr(data, field.name)]
    fields = {name: (old := getattr(data, name), _convert(old, around)) for name in names}
    # In one that is a mapping, too, an entry is the same tensor as the field of its name: converted once.
    entries = {
        key: fields[key] if key in fields and fields[key][0] is old else (old, _convert(old, around))
        for key, old in (data.items() if isinstance(data, Mapping) else ())
    }
    if all(new is old for old, new in (*fields.values(), *entries.values())):
        return data
    rebuilt = copy.copy(data)
    for name, (_, new) in fields.items():
        object.__setattr__(rebuilt, name, new)  # a frozen dataclass has no assignment
    for key, (_, new) in entries.items():
        if rebuilt[key] is not new:
            rebuilt[key] = new
    return rebuilt
