import dataclasses
import enum
import importlib
import inspect
import math
import pkgutil
import types
import typing
from typing import Any, Literal, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

import accelerate.options
from accelerate.errors import ConfigurationError, EnvironmentVariableError
from accelerate.options.codec import decode, encode, fill_from_environ, from_environ, to_environ
from accelerate.options.enums import DynamoBackend, LoggerType
from accelerate.options.field import OptionInfo, option, options


class Colour(enum.Enum):
    RED = "red"
    DARK_RED = "dark_red"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Everything:
    """One option of each type that has a text."""

    flag: bool = option(False, env="T_FLAG")
    count: int = option(0, env="T_COUNT")
    rate: float = option(0.0, env="T_RATE")
    name: str = option("", env="T_NAME")
    colour: Colour = option(Colour.RED, env="T_COLOUR")
    level: Level = option(Level.LOW, env="T_LEVEL")
    backend: DynamoBackend = option(DynamoBackend.NO, env="T_BACKEND")
    logger: LoggerType = option(LoggerType.ALL, env="T_LOGGER", choices=("all", "aim"))
    format: Literal["HYBRID", "E4M3"] = option("HYBRID", env="T_FORMAT")
    mode: str = option("fast", env="T_MODE", choices=("fast", "slow"))
    steps: Union[int, Literal["auto"]] = option("auto", env="T_STEPS")  # noqa: UP007
    maybe_flag: bool | None = option(None, env="T_MAYBE_FLAG")
    maybe_count: int | None = option(None, env="T_MAYBE_COUNT", fallback=5)
    maybe_name: str | None = option(None, env="T_MAYBE_NAME")
    words: list[str] = option(default_factory=list, env="T_WORDS")
    sizes: tuple[int, ...] = option((), env="T_SIZES")
    triple: tuple[bool, bool, bool] = option((True, True, True), env="T_TRIPLE")
    inside: Any = option(None, help="has no variable")


def classes_with_variables() -> list[type]:
    """Find every option class of the package that declares an environment variable."""
    found = []
    for module_info in pkgutil.iter_modules(accelerate.options.__path__, "accelerate.options."):
        module = importlib.import_module(module_info.name)
        found += [
            cls
            for _, cls in inspect.getmembers(module, dataclasses.is_dataclass)
            if inspect.isclass(cls)
            and cls.__module__ == module.__name__
            and any(info.env for info in options(cls))
        ]
    return found


CASES = [
    pytest.param(info, id=f"{cls.__name__}.{info.name}")
    for cls in [Everything, *classes_with_variables()]
    for info in options(cls)
    if info.env
]

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
ITEM = TEXT.filter(lambda text: text and text == text.strip() and "," not in text)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(),
    float: st.floats(allow_nan=False),
    str: TEXT,
}


def values(kind: Any, choices: tuple[Any, ...] | None = None, text: st.SearchStrategy[str] = TEXT) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return st.sampled_from([member for member in kind if choices is None or member.value in choices])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of(values(member, choices, text) for member in arguments if member is not type(None))
    if origin is list:
        return st.lists(values(arguments[0], choices, ITEM))
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values(arguments[0], choices, ITEM)).map(tuple)
    if origin is tuple:
        return st.tuples(*(values(member, choices, ITEM) for member in arguments))
    if choices is not None:
        return st.sampled_from(choices)
    return text if kind is str else SCALARS[kind]


def same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and left == right


def test_the_package_declares_variables() -> None:
    assert "TorchDynamoPlugin" in {cls.__name__ for cls in classes_with_variables()}


@pytest.mark.parametrize("info", CASES)
@given(data=st.data())
def test_what_is_written_is_read_back(info: OptionInfo, data: st.DataObject) -> None:
    value = data.draw(values(info.type, info.choices))
    text = encode(info, value)
    assert isinstance(text, str)
    assert same(decode(info, text), value)


@given(data=st.data())
def test_whole_objects_round_trip(data: st.DataObject) -> None:
    drawn = {info.name: data.draw(values(info.type, info.choices)) for info in options(Everything)[:-1]}
    given_names = data.draw(st.sets(st.sampled_from(["maybe_flag", "maybe_count", "maybe_name"])))
    drawn = {
        name: value for name, value in drawn.items() if not name.startswith("maybe") or name in given_names
    }
    value = Everything(**drawn)
    environ = to_environ(value)
    assert len(environ) == len(drawn)
    assert Everything(**from_environ(Everything, environ)) == value


def test_nan_is_carried() -> None:
    assert math.isnan(from_environ(Everything, to_environ(Everything(rate=math.nan)))["rate"])


def test_only_set_variables_are_read() -> None:
    assert from_environ(Everything, {}) == {}
    assert from_environ(Everything, {"T_COUNT": "3", "OTHER": "x"}) == {"count": 3}


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_COUNT", "12")
    assert from_environ(Everything) == {"count": 12}


