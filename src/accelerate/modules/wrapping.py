"""Which modules of a model are sharded on their own. Called by FSDP's plugin and strategies."""

import re
from collections import Counter
from collections.abc import Iterable

from torch import nn

from accelerate.errors import ConfigurationError
from accelerate.modules.traverse import get_module_class_from_name

__all__ = ["block_classes", "named_ignored", "repeated_blocks"]


def block_classes(model: nn.Module, names: Iterable[str] | None) -> set[type[nn.Module]]:
    """Return the classes of `model`'s blocks.

    Args:
        model: where to look.
        names: class names; None: what the model names in `_no_split_modules`, where they occur.

    Raises:
        ConfigurationError: a name is of no class in the model, or there are no names at all.
    """
    named = list(names or ())
    if not named:
        own = getattr(model, "_no_split_modules", None) or ()
        found = {get_module_class_from_name(model, name) for name in own} - {None}
        classes = {kind for kind in found if kind is not None} or {
            type(block) for block in repeated_blocks(model)
        }
        if classes:
            return classes
        raise ConfigurationError(
            f"{type(model).__name__} names no `_no_split_modules` and has no repeated blocks: pass "
            f"transformer_cls_names_to_wrap=[...] with some of {', '.join(_class_names(model))}."
        )
    absent = [name for name in named if get_module_class_from_name(model, name) is None]
    if absent:
        raise ConfigurationError(
            f"transformer_cls_names_to_wrap={named!r}: {type(model).__name__} has no "
            f"{' and no '.join(absent)}; it has {', '.join(_class_names(model))}."
        )
    return {kind for name in named if (kind := get_module_class_from_name(model, name)) is not None}


def repeated_blocks(model: nn.Module) -> list[nn.Module]:
    """Return the elements of the outermost lists of modules, where several are of one class."""
    blocks: list[nn.Module] = []
    _collect(model, blocks)
    return blocks


def _collect(module: nn.Module, blocks: list[nn.Module]) -> None:
    for child in module.children():
        parts = list(child.children())
        same = Counter(type(part) for part in parts)
        if isinstance(child, nn.ModuleList) and len(parts) > 1 and len(same) == 1:
            blocks += [part for part in parts if next(part.parameters(), None) is not None]
        else:
            _collect(child, blocks)


def named_ignored(model: nn.Module, ignored: Iterable[nn.Module] | str | None) -> set[nn.Module]:
    """Return the modules that are not to be sharded.

    Args:
        model: where to look.
        ignored: modules, or a pattern that the whole dotted name of a module matches.
    """
    if ignored is None:
        return set()
    if isinstance(ignored, str):
        pattern = re.compile(ignored)
        return {module for name, module in model.named_modules() if pattern.fullmatch(name)}
    return set(ignored)


def _class_names(model: nn.Module) -> list[str]:
    return sorted({type(part).__name__ for part in model.modules()})
