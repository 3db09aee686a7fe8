"""Nested containers: what is kept (type, structure, order, other leaves) and what happens to tensors."""

import sys
from collections import Counter, OrderedDict, UserDict, defaultdict, deque
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given

from accelerate.modules.batch import get_data_structure
from accelerate.modules.nested import (
    find_device,
    flatten,
    honor_type,
    is_namedtuple,
    is_record,
    is_torch_tensor,
    map_leaves,
    outline,
    recursively_apply,
    send_to_device,
    walk,
)
from tests.support.nested_data import (
    Attributes,
    FrozenOutput,
    ModelOutput,
    Output,
    Point,
    Scaled,
    Tagged,
    View,
    assert_same_structure,
    nested_data,
)


class Movable:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def to(self, device: Any, non_blocking: bool = False) -> "Movable":
        self.calls.append((device, non_blocking))
        return self


class OldMovable(Movable):
    def to(self, device: Any) -> "OldMovable":  # type: ignore[override]
        self.calls.append(device)
        return self


@given(nested_data)
def test_flatten_and_rebuild_give_equal_containers_with_the_same_leaves(data):
    leaves, rebuild = flatten(data)
    rebuilt = rebuild(leaves)
    assert_same_structure(data, rebuilt)
    again, _ = flatten(rebuilt)
    assert len(again) == len(leaves)
    assert all(one is other for one, other in zip(leaves, again, strict=True))


@given(nested_data)
def test_walk_visits_the_leaves_of_flatten_and_its_paths_lead_to_them(data):
    leaves, _ = flatten(data)
    visited = list(walk(data))
    assert [id(leaf) for _, leaf in visited] == [id(leaf) for leaf in leaves]
    for path, leaf in visited:
        assert eval(f"data{path}", {"data": data}) is leaf


@given(nested_data)
def test_recursively_apply_changes_tensors_only_and_leaves_the_input_alone(data):
    before, _ = flatten(data)
    result = recursively_apply(lambda tensor: tensor + 1, data)
    assert_same_structure(data, result)
    after, _ = flatten(data)
    assert [id(leaf) for leaf in before] == [id(leaf) for leaf in after]
    for leaf, changed in zip(before, flatten(result)[0], strict=True):
        if is_torch_tensor(leaf):
            assert torch.equal(changed, leaf + 1)
        else:
            assert changed is leaf


@given(nested_data)
def test_sending_to_the_same_device_copies_containers_but_no_tensor(data):
    sent = send_to_device(data, "cpu")
    assert_same_structure(data, sent)
    assert [id(leaf) for leaf in flatten(sent)[0]] == [id(leaf) for leaf in flatten(data)[0]]


@given(nested_data)
def test_sending_to_another_device_moves_every_tensor(data):
    sent = send_to_device(data, torch.device("meta"))
    assert_same_structure(data, sent)
    for leaf in flatten(sent)[0]:
        assert not is_torch_tensor(leaf) or leaf.is_meta


def test_torch_result_tuples_and_shapes_keep_their_type():
    largest = torch.arange(6.0).reshape(2, 3).max(0)
    doubled = recursively_apply(lambda tensor: tensor * 2, largest)
    assert type(doubled) is type(largest)
    assert torch.equal(doubled.values, largest.values * 2)
    assert type(map_leaves(lambda leaf: leaf, torch.Size([1, 2]))) is torch.Size


def test_a_named_tuple_with_its_own_constructor_is_rebuilt():
    rebuilt = map_leaves(lambda leaf: leaf, Scaled(3))
    assert type(rebuilt) is Scaled
    assert rebuilt == (3, 1.0)


def test_mappings_with_their_own_constructor():
    tensor = torch.ones(2)
    counts = defaultdict(list, a=tensor)
    assert recursively_apply(torch.neg, counts)["other"] == []
    tagged = recursively_apply(torch.neg, Tagged({"a": tensor}, tag="kept"))
    assert (tagged.tag, tagged["a"].sum()) == ("kept", -2)
    by_attribute = recursively_apply(torch.neg, Attributes(a=tensor))
    assert by_attribute.a is by_attribute["a"]
    assert by_attribute.a.sum() == -2
    assert type(recursively_apply(torch.neg, Counter(a=tensor))) is Counter


