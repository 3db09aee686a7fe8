# Written by tools/door_stubs.py from the table in modeling.py: change that and run it again.

from accelerate.modules.peft import (
    is_peft_model as is_peft_model,
)
from accelerate.precision.autocast import (
    get_mixed_precision_context_manager as get_mixed_precision_context_manager,
)
from accelerate.precision.scaler import (
    get_grad_scaler as get_grad_scaler,
)

__all__ = [
    "get_grad_scaler",
    "get_mixed_precision_context_manager",
    "is_peft_model",
]
