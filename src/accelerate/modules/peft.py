"""What this package asks of the library peft. Called by users and by engines that treat adapters apart."""

import importlib
from typing import Any

from accelerate.compat.probes import is_peft_available
from accelerate.modules.unwrap import extract_model_from_parallel

__all__ = ["is_peft_model"]


def is_peft_model(model: Any) -> bool:
    """Return whether a model, inside whatever engines put around it, is one of peft's.

    Args:
        model: a wrapped or a plain model; it is not changed.
    """
    if not is_peft_available():
        return False
    return isinstance(extract_model_from_parallel(model), importlib.import_module("peft").PeftModel)
