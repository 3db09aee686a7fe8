"""The mechanism of the doors: a module that has no code of its own and fetches each name from its home.

Called by the modules that users and client libraries import (`accelerate`, `accelerate.utils`,
`accelerate.data_loader` ...), each of which is a table `home -> names` and nothing else. A home is
imported when one of its names is first asked for, which keeps `import accelerate` free of torch. This
module loads nothing else either, not even `typing`: `import accelerate` takes about a millisecond.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

__all__ = ["door"]


def door(
    module: str, homes: Mapping[str, Sequence[str]], *, over: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a door, made from its table.

    The first use of a name imports its home and keeps the name in the door, so that later uses cost as
    much as those of any module. Submodules of a door are imported on first use too.

    Args:
        module: `__name__` of the door.
        homes: dotted name of a home -> the names that are fetched from it.
        over: names in the table that are submodules too: the table's object is what they give, always. They
            are imported at once, since Python puts a submodule in place of the name when it imports it.

    Raises:
        ValueError: a name has two homes.

    Example:
        >>> __getattr__, __dir__, __all__ = door("accelerate.utils", {"accelerate.compat.env": ["get_flag"]})
        >>> __all__
        ['get_flag']
    """
    home_of: dict[str, str] = {}
    for home, names in homes.items():
        for name in names:
            if home_of.setdefault(name, home) != home:
                raise ValueError(f"{module}.{name} has two homes: {home_of[name]} and {home}")

    for name in over:
        importlib.import_module(f"{module}.{name}")
        delattr(sys.modules[module], name)

    def fetch(name: str) -> Any:
        if name in home_of:
            value = getattr(importlib.import_module(home_of[name]), name)
            setattr(sys.modules[module], name, value)
            return value
        if _is_submodule(module, name):
            return importlib.import_module(f"{module}.{name}")
        raise AttributeError(_unknown(module, name, home_of))

    def listing() -> list[str]:
        return sorted({*vars(sys.modules[module]), *home_of, *_submodules(module)})

    return fetch, listing, sorted(name for name in home_of if not name.startswith("_"))


def _is_submodule(module: str, name: str) -> bool:
    path = vars(sys.modules[module]).get("__path__")
    if path is None or name.startswith("_") or not name.isidentifier():
        return False
    return importlib.machinery.PathFinder.find_spec(f"{module}.{name}", path) is not None


def _submodules(module: str) -> list[str]:
    import pkgutil

    path = vars(sys.modules[module]).get("__path__", [])
    return [found.name for found in pkgutil.iter_modules(path) if not found.name.startswith("_")]


def _unknown(module: str, name: str, known: Mapping[str, str]) -> str:
    message = f"module {module!r} has no attribute {name!r}"
    # Python, debuggers and test tools probe modules for dunder names all the time; they want no advice.
    if name.startswith("__"):
        return message
    import difflib

    nearest = difflib.get_close_matches(name, known, n=1)
    return f"{message}. Did you mean: {nearest[0]!r}?" if nearest else message
