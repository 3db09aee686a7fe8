"""Nested containers: what is kept (type, structure, order, other leaves) and what happens to tensors."""

import dataclasses
import sys
from collections import Counter, OrderedDict, UserDict, defaultdict, deque, namedtuple
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from accelerate.modules.nested import (
    TensorInformation,
    concatenate,
    find_batch_size,
    find_device,
    flatten,
    get_data_structure,
    get_shape,
    honor_type,
    ignorant_find_batch_size,
    initialize_tensors,
    is_namedtuple,
    is_tensor_information,
    is_torch_tensor,
    listify,
    map_leaves,
    recursively_apply,
    send_to_device,
    slice_tensors,
    walk,
)


class Point(NamedTuple):
    x: Any
    y: Any


class Scaled(namedtuple("Scaled", "value scale")):
    def __new__(cls, value: Any) -> "Scaled":
        return super().__new__(cls, value, 1.0)


class Rows(list):
    pass


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

    def __iter__(self):
        return iter(self.items_of_view)

    def __len__(self) -> int:
        return len(self.items_of_view)


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


@dataclasses.dataclass
class Record:
    value: Any


tensors = st.sampled_from([(), (2,), (3, 1), (0, 2)]).map(torch.zeros)
other_leaves = st.one_of(st.none(), st.integers(), st.text(max_size=2), st.builds(Record, st.integers()))
keys = st.text(max_size=2)


def containers(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    few = st.lists(items, max_size=3)
    mapping = st.dictionaries(keys, items, max_size=3)
    return st.one_of(
        few,
        few.map(tuple),
        few.map(Rows),
        st.builds(Point, items, items),
        mapping,
        mapping.map(OrderedDict),
        mapping.map(UserDict),
        mapping.map(View),
        mapping.map(lambda values: defaultdict(list, values)),
        mapping.map(lambda values: Tagged(values, tag="kept")),
    )


nested = st.recursive(st.one_of(tensors, other_leaves), containers, max_leaves=12)


def assert_same_structure(left: Any, right: Any) -> None:
    """Fail unless both have containers of the same types with the same keys, at every depth."""
    assert type(left) is type(right)
    if isinstance(left, Mapping):
        assert list(left) == list(right)
        for key in left:
            assert_same_structure(left[key], right[key])
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_same_structure(one, other)


@given(nested)
def test_flatten_and_rebuild_give_equal_containers_with_the_same_leaves(data):
    leaves, rebuild = flatten(data)
    rebuilt = rebuild(leaves)
    assert_same_structure(data, rebuilt)
    again, _ = flatten(rebuilt)
    assert len(again) == len(leaves)
    assert all(one is other for one, other in zip(leaves, again, strict=True))


@given(nested)
def test_walk_visits_the_leaves_of_flatten_and_its_paths_lead_to_them(data):
    leaves, _ = flatten(data)
    visited = list(walk(data))
    assert [id(leaf) for _, leaf in visited] == [id(leaf) for leaf in leaves]
    for path, leaf in visited:
        assert eval(f"data{path}", {"data": data}) is leaf


@given(nested)
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


@given(nested)
def test_sending_to_the_same_device_copies_containers_but_no_tensor(data):
    sent = send_to_device(data, "cpu")
    assert_same_structure(data, sent)
    assert [id(leaf) for leaf in flatten(sent)[0]] == [id(leaf) for leaf in flatten(data)[0]]


@given(nested)
def test_sending_to_another_device_moves_every_tensor(data):
    sent = send_to_device(data, torch.device("meta"))
    assert_same_structure(data, sent)
    for leaf in flatten(sent)[0]:
        assert not is_torch_tensor(leaf) or leaf.is_meta


@given(nested)
def test_data_structure_describes_and_initialize_follows_it(data):
    structure = get_data_structure(data)
    made = initialize_tensors(structure)
    assert_same_structure(data, made)
    for leaf, information, fresh in zip(
        flatten(data)[0], flatten(structure)[0], flatten(made)[0], strict=True
    ):
        if is_torch_tensor(leaf):
            assert information == TensorInformation(leaf.shape, leaf.dtype)
            assert (fresh.shape, fresh.dtype) == (leaf.shape, leaf.dtype)
        else:
            assert information is leaf is fresh


@given(st.recursive(st.just((2, 3)).map(torch.ones), containers, max_leaves=6), st.integers(0, 1))
def test_slices_concatenate_to_the_whole(data, dim):
    index = (slice(None),) * dim
    parts = [slice_tensors(data, (*index, slice(0, 1))), slice_tensors(data, (*index, slice(1, None)))]
    whole = concatenate(parts, dim=dim)
    assert_same_structure(data, whole)
    for leaf, joined in zip(flatten(data)[0], flatten(whole)[0], strict=True):
        assert torch.equal(leaf, joined)


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


@pytest.mark.parametrize("leaf", [{1}, deque([1]), Record(1), "text", None, 3])
def test_everything_but_lists_tuples_and_mappings_is_a_leaf(leaf):
    assert flatten([leaf])[0] == [leaf]
    assert flatten([leaf])[0][0] is leaf


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


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (torch.ones(2, 3), 2),
        ({"b": [torch.ones(4)], "a": torch.ones(5)}, 4),
        (Point([torch.ones(0, 2)], "text"), 0),
        ([torch.ones(2), 3], 2),
    ],
)
def test_batch_size_is_that_of_the_first_tensor(data, size):
    assert find_batch_size(data) == ignorant_find_batch_size(data) == size


@pytest.mark.parametrize(
    ("data", "error"),
    [("text", TypeError), ([3, torch.ones(2)], TypeError), ([], ValueError), ({"a": {}}, ValueError)],
)
def test_no_batch_size(data, error):
    with pytest.raises(error):
        find_batch_size(data)
    assert ignorant_find_batch_size(data) is None


def test_a_tensor_without_dims_has_no_batch_size():
    with pytest.raises(IndexError, match="without dims"):
        find_batch_size([torch.tensor(1)])


def test_a_tensor_that_is_there_already_costs_one_call():
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
    num_nodes = 1 + 10 + 10 + 20  # the dictionary, lists, tuples and tensors
    assert calls.count("_move") == num_nodes
    assert len([name for name in calls if not name.startswith("<")]) <= num_nodes + 10


def test_listify_and_shapes():
    data = {"a": torch.ones(1, 2, dtype=torch.bfloat16), "b": (torch.tensor(True), "text")}
    assert listify(data) == {"a": [[1.0, 1.0]], "b": (True, "text")}
    assert get_shape(data) == {"a": [1, 2], "b": ([], "text")}
    assert is_tensor_information(get_data_structure(data)["a"])
    assert not is_tensor_information(data)


def test_slice_tensors_takes_the_arguments_of_other_slicing_functions():
    assert (
        slice_tensors([torch.arange(4), "text"], slice(1, 3), process_index=1, num_processes=2)[1] == "text"
    )
    assert slice_tensors(torch.arange(4), slice(1, 3), 1, 2).tolist() == [1, 2]


def test_concatenate_refuses_what_is_no_tensor():
    with pytest.raises(TypeError, match="str"):
        concatenate([{"a": "text"}, {"a": "text"}])
    with pytest.raises(ValueError, match="nothing"):
        concatenate([])


def test_find_device():
    assert find_device({"a": "text", "b": [3, torch.ones(1, device="meta"), torch.ones(1)]}).type == "meta"
    assert find_device(["text"]) is None
