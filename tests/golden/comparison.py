"""Where a live package differs from the recorded surface. Called by the surface test.

The result is a list of findings, whatever anybody thinks of them: which are work to come and which are meant
is decided in `verdict.py`.
"""

import dataclasses
import enum
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tests.golden.record import (
    OF_THE_PLACE,
    PACKAGE_DOORS,
    RENAMED,
    Recorded,
    doors_names,
    home_of,
    members_of,
    names_of,
)
from tests.golden.rendering import live_signature, recorded_signature, recorded_value, value_text

ABSENT = "absent"

Example = Callable[[], Any]
ImportModule = Callable[[str], ModuleType]


@dataclass(frozen=True)
class Finding:
    """One place where the package differs from the record.

    Attributes:
        path: dotted path: module, object, or member of a class.
        there: what the record says.
        here: what the package has.
    """

    path: str
    there: str
    here: str

    def __str__(self) -> str:
        return f"{self.path}\n    there: {self.there}\n    here:  {self.here}"


def compare(
    modules: Mapping[str, Recorded],
    examples: Mapping[str, Example],
    load: ImportModule = importlib.import_module,
) -> Iterator[Finding]:
    """Yield every difference between recorded modules and those that `load` gives.

    Args:
        modules: record of each module, by its path.
        examples: path of a class -> function that makes an instance, whose attributes are looked at.
        load: imports a module by its path.
    """
    for path, recorded in modules.items():
        if "import_error" in recorded:
            continue
        module = _loaded(path, load)
        if module is None:
            yield from _absent_module(path, recorded)
            continue
        for name, entry in recorded["defined"].items():
            yield from _compare_object(f"{path}.{name}", entry, module, name, examples)
        if path in (*PACKAGE_DOORS, *RENAMED):
            yield from _compare_door(path, module)
        yield from _additions_to_module(path, module)


def compare_paths(
    paths: Mapping[str, str], load: ImportModule = importlib.import_module
) -> Iterator[Finding]:
    """Yield each path, used by the named libraries, that does not lead to the object of its home."""
    for path, libraries in paths.items():
        name = path.rpartition(".")[2]
        if not hasattr(_loaded(path.rpartition(".")[0], load), name):
            yield Finding(path, f"imported by {libraries}", ABSENT)


def _absent_module(path: str, recorded: Recorded) -> Iterator[Finding]:
    if not recorded["defined"]:
        yield Finding(path, "module", ABSENT)
    for name, entry in recorded["defined"].items():
        yield Finding(f"{path}.{name}", entry["kind"], ABSENT)


def _loaded(path: str, load: ImportModule) -> ModuleType | None:
    """Return a module, or None where it (and not something that it imports) does not exist."""
    try:
        return load(path)
    except ModuleNotFoundError as error:
        if error.name and (path == error.name or path.startswith(f"{error.name}.")):
            return None
        raise


def _compare_door(path: str, module: ModuleType) -> Iterator[Finding]:
    for name in doors_names(path):
        if not hasattr(module, name):
            yield Finding(f"{path}.{name}", f"from {home_of(f'{path}.{name}')}", ABSENT)


def _additions_to_module(path: str, module: ModuleType) -> Iterator[Finding]:
    """Compare the names that a door offers; the `__all__` of a home is for the package's own rooms."""
    for names in getattr(module, "HOMES", {}).values():
        for name in set(names) - names_of(path):
            value = getattr(module, name)
            yield Finding(f"{path}.{name}", ABSENT, _kind(value))


def _kind(value: object) -> str:
    if inspect.isclass(value):
        return "class"
    return "function" if callable(value) else value_text(value)


def _compare_object(
    path: str, entry: Recorded, owner: object, name: str, examples: Mapping[str, Example]
) -> Iterator[Finding]:
    kind = entry["kind"]
    if not hasattr(owner, name):
        yield Finding(path, kind, ABSENT)
        return
    value = getattr(owner, name)
    if path in OF_THE_PLACE:
        yield from _differing(path, entry["type"], type(value).__name__)
    elif kind == "value":
        yield from _differing(path, recorded_value(entry["value"]), value_text(value))
    elif kind == "function":
        yield from _compare_signature(path, entry["params"], value)
    elif not inspect.isclass(value):
        yield Finding(path, kind, value_text(value))
    else:
        yield from _compare_class(path, entry, value, examples.get(path))


def _differing(path: str, there: str, here: str) -> Iterator[Finding]:
    if there != here:
        yield Finding(path, there, here)


def _compare_signature(path: str, params: list[Recorded], function: Callable[..., Any]) -> Iterator[Finding]:
    if not callable(function):
        yield Finding(path, "function", value_text(function))
        return
    yield from _differing(path, recorded_signature(params), live_signature(function))


def _compare_class(path: str, entry: Recorded, live: type, example: Example | None) -> Iterator[Finding]:
    yield from _compare_bases(path, entry, live)
    if isinstance(entry.get("init"), Mapping):
        yield from _compare_signature(f"{path}.__init__", entry["init"]["params"], live.__init__)
    if entry["kind"] == "enum":
        yield from _compare_enum(path, entry, live)
    for name, method in entry.get("methods", {}).items():
        yield from _compare_method(f"{path}.{name}", method, live, name)
    yield from _compare_fields(path, entry, live)
    yield from _compare_attributes(path, entry, live, example)
    yield from _additions_to_class(path, entry, live)


