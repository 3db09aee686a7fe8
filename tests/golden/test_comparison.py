"""The comparison sees each kind of change: they are planted in a small module that agrees with its record."""

import dataclasses
import enum
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import accelerate.state
from tests.golden.comparison import Finding, compare, compare_paths
from tests.golden.instances import EXAMPLES
from tests.golden.record import modules
from tests.golden.rendering import live_signature, recorded_signature

SELF = {"n": "self", "k": "pk"}
RECORD: dict[str, Any] = {
    "plain": {
        "defined": {
            "LIMIT": {"kind": "value", "type": "int", "value": "3"},
            "f": {
                "kind": "function",
                "params": [
                    {"n": "a", "k": "pk"},
                    {"n": "b", "k": "pk", "d": "'no'"},
                    {"n": "rest", "k": "*"},
                    {"n": "c", "k": "ko", "d": "None"},
                    {"n": "kwargs", "k": "**"},
                ],
            },
            "Kind": {
                "kind": "enum",
                "bases": ["builtins.str", "enum.Enum"],
                "members": {"NO": "no", "YES": "yes"},
            },
            "Options": {
                "kind": "dataclass",
                "bases": ["builtins.object"],
                "init": {"params": [SELF, {"n": "size", "k": "pk", "d": "1"}]},
                "fields": [{"n": "size", "t": "int", "d": "1"}],
                "methods": {"__post_init__": {"params": [SELF], "private": True}},
            },
            "Loader": {
                "kind": "class",
                "bases": ["collections.abc.Sized"],
                "init": {"params": [SELF, {"n": "data", "k": "pk"}]},
                "methods": {
                    "__len__": {"params": [SELF], "private": True},
                    "read": {"params": [SELF, {"n": "count", "k": "pk", "d": "1"}]},
                    "make": {"params": [], "static": True},
                },
                "properties": ["size", "epoch (settable)"],
                "class_attrs": {"done": "False"},
                "instance_attrs": ["data"],
            },
        },
        "reexported": {},
    }
}


def healthy() -> ModuleType:
    """Return a module that agrees with the record."""
    from collections.abc import Sized

    def f(a: int, b: str = "no", *rest: int, c: Any = None, **kwargs: Any) -> None: ...

    class Kind(str, enum.Enum):
        NO = "no"
        YES = "yes"

    @dataclasses.dataclass
    class Options:
        size: int = 1

        def __post_init__(self) -> None: ...

    class Loader(Sized):
        done = False

        def __init__(self, data: Any) -> None:
            self.data = data
            self._epoch = 0

        def __len__(self) -> int:
            return 0

        def read(self, count: int = 1) -> None: ...

        @staticmethod
        def make() -> None: ...

        @property
        def size(self) -> int:
            return 1

        @property
        def epoch(self) -> int:
            return self._epoch

        @epoch.setter
        def epoch(self, value: int) -> None:
            self._epoch = value

    module = ModuleType("plain")
    vars(module).update(LIMIT=3, f=f, Kind=Kind, Options=Options, Loader=Loader)
    return module


def findings(module: ModuleType) -> list[Finding]:
    example = {"plain.Loader": lambda: module.Loader([1])}
    return list(compare(RECORD, example, {"plain": module}.__getitem__))


def test_agreement_is_silent() -> None:
    assert findings(healthy()) == []


def without(path: str) -> Callable[[ModuleType], None]:
    def change(module: ModuleType) -> None:
        *owners, name = path.split(".")
        owner: Any = module
        for each in owners:
            owner = getattr(owner, each)
        delattr(owner, name)

    return change


def put(path: str, value: Any) -> Callable[[ModuleType], None]:
    def change(module: ModuleType) -> None:
        *owners, name = path.split(".")
        owner: Any = module
        for each in owners:
            owner = getattr(owner, each)
        setattr(owner, name, value)

    return change


