"""Tensors of a state dict that share memory: which names are written, and which come back with them.

Called by what writes safetensors, a format in which every tensor has bytes of its own, and by what loads
weights into a model.

[Note: shared memory]
- the *extent* of a tensor is the range of addresses from its first to its last element;
- a tensor is *dense* when it uses every byte of its extent;
- a tensor *covers* another one of the same storage when it is the same view, or is dense and its extent
  includes that of the other: whoever writes the first into memory has written the second. Of two tensors
  that cover each other (tied weights) the earlier name covers the later one.
Only covered tensors are left out. Views side by side in one buffer (the weights of an LSTM on a GPU) are
all written.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch

__all__ = ["clean_state_dict_for_safetensors", "covered_names", "with_shared_names"]

logger = logging.getLogger(__name__)


def clean_state_dict_for_safetensors(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """Return what safetensors can store of a state dict: contiguous tensors that share no memory.

    Of tensors that share memory the first name is kept and a warning names the others. No value is lost:
    loading the kept names into a model with the same sharing restores all of them.

    Args:
        state_dict: names and tensors. It is not changed; what is not a tensor is passed through.

    Returns:
        A new dictionary in the same order. Tensors are copied only where memory would be shared.

    Example:
        >>> weight = torch.ones(2)
        >>> list(clean_state_dict_for_safetensors({"embedding": weight, "head": weight}))
        ['embedding']
    """
    covered = covered_names(state_dict)
    if covered:
        logger.warning(
            "Not written because they share memory with a tensor that is: %s. Loading into a model that "
            "shares them in the same way restores them.",
            ", ".join(f"{name!r} (with {by!r})" for name, by in covered.items()),
        )
    kept = {name: value for name, value in state_dict.items() if name not in covered}
    overlapping = _overlapping_names(kept)
    return {
        name: _separate(value, overlapping=name in overlapping) if isinstance(value, torch.Tensor) else value
        for name, value in kept.items()
    }


def covered_names(state_dict: Mapping[str, Any]) -> dict[str, str]:
    """Return the names that need not be written, each with the name whose tensor covers it.

    Only names that are themselves written appear as values. See [Note: shared memory].

    Example:
        >>> weight = torch.ones(4)
        >>> covered_names({"head": weight[:2], "embedding": weight})
        {'head': 'embedding'}
    """
    covered: dict[str, str] = {}
    for names in _by_storage(state_dict).values():
        # Largest first, so that what covers is decided before what it covers; sorting is stable, so that
        # among equals the first name stays first.
        largest_first = sorted(names, key=lambda name: _size_of_extent(state_dict[name]), reverse=True)
        written: list[str] = []
        for name in largest_first:
            by = next((other for other in written if _covers(state_dict[other], state_dict[name])), None)
            if by is None:
                written.append(name)
            else:
                covered[name] = by
    return {name: covered[name] for name in state_dict if name in covered}


def with_shared_names(state: Mapping[str, Any], live: Mapping[str, Any], *, in_place: bool) -> dict[str, Any]:
    """Return weights that were read, with the names added that other tensors of a model cover.

    Args:
        state: what a file holds.
        live: `state_dict()` of the model that it will be loaded into.
        in_place: whether loading writes into the live tensors. If it replaces them, only names whose live
            tensors are the same view can be completed.

    Returns:
        `state`, and for each name of `live` that it lacks and that a name that it has covers: the same
        tensor where the two are the same view, else the live view itself, which holds the right values as
        soon as the tensor that covers it is loaded.
    """
    completed = dict(state)
    for names in _by_storage(live).values():
        present = [name for name in names if name in state]
        for name in names:
            source = next((other for other in present if _covers(live[other], live[name])), None)
            if name in state or source is None:
                continue
            if _same_view(live[source], live[name]):
                completed[name] = state[source]
            elif in_place:
                completed[name] = live[name]
    return completed


def _by_storage(state_dict: Mapping[str, Any]) -> dict[tuple[torch.device, int], list[str]]:
    """Return the names of tensors in groups of one storage; groups of one name are left out."""
    groups: dict[tuple[torch.device, int], list[str]] = defaultdict(list)
    for name, value in state_dict.items():
        if isinstance(value, torch.Tensor) and value.layout == torch.strided and value.numel() > 0:
            address = value.untyped_storage().data_ptr()
            if address != 0:  # tensors on meta and wrappers of other tensors have no memory of their own
                groups[(value.device, address)].append(name)
    return {storage: names for storage, names in groups.items() if len(names) > 1}


def _size_of_extent(tensor: torch.Tensor) -> int:
    """Return the number of bytes from the first to the last element of a tensor that is not empty."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.data_ptr() + _size_of_extent(tensor)


def _is_dense(tensor: torch.Tensor) -> bool:
    expected = 1  # elements
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _same_view(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (
        one.data_ptr() == other.data_ptr()
        and one.dtype == other.dtype
        and one.shape == other.shape
        and one.stride() == other.stride()
        and one.is_conj() == other.is_conj()
        and one.is_neg() == other.is_neg()
    )


def _covers(outer: torch.Tensor, inner: torch.Tensor) -> bool:
    if _same_view(outer, inner):
        return True
    (outer_start, outer_end), (start, end) = _extent(outer), _extent(inner)
    return outer_start <= start and end <= outer_end and _is_dense(outer)


def _overlapping_names(state_dict: Mapping[str, Any]) -> set[str]:
    """Return the names of tensors whose extent begins inside that of another one."""
    overlapping: set[str] = set()
    for names in _by_storage(state_dict).values():
        last_end = 0
        for (start, end), name in sorted((_extent(state_dict[name]), name) for name in names):
            if start < last_end:
                overlapping.add(name)
            last_end = max(last_end, end)
    return overlapping


def _separate(tensor: torch.Tensor, *, overlapping: bool) -> torch.Tensor:
    if overlapping:
        return tensor.clone(memory_format=torch.contiguous_format)
    return tensor.contiguous() if tensor.layout == torch.strided else tensor
