"""The one table from the name of a precision to its object. Called by the Accelerator, once."""

from accelerate.devices.base import Device
from accelerate.errors import ConfigurationError
from accelerate.options.handlers import AutocastKwargs, GradScalerKwargs
from accelerate.precision.base import Precision
from accelerate.precision.bf16 import BF16
from accelerate.precision.fp16 import FP16

__all__ = ["PRECISIONS", "select"]

PRECISIONS: dict[str, type[Precision]] = {kind.name: kind for kind in (Precision, BF16, FP16)}


def select(
    name: str,
    device: Device,
    *,
    autocast: AutocastKwargs | None = None,
    scaler: GradScalerKwargs | None = None,
) -> Precision:
    """Return the precision called `name`.

    Args:
        name: as in `mixed_precision`.
        device: the kind of hardware to compute on.
        autocast: options of autocast.
        scaler: options of the gradient scaler.

    Raises:
        ConfigurationError: this version does not have it, or the device cannot train in it.

    Example:
        >>> from accelerate.devices.base import Device
        >>> select("bf16", Device()).name
        'bf16'
    """
    kind = PRECISIONS.get(name)
    obstacle = "this version does not have it" if kind is None else kind.obstacle(device)
    if kind is None or obstacle is not None:
        possible = [known for known, other in PRECISIONS.items() if other.obstacle(device) is None]
        raise ConfigurationError(
            f"mixed_precision={name!r}: {obstacle}. Possible here: {', '.join(map(repr, possible))}. Pass "
            "one of them to Accelerator(), or start with `accelerate launch --mixed_precision <one of them>`."
        )
    return kind(device, autocast=autocast, scaler=scaler)
