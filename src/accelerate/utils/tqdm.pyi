# Written by tools/door_stubs.py from the table in tqdm.py: change that and run it again.

from accelerate.compat.probes import (
    is_tqdm_available as is_tqdm_available,
)
from accelerate.runtime.progress import (
    tqdm as tqdm,
)
from accelerate.state import (
    PartialState as PartialState,
)

__all__ = [
    "PartialState",
    "is_tqdm_available",
    "tqdm",
]
