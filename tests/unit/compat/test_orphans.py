import functools
from typing import Any

import pytest

from accelerate.compat.orphans import convert_bytes, get_pretty_name, merge_dicts, recursive_getattr


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1.5, "1.5 bytes"),
        (1024, "1.0 KB"),
        (1536, "1.5 KB"),
        (2_500_000, "2.38 MB"),
        (2.5 * 1024**3, "2.5 GB"),
        (1024**4, "1.0 TB"),
        (1024**5, "1.0 PB"),
        (1024**6, "1024.0 PB"),
        (-2048, "-2.0 KB"),
    ],
)
def test_bytes(size: float, text: str) -> None:
    assert convert_bytes(size) == text


class Named:
    def method(self) -> None: ...


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Named, "Named"),
        (Named(), "Named"),
        (Named().method, "Named.method"),
        (get_pretty_name, "get_pretty_name"),
        (pytest, "pytest"),
        ("text", "str"),
        (functools.partial(print), "partial"),
    ],
)
def test_names(value: object, name: str) -> None:
    assert get_pretty_name(value) == name


@pytest.mark.parametrize(
    ("source", "destination", "merged"),
    [
        ({"a": {"b": 1}}, {"a": {"c": 2}, "d": 1}, {"a": {"c": 2, "b": 1}, "d": 1}),
        ({"a": 3}, {"a": {"b": 1}}, {"a": 3}),
        ({"a": {"b": 1}}, {"a": 3}, {"a": {"b": 1}}),
        ({"a": {"b": 1}}, {"a": None}, {"a": {"b": 1}}),
        ({}, {"a": 1}, {"a": 1}),
    ],
)
def test_merging(source: dict[str, Any], destination: dict[str, Any], merged: dict[str, Any]) -> None:
    assert merge_dicts(source, destination) is destination
    assert destination == merged


def test_merging_shares_no_dictionary_with_the_source() -> None:
    source: dict[str, Any] = {"a": {"b": 1}}
    merge_dicts(source, {})["a"]["b"] = 2
    assert source == {"a": {"b": 1}}


def test_dotted_paths() -> None:
    assert recursive_getattr(Named(), "method.__func__") is Named.method
    assert recursive_getattr(Named, "method") is Named.method
    with pytest.raises(AttributeError, match="'function' object has no attribute 'lost'"):
        recursive_getattr(Named, "method.lost")
