"""What a header says of a call: the hash that must be alike, and the silent channel."""

import subprocess
import sys
from typing import Any

import pytest
import torch

from accelerate.runtime.header import Call, Channel, obstacle
from tests.support.nested_data import FrozenOutput, Output, Point

ONES = torch.ones(2, 3)


def digest(data: Any, *, number: int = 1, operation: str = "gather", **options: Any) -> int:
    return Call(operation=operation, data=data, **options).digest(number)


def test_a_digest_is_the_same_in_every_process():
    script = (
        "import torch; from accelerate.runtime.header import Call; "
        "data = {'a': [torch.ones(2, 3)], 'b': {frozenset('xyz'): None}}; "
        "print(Call(operation='gather', data=data).digest(7))"
    )
    told = {
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
        for _ in range(2)
    }
    assert told == {f"{digest({'a': [ONES], 'b': {frozenset('xyz'): None}}, number=7)}\n"}


@pytest.mark.parametrize(
    "other",
    [
        torch.ones(3, 2),
        torch.ones(2, 3, 1),
        torch.ones(2, 3, dtype=torch.float16),
        torch.ones(2, 3, device="meta"),
        torch.ones(2, 3).to_sparse(),
        [ONES],
        {"a": ONES},
        None,
        "text",
    ],
)
def test_what_changes_a_digest(other):
    assert digest(other) != digest(ONES)
    assert digest([ONES, other]) != digest([ONES, ONES])


def test_the_call_itself_changes_a_digest():
    digests = [
        digest(ONES),
        digest(ONES, number=2),
        digest(ONES, operation="reduce"),
        digest(ONES, operation="reduce", arguments="reduction='sum'"),
        digest(ONES, problem=ValueError("no")),
        digest(ONES, exact=False),
    ]
    assert len(set(digests)) == len(digests)
    assert all(-(2**63) <= each < 2**63 for each in digests)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ONES, torch.zeros(3, 2, requires_grad=True).t()),
        ([ONES], (ONES,)),
        ({"first": ONES}, Output(ONES)),
        (Point(ONES, ONES), {"x": ONES, "y": ONES}),
        (FrozenOutput(ONES), Output(ONES)),
    ],
)
def test_what_leaves_a_digest_alike(one, other):
    if isinstance(one, FrozenOutput):  # fields have names, and these differ
        assert digest(one) != digest(other)
        one, other = one.value, other.first
    assert digest(one) == digest(other)


def test_only_the_structure_counts_where_tensors_are_padded():
    assert digest([ONES, ONES], exact=False) == digest([torch.ones(5), torch.tensor(1)], exact=False)
    assert digest([ONES, ONES], exact=False) != digest([ONES], exact=False)
    assert digest([ONES, "text"], exact=False) != digest([ONES, ONES], exact=False)


def test_nested_tensors_of_any_length_are_alike_since_all_refuse_them():
    ragged = [
        torch.nested.nested_tensor([torch.ones(1), torch.ones(length)], layout=torch.jagged)
        for length in (2, 3)
    ]
    assert digest(ragged[0]) == digest(ragged[1])
    assert "to_padded_tensor" in (obstacle(ragged[0]) or "")


def test_a_silent_channel_counts_and_raises_problems():
    channel = Channel()
    assert channel.open(Call(operation="gather")) is None
    with pytest.raises(ValueError, match="mine"):
        channel.open(Call(operation="gather", problem=ValueError("mine")))
    channel.leave()
    assert channel.number == 2
    assert channel.absence(RuntimeError("gloo")) is None
