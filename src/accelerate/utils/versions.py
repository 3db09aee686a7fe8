"""The door to version comparisons, under the path that client libraries import."""

from accelerate.compat.doors import door

HOMES = {
    "accelerate.compat.versions": [
        "compare_versions",
        "is_torch_version",
        "torch_version",
    ],
}

__getattr__, __dir__, __all__ = door(__name__, HOMES)
