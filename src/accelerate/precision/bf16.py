"""Precision bf16: the range of float32, so that gradients need no scaling. Chosen by precision/select."""

from typing import ClassVar

import torch

from accelerate.precision.autocast import AutocastPrecision

__all__ = ["BF16"]


class BF16(AutocastPrecision):
    """Operations in bfloat16."""

    name: ClassVar[str] = "bf16"
    dtype: ClassVar[torch.dtype] = torch.bfloat16