def test_a_mapping_that_cannot_be_rebuilt_is_an_error_and_is_not_changed():
    class Stubborn(View):
        def __init__(self, items: dict[str, Any], more: int) -> None:
            super().__init__(items)

    data = Stubborn({"a": torch.ones(1)}, more=1)
    with pytest.raises(TypeError, match="more"):
        recursively_apply(torch.neg, data)
    assert data["a"] == 1


@pytest.mark.parametrize("leaf", [{1}, deque([1]), Output, get_data_structure(torch.ones(1)), "text", None])
def test_everything_else_is_a_leaf(leaf):
    assert flatten([leaf])[0] == [leaf]
    assert flatten([leaf])[0][0] is leaf


def test_a_record_is_rebuilt_without_its_constructor():
    frozen = FrozenOutput([torch.ones(1), None])
    object.__setattr__(frozen, "made", "elsewhere")
    negative = recursively_apply(torch.neg, frozen)
    assert type(negative) is FrozenOutput
    assert (negative.value[0].item(), negative.made, frozen.value[0].item()) == (-1, "elsewhere", 1)
    assert send_to_device(frozen, "meta").value[0].is_meta


def test_a_record_in_which_nothing_changes_is_the_same_object():
    settings = Output(1, "text")
    assert recursively_apply(torch.neg, [settings])[0] is settings
    assert send_to_device({"settings": settings}, "meta")["settings"] is settings
    assert flatten(settings)[1](["other", "text"]) == Output("other", "text")
    assert settings == Output(1, "text")


def test_a_missing_field_of_a_record_is_no_leaf():
    unset = Output(torch.ones(1))
    del unset.first
    unset.second = 1
    assert len(flatten([Output(None, torch.ones(1)), unset])[0]) == 2
    assert [path for path, _ in walk([Output(None, 3), unset])] == ["[0].second", "[1].second"]
    assert send_to_device(Output(torch.ones(1), torch.ones(1)), "meta", skip_keys="first").second.is_meta
    assert not send_to_device(Output(torch.ones(1)), "meta", skip_keys="first").first.is_meta


def test_a_record_that_is_a_mapping_keeps_items_and_fields_alike():
    original = ModelOutput(torch.ones(1))
    output = recursively_apply(torch.neg, original)
    assert type(output) is ModelOutput
    assert output.first is output["first"]
    assert output.first == -original.first
    assert list(output) == ["first"]
    assert output.second is None
    assert recursively_apply(torch.neg, ModelOutput({"a": torch.ones(1)})).first["a"] == -1


def test_a_record_inside_itself_is_a_leaf():
    node = Output(torch.ones(1))
    node.second = [node]
    leaves, _ = flatten([node, node])
    assert [type(leaf) for leaf in leaves] == [torch.Tensor, Output, torch.Tensor, Output]
    assert [path for path, _ in walk(node)] == [".first", ".second[0]"]
    assert outline(type, node) == {"first": torch.Tensor, "second": [Output]}
    assert send_to_device(node, "meta").first.is_meta
    assert recursively_apply(torch.neg, node).second[0] is node


def test_a_read_only_view_is_rebuilt_as_one():
    view = recursively_apply(torch.neg, MappingProxyType({"a": torch.ones(1)}))
    assert type(view) is MappingProxyType
    assert view["a"] == -1


class Color(Enum):
    RED = 1


def test_an_outline_shows_structure_in_plain_containers():
    data = {"a": [torch.ones(2), (1,)], Color.RED: Point(1, None), ("b", 2): Output(1), frozenset(): View({})}
    assert outline(type, data) == {
        "a": [torch.Tensor, [int]],
        "Color.RED": {"x": int, "y": type(None)},
        ("b", 2): {"first": int},
        "frozenset": {},
    }
    assert repr(outline(type, OrderedDict(b=1, a=2))) != repr(outline(type, {"a": 2, "b": 1}))