def test_none_is_an_unset_variable() -> None:
    assert "T_MAYBE_FLAG" not in to_environ(Everything())
    assert to_environ(Everything(maybe_flag=False))["T_MAYBE_FLAG"] == "false"


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("T_FLAG", "YES", True),
        ("T_FLAG", "off", False),
        ("T_FLAG", "0", False),
        ("T_COUNT", " 7 ", 7),
        ("T_RATE", "1e-3", 1e-3),
        ("T_RATE", "-inf", -math.inf),
        ("T_COLOUR", "Dark_Red", Colour.DARK_RED),
        ("T_LEVEL", "2", Level.HIGH),
        ("T_BACKEND", "inductor", DynamoBackend.INDUCTOR),
        ("T_LOGGER", "AIM", LoggerType.AIM),
        ("T_FORMAT", "hybrid", "HYBRID"),
        ("T_MODE", "SLOW", "slow"),
        ("T_STEPS", "AUTO", "auto"),
        ("T_STEPS", "4", 4),
        ("T_MAYBE_COUNT", "None", None),
        ("T_MAYBE_NAME", "None", "None"),
        ("T_WORDS", "", []),
        ("T_WORDS", "a, b ,c", ["a", "b", "c"]),
        ("T_SIZES", "1,2", (1, 2)),
        ("T_TRIPLE", "1,no,TRUE", (True, False, True)),
    ],
)
def test_texts_that_people_write(variable: str, text: str, expected: Any) -> None:
    (value,) = from_environ(Everything, {variable: text}).values()
    assert same(value, expected)


def test_text_is_the_last_thing_that_a_union_means() -> None:
    info = OptionInfo(name="mixed", type=str | int, env="T_MIXED")
    assert same(decode(info, "4"), 4)
    assert same(decode(info, "four"), "four")


def test_choices_that_differ_in_case_only_are_told_apart() -> None:
    info = OptionInfo(name="case", type=str, env="T_CASE", choices=("a", "A"))
    assert [decode(info, text) for text in ("a", "A")] == ["a", "A"]


@pytest.mark.parametrize(
    ("variable", "text", "allowed"),
    [
        ("T_FLAG", "maybe", "yes/no, true/false"),
        ("T_FLAG", "", "yes/no, true/false"),
        ("T_COUNT", "3.5", "integer"),
        ("T_COUNT", "", "integer"),
        ("T_RATE", "fast", "number"),
        ("T_COLOUR", "blue", "red, dark_red"),
        ("T_BACKEND", "junk", "NO, EAGER"),
        ("T_LOGGER", "wandb", "all, aim"),
        ("T_FORMAT", "E5M2", "HYBRID, E4M3"),
        ("T_MODE", "junk", "fast, slow"),
        ("T_STEPS", "few", "an integer; or use one of auto"),
        ("T_TRIPLE", "1,0", "3 values separated by commas"),
        ("T_SIZES", "1,x", "integer"),
    ],
)
def test_errors_name_variable_text_and_what_is_allowed(variable: str, text: str, allowed: str) -> None:
    with pytest.raises(EnvironmentVariableError) as caught:
        from_environ(Everything, {variable: text})
    message = str(caught.value)
    assert message.startswith(f"{variable}={text!r} in the environment")
    assert allowed in message
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("words", [["a,b"], [" a"], [""], ["a", ""]])
def test_items_that_a_comma_list_cannot_carry_are_refused(words: list[str]) -> None:
    with pytest.raises(ConfigurationError, match=r"words=.* cannot be written to T_WORDS"):
        to_environ(Everything(words=words))


@pytest.mark.parametrize("value", [Everything(name="a\0b"), Everything(name=object())])  # type: ignore[arg-type]
def test_values_without_text_are_refused(value: Everything) -> None:
    with pytest.raises(ConfigurationError, match="T_NAME"):
        to_environ(value)


def test_a_type_without_text_is_an_error_only_when_its_variable_is_set() -> None:
    cls = dataclasses.make_dataclass("C", [("table", dict, option(None, env="T_TABLE"))])
    assert from_environ(cls, {}) == {}
    with pytest.raises(EnvironmentVariableError, match="T_TABLE"):
        from_environ(cls, {"T_TABLE": "{}"})


def test_filling_leaves_what_was_passed_and_uses_variable_then_fallback() -> None:
    value = Everything(maybe_flag=False)
    fill_from_environ(value, {"T_MAYBE_FLAG": "junk that is not read", "T_MAYBE_NAME": "x", "T_COUNT": "9"})
    assert value == Everything(maybe_flag=False, maybe_name="x", maybe_count=5)
    fill_from_environ(value := Everything(), {"T_MAYBE_COUNT": "0"})
    assert value.maybe_count == 0
