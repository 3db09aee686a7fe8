"""The one table from the name of a precision to its object. Called by the Accelerator, once."""

from accelerate.errors import ConfigurationError
from accelerate.precision.base import Precision

__all__ = ["PRECISIONS", "select"]

PRECISIONS: dict[str, type[Precision]] = {Precision.name: Precision}


def select(name: str) -> Precision:
    """Return the precision called `name`.

    Raises:
        ConfigurationError: this version does not have it.
    """
    if name not in PRECISIONS:
        raise ConfigurationError(
            f"mixed_precision={name!r} is not available in this version; it has {sorted(PRECISIONS)}. "
            'Pass mixed_precision="no", or start with `accelerate launch --mixed_precision no`.'
        )
    return PRECISIONS[name]()
