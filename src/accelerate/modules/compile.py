"""torch.compile seen from outside: whether a module is compiled, and what is behind it. Called by unwrapping.

Compiling is loaded by torch on first use. Before that no module can be compiled, so nothing here loads it.
"""

import sys
from typing import Any

from torch import nn

__all__ = ["has_compiled_regions", "is_compiled_module", "recompiled", "regional_original"]


def is_compiled_module(module: nn.Module) -> bool:
    """Return whether `module` is what `torch.compile(model)` gave (not so after `model.compile()`)."""
    loaded = sys.modules.get("torch._dynamo.eval_frame")
    return loaded is not None and isinstance(module, loaded.OptimizedModule)


def has_compiled_regions(module: nn.Module) -> bool:
    """Return whether `module` or anything inside it is compiled."""
    if "torch._dynamo.eval_frame" not in sys.modules:
        return False
    return any(is_compiled_module(part) for part in module.modules())


def regional_original(module: nn.Module) -> nn.Module | None:
    """Return the module of which `module` is a copy with compiled regions; None when it is no such copy."""
    # The copy keeps it out of its children, so that state dicts of both have the same names.
    original: nn.Module | None = module.__dict__.get("_orig_mod")
    return original


def recompiled(compiled: Any, inner: nn.Module) -> nn.Module:
    """Return `inner` compiled with the settings of `compiled`, which is left as it is."""
    again: nn.Module = type(compiled)(inner, compiled.dynamo_ctx)
    return again
