"""Helpers of the questionnaire that other code imports. The questions themselves are in cluster.py."""

import argparse

from accelerate.commands.menu.selection_menu import BulletMenu
from accelerate.options.enums import (
    ComputeEnvironment,
    DistributedType,
    DynamoBackend,
    FP8BackendType,
    PrecisionType,
    SageMakerDistributedType,
)

__all__ = [
    "DYNAMO_BACKENDS",
    "BulletMenu",
    "ComputeEnvironment",
    "DistributedType",
    "DynamoBackend",
    "FP8BackendType",
    "PrecisionType",
    "SageMakerDistributedType",
    "SubcommandHelpFormatter",
]

# In the order and in the spelling of the interface.
DYNAMO_BACKENDS = [
    "EAGER",
    "AOT_EAGER",
    "INDUCTOR",
    "AOT_TS_NVFUSER",
    "NVPRIMS_NVFUSER",
    "CUDAGRAPHS",
    "OFI",
    "FX2TRT",
    "ONNXRT",
    "TENSORRT",
    "AOT_TORCHXLA_TRACE_ONCE",
    "TORHCHXLA_TRACE_ONCE",
    "TVM",
]


class SubcommandHelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Leaves out the line that only says that there are subcommands."""

    def _format_action(self, action: argparse.Action) -> str:
        parts = super()._format_action(action)
        if action.nargs == argparse.PARSER:
            parts = "\n".join(parts.split("\n")[1:])
        return parts
