import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from accelerate.compat.doors import door


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Import a package `house` that is a door to two homes, with submodules that nothing has imported."""
    package = tmp_path / "house"
    (package / "rooms").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from accelerate.compat.doors import door\n"
        "HOMES = {'house.home': ['gather', 'LIMIT', '_private'], 'house.lost': ['away'], "
        "'house.home2': ['none']}\n"
        "__getattr__, __dir__, __all__ = door(__name__, HOMES)\n"
    )
    (package / "home.py").write_text("LIMIT = [1]\ndef gather(): return 1\n_private = 2\nsecret = 3\n")
    (package / "home2.py").write_text("")
    (package / "other.py").write_text("value = 4\n")
    (package / "broken.py").write_text("import a_module_that_is_not_there\n")
    (package / "_hidden.py").write_text("")
    (package / "rooms" / "__init__.py").write_text(
        "from accelerate.compat.doors import door\n__getattr__, __dir__, __all__ = door(__name__, {})\n"
    )
    (package / "rooms" / "kitchen.py").write_text("value = 5\n")
    (package / "flat.py").write_text(
        "from accelerate.compat.doors import door\n"
        "__getattr__, __dir__, __all__ = door(__name__, {'house.home': ['gather']})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("house")
    for name in [name for name in sys.modules if name.split(".")[0] == "house"]:
        del sys.modules[name]


def test_a_home_is_imported_on_first_use_only(house: ModuleType) -> None:
    assert "house.home" not in sys.modules
    assert house.gather() == 1
    assert house.gather is sys.modules["house.home"].gather
    assert house.gather.__module__ == "house.home"


def test_a_name_is_kept_in_the_door(house: ModuleType) -> None:
    assert "LIMIT" not in vars(house)
    assert house.LIMIT == [1]
    assert vars(house)["LIMIT"] is sys.modules["house.home"].LIMIT


def test_from_import_and_star_import(house: ModuleType) -> None:
    names: dict[str, object] = {}
    del house.__all__[house.__all__.index("away")]
    del house.__all__[house.__all__.index("none")]
    exec("from house import gather as collected, _private\nfrom house.flat import *", names)
    assert names["collected"] is names["gather"]
    assert names["_private"] == 2
    names = {}
    exec("from house import *", names)
    assert {name for name in names if not name.startswith("__")} == {"gather", "LIMIT"}


def test_all_leaves_private_names_out(house: ModuleType) -> None:
    assert house.__all__ == ["LIMIT", "away", "gather", "none"]


def test_submodules_need_no_import(house: ModuleType) -> None:
    assert house.other.value == 4
    assert house.rooms.kitchen.value == 5


def test_an_error_inside_a_submodule_is_not_hidden(house: ModuleType) -> None:
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        _ = house.broken


def test_a_home_that_is_missing_says_so(house: ModuleType) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"house\.lost"):
        _ = house.away


def test_a_name_that_its_home_lost_says_so(house: ModuleType) -> None:
    with pytest.raises(AttributeError, match=r"module 'house\.home2' has no attribute 'none'"):
        _ = house.none


@pytest.mark.parametrize(
    "name", ["nothing_alike", "secret", "rooms.kitchen", "lost.other", "_hidden", "__gather__"]
)
def test_unknown_names_give_the_words_of_python(house: ModuleType, name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(house, name)
    assert str(caught.value) == f"module 'house' has no attribute {name!r}"
    assert not hasattr(house, name)


def test_a_near_miss_is_told(house: ModuleType) -> None:
    with pytest.raises(
        AttributeError, match=r"^module 'house' has no attribute 'gahter'. Did you mean: 'gather'\?$"
    ):
        _ = house.gahter
    with pytest.raises(ImportError, match="cannot import name 'gahter' from 'house'"):
        exec("from house import gahter")


def test_a_door_that_is_no_package_has_no_submodules(house: ModuleType) -> None:
    assert house.flat.gather() == 1
    assert not hasattr(house.flat, "home")


def test_dir_lists_names_and_submodules(house: ModuleType) -> None:
    assert {"gather", "LIMIT", "away", "other", "rooms", "__name__"} <= set(dir(house))
    assert "_hidden" not in dir(house)
    assert "kitchen" in dir(house.rooms)
    assert "other" not in dir(house.flat)


def test_monkeypatching_a_door_name_is_undone(house: ModuleType) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(house, "gather", lambda: 7)
        assert house.gather() == 7
    assert house.gather() == 1


def test_a_name_with_two_homes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"x\.a has two homes: one and two"):
        door("x", {"one": ["a"], "two": ["a"]})


def test_a_name_wins_over_the_submodule_of_that_name(house: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "mill"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from accelerate.compat.doors import door\n"
        "HOMES = {'house.home': ['gather']}\n"
        "__getattr__, __dir__, __all__ = door(__name__, HOMES, over=['gather'])\n"
    )
    (folder / "gather.py").write_text("gather = 'of the submodule'\n")
    importlib.invalidate_caches()
    mill = importlib.import_module("mill")
    try:
        submodule = importlib.import_module("mill.gather")
        assert submodule.gather == "of the submodule"
        assert mill.gather() == 1
        exec("from mill import gather; assert gather() == 1; import mill.gather; assert mill.gather() == 1")
    finally:
        del sys.modules["mill"], sys.modules["mill.gather"]
