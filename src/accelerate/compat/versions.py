"""Which version of a library is installed. Called wherever behaviour depends on one; never imports torch.

The version of torch comes from the module where it is loaded and from its metadata where it is not, so
that the command line can ask without the seconds that loading torch takes.
"""

import functools
import sys

from packaging.version import Version, parse

from accelerate.compat.constants import STR_OPERATION_TO_FUNC
from accelerate.errors import ConfigurationError

__all__ = ["compare_versions", "installed_version", "is_installed", "is_torch_version", "torch_version"]

torch_version: Version


@functools.cache
def is_installed(distribution: str) -> bool:
    """Return whether a distribution of this name is installed; a module of that name is not enough."""
    # importlib.metadata takes longer to load than everything else that `accelerate --help` needs.
    import importlib.metadata

    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


@functools.cache
def installed_version(distribution: str) -> Version:
    """Return the version of an installed distribution.

    Raises:
        importlib.metadata.PackageNotFoundError: it is not installed (an ImportError).
    """
    loaded = sys.modules.get("torch") if distribution == "torch" else None
    if loaded is not None:
        return parse(str(loaded.__version__))
    import importlib.metadata

    return parse(importlib.metadata.version(distribution))


def compare_versions(library_or_version: str | Version, operation: str, requirement_version: str) -> bool:
    """Return whether a version stands in a relation to another.

    Args:
        library_or_version: name of an installed distribution, or a version.
        operation: one of `>`, `>=`, `==`, `!=`, `<=`, `<`.
        requirement_version: the version to compare with.

    Raises:
        ConfigurationError: the operation is no such text (a ValueError).
        importlib.metadata.PackageNotFoundError: the library is not installed (an ImportError).
        packaging.version.InvalidVersion: `requirement_version` is no version (a ValueError).

    Example:
        >>> from packaging.version import parse
        >>> compare_versions(parse("2.6.0"), ">=", "2.5")
        True
    """
    if operation not in STR_OPERATION_TO_FUNC:
        raise ConfigurationError(f"operation={operation!r}: use one of {list(STR_OPERATION_TO_FUNC)}")
    version = library_or_version
    if isinstance(version, str):
        version = installed_version(version)
    return STR_OPERATION_TO_FUNC[operation](version, parse(requirement_version))


def is_torch_version(operation: str, version: str) -> bool:
    """Return whether the version of torch stands in a relation to another.

    Args:
        operation: one of `>`, `>=`, `==`, `!=`, `<=`, `<`.
        version: the version to compare with.

    Raises:
        ConfigurationError: the operation is no such text (a ValueError).
        packaging.version.InvalidVersion: `version` is no version (a ValueError).

    Example:
        >>> is_torch_version(">=", "2.0")
        True
    """
    return compare_versions("torch", operation, version)


def __getattr__(name: str) -> Version:
    # Looked up when asked for, so that loading this module reads no metadata.
    if name == "torch_version":
        return installed_version("torch")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