class WithoutData:
    done, size, read, make = (
        False,
        property(lambda self: 1),
        lambda self, count=1: None,
        staticmethod(lambda: None),
    )
    epoch = property(lambda self: 1, lambda self, value: None)

    def __init__(self, data: Any) -> None: ...

    def __len__(self) -> int:
        return 0


def fields(*extra: Any, size: int = 1) -> type:
    options = dataclasses.make_dataclass("Options", [("size", int, size), *extra])
    options.__post_init__ = lambda self: None  # type: ignore[attr-defined]
    return options


PLANTED = {
    "a name is gone": (without("f"), {"plain.f"}),
    "a value is another": (put("LIMIT", 4), {"plain.LIMIT"}),
    "a default is another": (
        put("f", lambda a, b="yes", *rest, c=None, **kwargs: None),
        {"plain.f"},
    ),
    "a parameter has another name": (put("f", lambda x, b="no", *rest, c=None, **kwargs: None), {"plain.f"}),
    "a parameter became keyword-only": (put("f", lambda a, *, b="no", c=None, **kwargs: None), {"plain.f"}),
    "a keyword was added": (put("f", lambda a, b="no", *rest, c=None, d=None, **kwargs: None), {"plain.f"}),
    "a function became a value": (put("f", 1), {"plain.f"}),
    "a class became a function": (put("Loader", lambda data: None), {"plain.Loader"}),
    "a member has another value": (
        put("Kind", enum.Enum("Kind", {"NO": "no", "YES": "y"}, type=str)),
        {"plain.Kind.YES"},
    ),
    "a member is gone": (put("Kind", enum.Enum("Kind", {"NO": "no"}, type=str)), {"plain.Kind.YES"}),
    "a member was added": (
        put("Kind", enum.Enum("Kind", {"NO": "no", "YES": "yes", "MAYBE": "?"}, type=str)),
        {"plain.Kind.MAYBE"},
    ),
    "an enumeration is no text": (
        put("Kind", enum.Enum("Kind", {"NO": "no", "YES": "yes"})),
        {"plain.Kind.__bases__"},
    ),
    "a field has another default": (
        put("Options", fields(size=2)),
        {"plain.Options.__init__", "plain.Options.size"},
    ),
    "a field was added": (
        put("Options", fields(("more", int, 0))),
        {"plain.Options.__init__", "plain.Options.more"},
    ),
    "a dunder method is gone": (without("Options.__post_init__"), {"plain.Options.__post_init__"}),
    "a method is gone": (without("Loader.read"), {"plain.Loader.read"}),
    "a method takes something else": (put("Loader.read", lambda self, n=1: None), {"plain.Loader.read"}),
    "a method is static no more": (put("Loader.make", lambda: None), {"plain.Loader.make"}),
    "a property is gone": (without("Loader.size"), {"plain.Loader.size"}),
    "a property lost its setter": (put("Loader.epoch", property(lambda self: 1)), {"plain.Loader.epoch"}),
    "a class attribute is gone": (without("Loader.done"), {"plain.Loader.done"}),
    "a class attribute is another": (put("Loader.done", True), {"plain.Loader.done"}),
    "a method was added": (put("Loader.write", lambda self: None), {"plain.Loader.write"}),
    "an attribute is gone and the base is another": (
        put("Loader", WithoutData),
        {"plain.Loader.data", "plain.Loader.__bases__"},
    ),
}


@pytest.mark.parametrize(("change", "paths"), PLANTED.values(), ids=list(PLANTED))
def test_a_planted_change_is_found(change: Callable[[ModuleType], None], paths: set[str]) -> None:
    module = healthy()
    change(module)
    assert {finding.path for finding in findings(module)} == paths


def test_attributes_ask_for_an_example() -> None:
    (finding,) = compare(RECORD, {}, {"plain": healthy()}.__getitem__)
    assert finding.path == "plain.Loader"
    assert finding.here == "no example of an instance"


