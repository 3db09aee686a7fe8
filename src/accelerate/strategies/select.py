"""The one table of DistributedType: which strategy trains. Called by the Accelerator, once."""

from accelerate.errors import ConfigurationError
from accelerate.options.enums import DistributedType
from accelerate.options.request import Request
from accelerate.precision.base import Precision
from accelerate.runtime.current import Current
from accelerate.strategies.base import Strategy
from accelerate.strategies.ddp import DDP
from accelerate.strategies.fsdp2 import FSDP2

__all__ = ["STRATEGIES", "select"]

_REPLICATED = (
    DistributedType.MULTI_CPU,
    DistributedType.MULTI_GPU,
    DistributedType.MULTI_NPU,
    DistributedType.MULTI_MLU,
    DistributedType.MULTI_SDAA,
    DistributedType.MULTI_MUSA,
    DistributedType.MULTI_XPU,
    DistributedType.MULTI_HPU,
    DistributedType.MULTI_NEURON,
)
STRATEGIES: dict[DistributedType, type[Strategy]] = {
    DistributedType.NO: Strategy,
    **dict.fromkeys(_REPLICATED, DDP),
    DistributedType.FSDP: FSDP2,
}


def select(run: Current, precision: Precision, request: Request) -> Strategy:
    """Return the strategy of this run.

    Args:
        run: the current run, which knows the distributed type.
        precision: the number format of the step.
        request: what the user asked for.

    Raises:
        ConfigurationError: this version has no strategy for the distributed type.
    """
    strategy = STRATEGIES.get(run.distributed_type)
    if strategy is None:
        raise ConfigurationError(
            f"{run.distributed_type} is not available in this version; "
            f"it has {', '.join(kind.value for kind in STRATEGIES)}."
        )
    return strategy(run, precision, request)
