import dataclasses
import subprocess
import sys

import pytest

from accelerate.errors import ConfigurationError
from accelerate.options.field import UNSET, OptionInfo, option, options


@dataclasses.dataclass
class Plan:
    script: str = option(flag="--script")
    processes: int = option(
        1,
        env="NUM_PROCESSES",
        flag=("--num_processes", "-n"),
        key="num_processes",
        question="How many?",
        help="number of processes",
        choices=(1, 2),
        group="Resources",
    )
    names: "list[str]" = option(default_factory=list, nargs="+")
    later: "NotThere | None" = option(None, type=bytes)  # type: ignore # noqa: F821
    lost: "NotThere | None" = option(None)  # type: ignore # noqa: F821
    plain: float = 0.5
    hidden: int = dataclasses.field(default=3, init=False)


@dataclasses.dataclass
class LargerPlan(Plan):
    extra: "int | None" = option(None, fallback=7)


def test_every_surface_of_an_option_is_listed() -> None:
    second = options(Plan)[1]
    assert second == OptionInfo(
        name="processes",
        type=int,
        default=1,
        env="NUM_PROCESSES",
        flags=("--num_processes", "-n"),
        key="num_processes",
        question="How many?",
        help="number of processes",
        choices=(1, 2),
        group="Resources",
    )


def test_options_come_in_field_order_with_those_of_the_base_first() -> None:
    names = [info.name for info in options(LargerPlan)]
    assert names == ["script", "processes", "names", "later", "lost", "plain", "extra"]


def test_types_are_resolved_where_they_can_be() -> None:
    types = {info.name: info.type for info in options(LargerPlan)}
    assert types["names"] == list[str]
    assert types["later"] is bytes
    assert types["lost"] == "NotThere | None"
    assert types["plain"] is float
    assert types["extra"] == int | None


def test_defaults() -> None:
    defaults = {info.name: info.default for info in options(LargerPlan)}
    assert defaults["script"] is UNSET
    assert defaults["names"] == []
    assert defaults["plain"] == 0.5
    assert options(LargerPlan)[-1].fallback == 7
    assert not UNSET
    assert repr(UNSET) == "UNSET"


def test_an_option_stays_an_ordinary_field() -> None:
    assert dataclasses.asdict(Plan("a", 2))["processes"] == 2
    assert Plan(script="x").names is not Plan(script="x").names
    keyword = dataclasses.make_dataclass("K", [("a", int, option(1, kw_only=True, repr=False))])
    with pytest.raises(TypeError, match="positional"):
        keyword(1)


def test_required_options_are_required() -> None:
    with pytest.raises(TypeError, match="script"):
        dataclasses.make_dataclass("R", [("script", str, option(flag="--script"))])()


def test_two_defaults_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="give one of the two"):
        option(1, default_factory=list)


def test_options_of_something_else_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        options(int)


def test_options_load_without_torch() -> None:
    program = (
        "import importlib, pkgutil, sys, accelerate.options as room\n"
        "for module in pkgutil.iter_modules(room.__path__, 'accelerate.options.'):\n"
        "    importlib.import_module(module.name)\n"
        "heavy = {'torch', 'numpy', 'yaml', 'rich', 'importlib.metadata', 'psutil'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