def test_a_module_that_is_not_there() -> None:
    def load(path: str) -> ModuleType:
        raise ModuleNotFoundError(name=path)

    assert {finding.path for finding in compare(RECORD, {}, load)} == {
        f"plain.{name}" for name in RECORD["plain"]["defined"]
    }


def test_a_module_that_cannot_be_imported_is_an_error() -> None:
    def load(path: str) -> ModuleType:
        raise ModuleNotFoundError(name="elsewhere")

    with pytest.raises(ModuleNotFoundError):
        list(compare(RECORD, {}, load))


def test_a_door_misses_a_name_and_offers_another() -> None:
    module = ModuleType("accelerate")
    module.HOMES = {"somewhere": ["novelty"]}  # type: ignore[attr-defined]
    module.novelty = len  # type: ignore[attr-defined]
    for name in modules()["accelerate"]["reexported"]:
        setattr(module, name, len)
    del module.Accelerator
    record = {"accelerate": {"defined": {}}}
    assert {finding.path: finding.here for finding in compare(record, {}, lambda path: module)} == {
        "accelerate.Accelerator": "absent",
        "accelerate.novelty": "function",
    }


def test_a_former_path_gives_the_names_of_the_present_one() -> None:
    module = ModuleType("accelerate.memory_utils")
    module.release_memory = len  # type: ignore[attr-defined]
    record = {"accelerate.memory_utils": {"defined": {}}}
    paths = {finding.path for finding in compare(record, {}, lambda path: module)}
    assert "accelerate.memory_utils.find_executable_batch_size" in paths
    assert "accelerate.memory_utils.release_memory" not in paths


def test_a_path_of_a_client_leads_nowhere() -> None:
    paths = {"plain.f": "trl", "plain.g": "peft"}
    assert [str(each) for each in compare_paths(paths, {"plain": healthy()}.__getitem__)] == [
        "plain.g\n    there: imported by peft\n    here:  absent"
    ]


@pytest.mark.parametrize(("version", "here"), [(1, "int"), ("2.0", None)])
def test_of_the_release_of_torch_only_the_type_counts(version: object, here: str | None) -> None:
    module = ModuleType("versions")
    module.torch_version = version  # type: ignore[attr-defined]
    entry = {"kind": "value", "type": "str", "value": "'2.13.0+cpu'"}
    record = {"accelerate.utils.versions": {"defined": {"torch_version": entry}}}
    found = [finding.here for finding in compare(record, {}, lambda path: module)]
    assert found == ([] if here is None else [here])


def test_a_change_of_the_package_itself_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"accelerate.state": modules()["accelerate.state"]}
    before = set(compare(state, EXAMPLES))
    monkeypatch.setattr(accelerate.state, "is_initialized", lambda here=True: here)
    monkeypatch.delattr(accelerate.state.PartialState, "default_device")
    assert {finding.path for finding in set(compare(state, EXAMPLES)) - before} == {
        "accelerate.state.is_initialized",
        "accelerate.state.PartialState.default_device",
    }


def test_signatures_read_alike() -> None:
    def f(a: int, /, b: float = 1.0, *, c: type = int, d: Any = len) -> None: ...

    text = "(a (positional only), b=1.0, *, c=<class 'int'>, d=<built-in function len>)"
    assert live_signature(f) == text
    recorded = [
        {"n": "a", "k": "po"},
        {"n": "b", "k": "pk", "d": "1.0"},
        {"n": "c", "k": "ko", "d": "<class 'int'>"},
        {"n": "d", "k": "ko", "d": "<built-in function len>"},
    ]
    assert recorded_signature(recorded) == text


def test_defaults_without_a_name_read_alike() -> None:
    def f(a: object = object(), b: object = test_signatures_read_alike) -> None: ...

    assert live_signature(f) == "(a=<object object>, b=<function test_signatures_read_alike>)"
    recorded = [{"n": "b", "k": "pk", "d": "<function accelerate.utils.operations.g>"}]
    assert recorded_signature(recorded) == "(b=<function g>)"
