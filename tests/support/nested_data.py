"""Nested containers of every kind, as classes and as hypothesis strategies. Used by tests of their users."""

import dataclasses
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st

from accelerate.modules.nested import is_record


class Point(NamedTuple):
    """A named tuple."""

    x: Any
    y: Any


class Scaled(namedtuple("Scaled", "value scale")):
    """A named tuple whose constructor takes other arguments than its fields."""

    def __new__(cls, value: Any) -> "Scaled":
        return super().__new__(cls, value, 1.0)


class Rows(list):
    """A list of a class of its own."""


class Attributes(dict):
    """The usual dictionary whose items are attributes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__dict__ = self


class Tagged(dict):
    """A dictionary whose constructor needs more than items."""

    def __init__(self, items: Any, *, tag: str) -> None:
        super().__init__(items)
        self.tag = tag


class View(Mapping):
    """A mapping that shares what it shows, so that a shallow copy of it would too."""

    def __init__(self, items: dict[str, Any]) -> None:
        self.items_of_view = items

    def __getitem__(self, key: str) -> Any:
        return self.items_of_view[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.items_of_view)

    def __len__(self) -> int:
        return len(self.items_of_view)


@dataclasses.dataclass
class Output:
    """The usual output of a model: some fields may be missing."""

    first: Any
    second: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenOutput:
    """A record that refuses to be changed, with a field that its constructor does not take."""

    value: Any
    made: str | None = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Give the field that the constructor does not take no value."""
        object.__setattr__(self, "made", None)


@dataclasses.dataclass
class ModelOutput(OrderedDict[str, Any]):
    """A dictionary and a dataclass at once, whose items are its fields; those of transformers are like it."""

    first: Any = None
    second: Any = None

    def __post_init__(self) -> None:
        """Make items of the fields that are there."""
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)

    def __setitem__(self, key: str, value: Any) -> None:
        """Set item and field alike."""
        super().__setitem__(key, value)
        object.__setattr__(self, key, value)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Refuse."""
        raise TypeError("not allowed")

    def __reduce__(self) -> Any:
        """Make copies from the fields."""
        kind, _, *rest = super().__reduce__()
        return kind, tuple(getattr(self, field.name) for field in dataclasses.fields(self)), *rest


tensors = st.sampled_from([(), (2,), (3, 1), (0, 2)]).map(torch.zeros)
other_leaves = st.one_of(st.none(), st.integers(), st.text(max_size=2), st.builds(frozenset))
keys = st.text(max_size=2)


def containers(items: st.SearchStrategy[Any], *, pickled: bool = False) -> st.SearchStrategy[Any]:
    """Draw containers of `items`, of every class; only of those that can be pickled if need be."""
    few = st.lists(items, max_size=3)
    mapping = st.dictionaries(keys, items, max_size=3)
    others = [] if pickled else [mapping.map(MappingProxyType)]
    return st.one_of(
        *others,
        few,
        few.map(tuple),
        few.map(Rows),
        st.builds(Point, items, items),
        st.builds(Output, items, items),
        st.builds(FrozenOutput, items),
        st.builds(ModelOutput, items, items),
        mapping,
        mapping.map(OrderedDict),
        mapping.map(UserDict),
        mapping.map(View),
        mapping.map(lambda values: defaultdict(list, values)),
        mapping.map(lambda values: Tagged(values, tag="kept")),
    )


nested_data = st.recursive(st.one_of(tensors, other_leaves), containers, max_leaves=12)


def assert_same_structure(left: Any, right: Any) -> None:
    """Fail unless both have containers of the same types with the same keys, at every depth."""
    assert type(left) is type(right)
    if isinstance(left, Mapping):
        assert list(left) == list(right)
        for key in left:
            assert_same_structure(left[key], right[key])
    elif is_record(left):
        for name in (field.name for field in dataclasses.fields(left)):
            assert_same_structure(getattr(left, name), getattr(right, name))
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_same_structure(one, other)
