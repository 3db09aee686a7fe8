"""torch.compile on whole modules and on their repeated blocks. Called by strategies, unwrapping and users.

Compiling is loaded by torch on first use. Before that no module can be compiled: looking loads nothing.

[Note: regions] A *repeated block* is one of the items of a ModuleList whose items are all of one class: the
layers of a transformer. Compiled one by one they share one compilation, which takes a fraction of the time
that the whole model takes. `compile_regions` gives a copy of the model in which these blocks, and what stands
beside them, are compiled. The copy has its own modules on the way down to the blocks, and shares everything
else with the original: parameters, buffers, hooks. The original stays as it is and is remembered.
"""

import copy
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

__all__ = [
    "compile_regions",
    "compile_regions_deepspeed",
    "compile_regions_fsdp2",
    "compile_whole",
    "has_compiled_regions",
    "has_repeated_blocks",
    "is_compiled",
    "is_compiled_module",
    "is_repeated_blocks",
    "recompiled",
    "regional_original",
]


def is_compiled_module(module: nn.Module) -> bool:
    """Return whether `module` is what `torch.compile(model)` gave (not so after `model.compile()`).

    Example:
        >>> is_compiled_module(torch.compile(nn.Linear(1, 1), backend="eager"))
        True
    """
    loaded = sys.modules.get("torch._dynamo.eval_frame")
    return loaded is not None and isinstance(module, loaded.OptimizedModule)


def is_compiled(module: nn.Module) -> bool:
    """Return whether `module` runs compiled: by `torch.compile`, `model.compile()` or `compile_regions`."""
    in_place = getattr(module, "_compiled_call_impl", None) is not None
    return in_place or is_compiled_module(module) or regional_original(module) is not None


def has_compiled_regions(module: nn.Module) -> bool:
    """Return whether `module` or anything inside it is compiled.

    Example:
        >>> has_compiled_regions(nn.Sequential(torch.compile(nn.Linear(1, 1), backend="eager")))
        True
    """
    if "torch._dynamo.eval_frame" not in sys.modules:
        return False
    return any(is_compiled_module(part) for part in module.modules())


def is_repeated_blocks(module: nn.Module) -> bool:
    """Return whether `module` is a list of modules of one class.

    Example:
        >>> is_repeated_blocks(nn.ModuleList(nn.Linear(2, 2) for _ in range(3)))
        True
        >>> is_repeated_blocks(nn.ModuleList([nn.Linear(2, 2), nn.ReLU()]))
        False
    """
    return isinstance(module, nn.ModuleList) and len({type(block) for block in module}) == 1


def has_repeated_blocks(module: nn.Module) -> bool:
    """Return whether `module` or anything inside it is a list of modules of one class.

    Example:
        >>> model = nn.ModuleDict({"layers": nn.ModuleList(nn.Linear(2, 2) for _ in range(3))})
        >>> has_repeated_blocks(model), has_repeated_blocks(nn.Linear(2, 2))
        (True, False)
    """
    return any(is_repeated_blocks(part) for part in module.modules())


def compile_whole(module: nn.Module, **compile_kwargs: Any) -> nn.Module:
    """Return `module` compiled, the arguments being those of `torch.compile`."""
    compiled: Any = torch.compile(module, **compile_kwargs)
    # torch gives its functions all attributes of the module, as functools.wraps does. They would keep alive
    # what the module itself lets go of later, such as a process group.
    function = vars(compiled).get("forward")
    while isinstance(function, types.FunctionType):
        inside = vars(function).get("__wrapped__")
        for name in vars(module):
            vars(function).pop(name, None)
        function = inside
    return compiled  # type: ignore[no-any-return]


def compile_regions(module: nn.Module, **compile_kwargs: Any) -> nn.Module:
    """Return a copy of `module` whose repeated blocks are compiled one by one ([Note: regions]).

    A module without repeated blocks is compiled as a whole.

    Args:
        module: it is not changed; the copy shares its parameters.
        compile_kwargs: passed on to `torch.compile`.

    Example:
        >>> model = nn.Sequential()
        >>> model.layers = nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1)])
        >>> compiled = compile_regions(model, backend="eager")
        >>> [is_compiled_module(layer) for layer in compiled.layers]
        [True, True]
    """
    return _compile_regions(module, compile_kwargs, {})


def compile_regions_fsdp2(module: nn.Module, **compile_kwargs: Any) -> nn.Module:
    """Compile the repeated blocks of `module` in place ([Note: regions]) and return it.

    Modules and parameters stay the objects that they are, which sharding one by one needs.

    Args:
        module: from now on its blocks run compiled; without any, it runs compiled as a whole.
        compile_kwargs: passed on to `torch.compile`.
    """
    for region in _regions(module):
        region.compile(**compile_kwargs)
    return module


def compile_regions_deepspeed(module: nn.Module, **compile_kwargs: Any) -> None:
    """Compile the repeated blocks of `module` in place, as `compile_regions_fsdp2`; return nothing.

    Args:
        module: from now on its blocks run compiled; without any, it runs compiled as a whole.
        compile_kwargs: passed on to `torch.compile`.
    """
    compile_regions_fsdp2(module, **compile_kwargs)


def regional_original(module: nn.Module) -> nn.Module | None:
    """Return the module of which `module` is a copy with compiled regions; None when it is no such copy."""
    # The copy keeps it out of its children, so that parameters are not listed twice.
    original: nn.Module | None = module.__dict__.get("_orig_mod")
    return original


def recompiled(compiled: Any, inner: nn.Module) -> nn.Module:
    """Return `inner` compiled with the settings of `compiled`, which is left as it is."""
    again: nn.Module = type(compiled)(inner, compiled.dynamo_ctx)
    return again


def _regions(module: nn.Module) -> Iterator[nn.Module]:
    """Yield what is compiled as a unit: repeated blocks and what stands beside them; once each."""
    if is_compiled(module):
        return
    if _is_container(module) or has_repeated_blocks(module):
        for child in dict.fromkeys(module.children()):
            yield from _regions(child)
    else:
        yield module


def _is_container(module: nn.Module) -> bool:
    """Return whether a module only holds others and cannot be called."""
    return type(module).forward is nn.Module.forward and "forward" not in module.__dict__


def _compile_regions(
    module: nn.Module, compile_kwargs: dict[str, Any], done: dict[int, nn.Module]
) -> nn.Module:
    """Do the work of `compile_regions`; `done` holds the result for each module, by the module's id."""
    if id(module) not in done:
        if is_compiled(module):
            result = module
        elif _is_container(module) or has_repeated_blocks(module):
            result = _shallow_copy(module)
            for name, child in module._modules.items():
                if child is not None:
                    result._modules[name] = _compile_regions(child, compile_kwargs, done)
        else:
            result = compile_whole(module, **compile_kwargs)
        done[id(module)] = result
    return done[id(module)]


def _shallow_copy(module: nn.Module) -> nn.Module:
    clone = module.__class__.__new__(module.__class__)
    clone.__dict__.update(module.__dict__)
    clone.__dict__.update(_modules=module._modules.copy(), _orig_mod=module)
    kept: dict[int, Any] = {
        id(part): part for part in (*module.modules(), *module.parameters(), *module.buffers())
    }
    kept[id(module)] = clone
    for name in ("forward", "_original_forward", "_old_forward"):
        if name in module.__dict__:  # replaced on the instance, and bound to it: bind it to the copy
            clone.__dict__[name] = copy.deepcopy(module.__dict__[name], kept)
    return clone
