# Written by tools/door_stubs.py from the table in versions.py: change that and run it again.

from accelerate.compat.versions import (
    compare_versions as compare_versions,
    is_torch_version as is_torch_version,
    torch_version as torch_version,
)

__all__ = [
    "compare_versions",
    "is_torch_version",
    "torch_version",
]
