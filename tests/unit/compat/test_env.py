import asyncio
import os
import unittest
from collections.abc import Callable, Iterator

import pytest

from accelerate.compat import env
from accelerate.errors import EnvironmentVariableError


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    saved = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(saved)


def accelerate_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("ACCELERATE_")}


def test_reading_and_writing() -> None:
    env.put({"T_A": 1, "T_B": True})
    assert (env.get("T_A"), env.get("T_B"), env.get("T_C"), env.get("T_C", "x")) == ("1", "True", None, "x")
    taken = env.snapshot()
    env.remove(["T_A", "T_NEVER_SET"])
    assert env.get("T_A") is None
    assert taken["T_A"] == "1"


@pytest.mark.parametrize("text", ["y", "Yes", "t", "TRUE", "on", "1", " 1 "])
def test_true_texts(text: str) -> None:
    assert env.str_to_bool(text) == 1
    assert type(env.str_to_bool(text)) is int
    assert env.str_to_bool(text, to_bool=True) is True
    os.environ["T_FLAG"] = text
    assert env.get_flag("T_FLAG") is True


@pytest.mark.parametrize("text", ["n", "NO", "f", "False", "off", "0"])
def test_false_texts(text: str) -> None:
    assert env.str_to_bool(text) == 0
    assert env.str_to_bool(text, to_bool=True) is False
    os.environ["T_FLAG"] = text
    assert env.parse_flag_from_env("T_FLAG", True) is False


@pytest.mark.parametrize("text", ["", "maybe", "2", "none"])
def test_other_texts_are_errors_that_name_the_variable(text: str) -> None:
    with pytest.raises(ValueError, match="invalid truth value"):
        env.str_to_bool(text)
    os.environ["T_FLAG"] = text
    with pytest.raises(EnvironmentVariableError, match=f"T_FLAG='{text}' in the environment"):
        env.get_flag("T_FLAG")


def test_defaults_of_unset_variables() -> None:
    assert env.parse_flag_from_env("T_UNSET") is False
    assert env.parse_flag_from_env("T_UNSET", True) is True
    assert env.parse_choice_from_env("T_UNSET") == "no"
    assert env.parse_choice_from_env("T_UNSET", "fp16") == "fp16"
    assert env.is_true("T_UNSET") is False
    assert env.get_int_from_env(["T_UNSET"], 7) == 7
    assert env.get_int_from_env(["T_UNSET"], None) is None


@pytest.mark.parametrize(
    ("text", "expected"), [("true", True), ("TRUE", True), ("1", False), ("junk", False)]
)
def test_is_true_takes_the_word_only(text: str, expected: bool) -> None:
    os.environ["T_FLAG"] = text
    assert env.is_true("T_FLAG") is expected


@pytest.mark.parametrize(
    ("texts", "expected"),
    [(["5", "6"], 5), (["-1", "6"], 6), ([" ", "6"], 6), (["", ""], 9), (["-1", "-2"], 9), (["0", "6"], 0)],
)
def test_the_first_integer_that_is_no_minus(texts: list[str], expected: int) -> None:
    names = [f"T_INT_{index}" for index in range(len(texts))]
    os.environ.update(zip(names, texts, strict=True))
    assert env.get_int_from_env(names, 9) == expected
    assert env.get_int(names, 9) == expected


def test_an_integer_that_cannot_be_read_is_an_error() -> None:
    os.environ["T_INT"] = "two"
    with pytest.raises(EnvironmentVariableError, match="T_INT='two' in the environment is not an integer"):
        env.get_int_from_env(env_keys=["T_INT"], default=1)


def test_patched_variables_come_back_also_after_an_error() -> None:
    os.environ["T_OLD"] = "before"

    def patch_and_fail() -> None:
        with env.patch_environment(t_old=1, t_new=None):
            assert (os.environ["T_OLD"], os.environ["T_NEW"]) == ("1", "None")
            os.environ["T_KEPT"] = "set inside"
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        patch_and_fail()
    assert os.environ["T_OLD"] == "before"
    assert "T_NEW" not in os.environ
    assert os.environ["T_KEPT"] == "set inside"


def test_a_cleared_environment_comes_back_and_loses_what_was_set() -> None:
    before = dict(os.environ)

    def clear_and_fail() -> None:
        with env.clear_environment():
            assert not os.environ
            os.environ["T_NEW"] = "1"
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        clear_and_fail()
    assert dict(os.environ) == before


def test_purging_a_function() -> None:
    os.environ["ACCELERATE_T_OLD"] = "before"

    @env.purge_accelerate_environment
    def work(error: bool) -> str:
        os.environ["ACCELERATE_T_OLD"] = "changed"
        os.environ["ACCELERATE_T_NEW"] = "1"
        os.environ["T_OTHER"] = "stays"
        if error:
            raise RuntimeError("inside")
        return "done"

    assert work.__name__ == "work"
    before = accelerate_variables()
    assert work(False) == "done"
    assert accelerate_variables() == before
    with pytest.raises(RuntimeError, match="inside"):
        work(True)
    assert accelerate_variables() == before
    assert os.environ["T_OTHER"] == "stays"


def test_purging_a_coroutine_function() -> None:
    @env.purge_accelerate_environment
    async def work() -> str | None:
        os.environ["ACCELERATE_T_NEW"] = "1"
        await asyncio.sleep(0)
        return os.environ.get("ACCELERATE_T_NEW")

    assert asyncio.iscoroutinefunction(work)
    before = accelerate_variables()
    assert asyncio.run(work()) == "1"
    assert accelerate_variables() == before


def sets(name: str) -> Callable[..., None]:
    def test(self: object) -> None:
        os.environ[name] = "1"

    return test


def test_purging_the_tests_of_a_class_its_bases_and_its_subclasses() -> None:
    inherited = type(
        "Base", (), {"test_base": sets("ACCELERATE_T_BASE"), "helper": sets("ACCELERATE_T_HELPER")}
    )
    told: list[tuple[type, str]] = []

    @env.purge_accelerate_environment
    class Decorated(inherited):  # type: ignore[misc, valid-type]
        test_number = 3

        def __init_subclass__(cls, word: str, **kwargs: object) -> None:
            super().__init_subclass__(**kwargs)
            told.append((cls, word))

    class Child(Decorated, word="hello"):
        test_child = sets("ACCELERATE_T_CHILD")

    assert told == [(Child, "hello")]
    before = accelerate_variables()
    Decorated().test_base()
    Child().test_base()
    Child().test_child()
    assert accelerate_variables() == before
    Child().helper()
    assert "ACCELERATE_T_HELPER" in os.environ
    inherited().test_base()  # type: ignore[attr-defined]
    assert "ACCELERATE_T_BASE" in os.environ


def test_what_set_up_sets_is_there_in_the_test_and_goes_afterwards() -> None:
    seen = []

    @env.purge_accelerate_environment
    class Case(unittest.TestCase):
        def setUp(self) -> None:
            os.environ["ACCELERATE_T_SETUP"] = "1"

        def test_one(self) -> None:
            seen.append(os.environ.get("ACCELERATE_T_SETUP"))
            os.environ["ACCELERATE_T_TEST"] = "1"

        def tearDown(self) -> None:
            seen.append(os.environ.get("ACCELERATE_T_TEST"))

    class Child(Case):
        def test_two(self) -> None:
            seen.append(os.environ.get("ACCELERATE_T_SETUP"))

    before = accelerate_variables()
    for case in (Case("test_one"), Child("test_two")):
        result = case.run()
        assert result is not None
        assert result.wasSuccessful()
        assert accelerate_variables() == before
    assert seen == ["1", None, "1", None]
