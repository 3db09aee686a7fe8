"""Batches become rows of bytes and come back as they were."""

import traceback

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accelerate.data.parcels import (
    Head,
    Packer,
    Unpacker,
    exception_parcel,
    read_head,
)

HEAD = {"kind": 1, "ends": 0, "last": 1, "rows": -1, "real_rows": 3}


def row_of(parcel):
    row = torch.empty(parcel.length + 5, dtype=torch.uint8)
    Head(length=parcel.length, form=len(parcel.form), **HEAD).write(row)
    parcel.write(row)
    return row


def sent(batches):
    packer, unpacker, results, forms = Packer(), Unpacker(), [], []
    for batch in batches:
        row = row_of(packer.pack(batch))
        head = read_head(row)
        forms.append(head.form)
        results.append(unpacker.unpack(row, head))
    return results, forms


DTYPES = [torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.int16, torch.complex64, torch.uint8]
TENSORS = st.builds(
    lambda dtype, shape: torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 3), max_size=3),
)
BATCHES = st.recursive(
    TENSORS | st.text(max_size=3) | st.none() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


def same(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return one == other


@settings(max_examples=150, deadline=None)
@given(st.lists(BATCHES, min_size=1, max_size=3))
def test_they_come_back(batches):
    results, _ = sent([*batches, batches[-1]])
    assert all(map(same, [*batches, batches[-1]], results))


def test_a_form_travels_once():
    _, forms = sent([{"x": torch.zeros(2)}, {"x": torch.ones(2)}, {"x": torch.ones(3)}, {"x": torch.ones(3)}])
    assert [bool(form) for form in forms] == [True, False, True, False]


def test_batches_have_memory_of_their_own():
    first, second = sent([{"x": torch.zeros(2), "y": torch.zeros(3)}] * 2)[0]
    first["x"] += 1
    assert second["x"].tolist() == [0, 0]
    assert first["y"].untyped_storage().nbytes() == 12


def test_gradients_do_not_travel():
    (result,), _ = sent([torch.ones(2, requires_grad=True) * 2])
    assert not result.requires_grad


def test_a_head_says_all():
    row = row_of(Packer().pack(torch.ones(3)))
    head = read_head(row)
    assert {name: getattr(head, name) for name in HEAD} == HEAD
    assert head.length == len(row) - 5


def failing():
    raise KeyError("missing")


def test_an_exception_comes_with_its_traceback():
    try:
        failing()
    except KeyError as error:
        parcel = exception_parcel(error)
    row = row_of(parcel)
    raised = Unpacker().unpack(row, read_head(row))
    assert isinstance(raised, KeyError)
    assert raised.args == ("missing",)
    assert "in failing" in "".join(traceback.format_exception(raised))
    assert "On rank 0" in str(raised.__cause__)


class Local(Exception):
    def __reduce__(self):
        raise RuntimeError("never")


def test_an_exception_that_cannot_be_sent_is_told():
    row = row_of(exception_parcel(Local("text")))
    raised = Unpacker().unpack(row, read_head(row))
    assert type(raised) is RuntimeError
    assert str(raised) == "Local: text (it cannot be sent itself: never)"


def test_what_cannot_be_pickled_says_what_to_do():
    with pytest.raises(TypeError, match="dispatch_batches=False"):
        Packer().pack({"f": lambda: 1})