def test_is_record_means_an_instance():
    assert is_record(Output(1))
    assert not is_record(Output)
    assert not is_record({"first": 1})


def test_honor_type():
    assert honor_type([0], (i for i in (1, 2))) == [1, 2]
    assert honor_type(Point(0, 0), (i for i in (1, 2))) == Point(1, 2)
    assert honor_type(OrderedDict(), (i for i in [("a", 1)])) == OrderedDict(a=1)


def test_is_namedtuple_means_an_instance():
    assert is_namedtuple(Point(1, 2))
    assert not is_namedtuple(Point)
    assert not is_namedtuple((1, 2))
    assert not is_namedtuple(torch.ones(1, 1).max(0))


def test_recursively_apply_passes_arguments_and_tests_leaves():
    result = recursively_apply(
        lambda leaf, add, times=1: (leaf + add) * times,
        [1, "text", torch.ones(1)],
        2,
        times=3,
        test_type=lambda leaf: isinstance(leaf, int),
    )
    assert result[:2] == [9, "text"]
    assert result[2] == 1


def test_recursively_apply_says_what_it_cannot_take_and_where():
    data = {"a": [torch.ones(1), Point(torch.ones(1), "text")]}
    with pytest.raises(TypeError, match=r"`double` was given str at \['a'\]\[1\]\.y.*`is_torch_tensor`"):
        recursively_apply(double, data, error_on_other_type=True)
    with pytest.raises(TypeError, match="an object of type NoneType"):
        recursively_apply(double, None, error_on_other_type=True)


def double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * 2


def test_send_to_device_moves_what_has_a_method_to():
    new, old = Movable(), OldMovable()
    assert send_to_device([new, old], "cpu", non_blocking=True) == [new, old]
    assert new.calls == [(torch.device("cpu"), True)]
    assert old.calls == [torch.device("cpu")]
    module = torch.nn.Linear(1, 1)
    assert send_to_device({"module": module}, "meta")["module"].weight.is_meta
    assert send_to_device(torch.nn.Parameter(torch.ones(1)), "meta").is_meta


def test_send_to_device_takes_only_a_method_for_one():
    class Letter(NamedTuple):
        to: Any

    assert send_to_device(Letter(torch.ones(1)), "meta").to.is_meta
    assert send_to_device([torch.nn.Linear], "cpu") == [torch.nn.Linear]


@pytest.mark.parametrize("mapping", [dict, UserDict, OrderedDict])
@pytest.mark.parametrize("skip_keys", ["stay", ["stay", "absent"]])
def test_send_to_device_skips_keys_at_every_depth(mapping, skip_keys):
    data = mapping(
        go=torch.ones(1), stay=torch.ones(1), deep=[mapping(stay=[torch.ones(1)], go=torch.ones(1))]
    )
    sent = send_to_device(data, "meta", skip_keys=skip_keys)
    assert sent["go"].is_meta
    assert sent["deep"][0]["go"].is_meta
    assert sent["stay"] is data["stay"]
    assert sent["deep"][0]["stay"] is data["deep"][0]["stay"]


def test_send_to_device_ignores_the_index_of_the_cpu():
    tensor = torch.ones(1)
    assert send_to_device(tensor, "cpu:0") is tensor
    assert send_to_device([tensor], torch.device("cpu", 0))[0] is tensor


def test_a_tensor_that_is_there_already_costs_no_call():
    data = {f"{i}": [torch.ones(1), (torch.ones(1),)] for i in range(10)}
    calls: list[str] = []

    def record(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            calls.append(frame.f_code.co_name)
        elif event == "c_call":
            calls.append(argument.__name__)

    sys.setprofile(record)
    try:
        send_to_device(data, "cpu")
    finally:
        sys.setprofile(None)
    assert "to" not in calls
    num_containers = 1 + 10 + 10  # the dictionary, lists and tuples
    assert calls.count("_move") == num_containers
    assert len([name for name in calls if not name.startswith("<")]) <= num_containers + 10


def test_find_device():
    assert find_device({"a": "text", "b": [3, torch.ones(1, device="meta"), torch.ones(1)]}).type == "meta"
    assert find_device(["text"]) is None
