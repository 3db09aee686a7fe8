"""The door to helpers about models, under the path that client libraries import."""

from accelerate.compat.doors import door

HOMES = {
    "accelerate.modules.peft": ["is_peft_model"],
    "accelerate.precision.autocast": ["get_mixed_precision_context_manager"],
    "accelerate.precision.scaler": ["get_grad_scaler"],
}

__getattr__, __dir__, __all__ = door(__name__, HOMES)