def _compare_bases(path: str, entry: Recorded, live: type) -> Iterator[Finding]:
    """Compare what an instance can be taken for; our own base classes may be cut otherwise."""
    names = {f"{base.__module__}.{base.__qualname__}" for base in live.__mro__}
    for base in entry["bases"]:
        if not base.startswith("accelerate.") and base not in names:
            yield Finding(f"{path}.__bases__", base, ", ".join(sorted(names - {"builtins.object"})))


def _compare_enum(path: str, entry: Recorded, live: type) -> Iterator[Finding]:
    members = {name: member.value for name, member in getattr(live, "__members__", {}).items()}
    for name, value in entry["members"].items():
        here = value_text(members[name]) if name in members else ABSENT
        yield from _differing(f"{path}.{name}", value_text(value), here)
    for name in members.keys() - entry["members"].keys():
        yield Finding(f"{path}.{name}", ABSENT, value_text(members[name]))


def _compare_method(path: str, entry: Recorded, live: type, name: str) -> Iterator[Finding]:
    if not hasattr(live, name):
        yield Finding(path, "method", ABSENT)
        return
    if name.startswith("__"):
        return  # part of a protocol of Python: that it is there says all
    raw = inspect.getattr_static(live, name)
    binding = "static" if entry.get("static") else "class" if entry.get("classmethod") else "instance"
    here = {staticmethod: "static", classmethod: "class"}.get(type(raw), "instance")
    yield from _differing(path, f"{binding} method", f"{here} method")
    function = raw.__func__ if isinstance(raw, staticmethod | classmethod) else raw
    yield from _compare_signature(path, entry["params"], function)


def _compare_fields(path: str, entry: Recorded, live: type) -> Iterator[Finding]:
    if entry["kind"] != "dataclass":
        return
    if not dataclasses.is_dataclass(live):
        yield Finding(path, "dataclass", "class")
        return
    fields = {field.name: field for field in dataclasses.fields(live)}
    for field in entry["fields"]:
        if field["n"] not in fields:
            yield Finding(f"{path}.{field['n']}", "field", ABSENT)
        else:
            default = _field_default(fields[field["n"]])
            recorded = field.get("df_value", field.get("d", "required"))
            yield from _differing(f"{path}.{field['n']}", recorded_value(recorded), default)
    for name in fields.keys() - {field["n"] for field in entry["fields"]}:
        yield Finding(f"{path}.{name}", ABSENT, f"field, {_field_default(fields[name])}")


def _field_default(field: "dataclasses.Field[Any]") -> str:
    if field.default is not dataclasses.MISSING:
        return value_text(field.default)
    return "required" if field.default_factory is dataclasses.MISSING else value_text(field.default_factory())


def _compare_attributes(path: str, entry: Recorded, live: type, example: Example | None) -> Iterator[Finding]:
    for text in entry.get("properties", ()):
        name, _, settable = text.partition(" ")
        yield from _compare_property(f"{path}.{name}", live, name, bool(settable))
    for name, value in entry.get("class_attrs", {}).items():
        if not hasattr(live, name):
            yield Finding(f"{path}.{name}", value, ABSENT)
        elif not name.startswith("_") and not value.startswith("<"):
            yield from _differing(f"{path}.{name}", value, value_text(getattr(live, name)))
    attributes = [name for name in entry.get("instance_attrs", ()) if not name.startswith("__")]
    missing = [name for name in attributes if not hasattr(live, name)]
    if missing and example is None:
        yield Finding(path, f"instances with {', '.join(missing)}", "no example of an instance")
    elif missing:
        instance = example()
        for name in missing:
            if not hasattr(instance, name):
                yield Finding(f"{path}.{name}", "attribute", ABSENT)


def _compare_property(path: str, live: type, name: str, settable: bool) -> Iterator[Finding]:
    raw = inspect.getattr_static(live, name, None)
    if raw is None and name not in getattr(live, "__annotations__", {}):
        yield Finding(path, "property", ABSENT)
    elif settable and isinstance(raw, property) and raw.fset is None:
        yield Finding(path, "settable property", "property without a setter")


def _additions_to_class(path: str, entry: Recorded, live: type) -> Iterator[Finding]:
    known = members_of(entry)
    for base in live.__mro__:
        if base.__module__.partition(".")[0] != live.__module__.partition(".")[0]:
            known |= set(dir(base))
    if isinstance(live, enum.EnumMeta):
        known |= set(live.__members__)  # compared as members
    for name in dir(live):
        if not name.startswith("_") and name not in known:
            yield Finding(f"{path}.{name}", ABSENT, _member_kind(live, name))


def _member_kind(live: type, name: str) -> str:
    raw = inspect.getattr_static(live, name)
    if isinstance(raw, property):
        return "property"
    return "method" if callable(getattr(live, name)) else "attribute"
