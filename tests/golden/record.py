"""The recorded surface: what tests/golden/data/api.json says about modules, classes and functions.

Read by the comparison. The file was made with `inspect` from version 1.15.0; its keys are short (`n` name,
`k` kind, `d` default, `df` default factory), and only this module knows them.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"

Recorded = Mapping[str, Any]

# Values that depend on what is installed and set where the test runs: only their types are compared.
OF_THE_PLACE = ("accelerate.utils.imports.USE_TORCH_XLA", "accelerate.utils.versions.torch_version")

# The two modules that most scripts import from. What other modules re-export is no part of the surface.
PACKAGE_DOORS = ("accelerate", "accelerate.utils")

# A module whose record is empty, because it gives the names of another.
RENAMED = {"accelerate.memory_utils": "accelerate.utils.memory"}


@cache
def modules() -> Mapping[str, Recorded]:
    """Return the record of each module."""
    recorded: dict[str, Recorded] = json.loads((DATA / "api.json").read_text())
    return recorded


@cache
def client_paths() -> Mapping[str, str]:
    """Return each path that a client library imports, with the names of the libraries."""
    paths: dict[str, str] = json.loads((DATA / "clients.json").read_text())
    return paths


def home_of(path: str) -> str:
    """Return the path of an object where it is defined, given any path that the record knows it under."""
    module, _, name = path.rpartition(".")
    if module in RENAMED:
        return home_of(f"{RENAMED[module]}.{name}")
    home = modules().get(module, {}).get("reexported", {}).get(name)
    return path if home is None or home == module else home_of(f"{home}.{name}")


def doors_names(module: str) -> list[str]:
    """Return the names that a module of the surface must give although it only re-exports them."""
    if module in RENAMED:
        return list(modules()[RENAMED[module]]["defined"])
    return list(modules()[module]["reexported"])


def names_of(module: str) -> set[str]:
    """Return every public name that a module has according to the record, its own or re-exported."""
    recorded = modules()[RENAMED.get(module, module)]
    keys = ("defined", "reexported", "conditional_imports_absent_here", "conditional_not_defined_here")
    return {name for key in keys for name in recorded.get(key, ())}


def members_of(recorded: Recorded) -> set[str]:
    """Return every public attribute that a class has by the record, those of its recorded bases included."""
    own = {
        *recorded.get("methods", ()),
        *(text.split()[0] for text in recorded.get("properties", ())),
        *recorded.get("class_attrs", ()),
        *recorded.get("instance_attrs", ()),
        *(field["n"] for field in recorded.get("fields", ())),
        *recorded.get("members", ()),
    }
    for base in recorded.get("bases", ()):
        module, _, name = base.rpartition(".")
        if name in modules().get(module, {}).get("defined", {}):
            own |= members_of(modules()[module]["defined"][name])
    return own
