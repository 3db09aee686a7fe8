import collections
import dataclasses
import inspect
import pickle
import types
from typing import Any

import pytest
import torch
from torch import nn

from accelerate.modules.fp32 import ConvertOutputsToFp32, convert_outputs_to_fp32, convert_to_fp32

Pair = collections.namedtuple("Pair", "x y")


@dataclasses.dataclass
class Output:
    logits: Any
    loss: Any = None
    text: str = "text"


@dataclasses.dataclass(frozen=True)
class FrozenOutput:
    logits: torch.Tensor


@dataclasses.dataclass(frozen=True, slots=True)
class SlottedOutput:
    logits: torch.Tensor
    inner: Any = None


@dataclasses.dataclass
class WithoutInit:
    seed: dataclasses.InitVar[int]
    logits: torch.Tensor = dataclasses.field(init=False)
    later: Any = dataclasses.field(init=False)

    def __post_init__(self, seed):
        self.logits = half(seed)


@dataclasses.dataclass
class MappingOutput(collections.OrderedDict):
    """A mapping whose entries are its fields and which refuses `update`, as those of transformers do."""

    logits: Any
    states: Any = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        object.__setattr__(self, key, value)

    def update(self, *args, **kwargs):
        raise TypeError("not allowed")

    def __reduce__(self):
        kind, _, *rest = super().__reduce__()
        return kind, tuple(getattr(self, field.name) for field in dataclasses.fields(self)), *rest


class OwnMapping(dict):
    pass


class ReadOnly(collections.abc.Mapping):
    """A mapping that cannot be made from its items."""

    def __init__(self, *, items):
        self._items = items

    def __getitem__(self, key):
        return self._items[key]

    def __iter__(self):
        return iter(self._items)

    def __len__(self):
        return len(self._items)


def half(value=1.0, dtype=torch.bfloat16):
    return torch.full((2,), float(value), dtype=dtype)


def dtypes(data):
    """Return the dtypes of all tensors in `data`, in order, whatever holds them."""
    if isinstance(data, torch.Tensor):
        return [data.dtype]
    if isinstance(data, collections.abc.Mapping):
        return [dtype for value in data.values() for dtype in dtypes(value)]
    if dataclasses.is_dataclass(data):
        return [
            dtype for field in dataclasses.fields(data) for dtype in dtypes(getattr(data, field.name, None))
        ]
    return [dtype for item in data for dtype in dtypes(item)] if isinstance(data, (list, tuple)) else []


CONTAINERS = {
    "tensor": half(),
    "list": [half(), [half()]],
    "tuple": (half(), 1),
    "namedtuple": Pair(half(), [half()]),
    "dict": {"a": half(), "b": {"c": half()}},
    "ordered dict": collections.OrderedDict(a=half()),
    "default dict": collections.defaultdict(list, a=half()),
    "subclass of dict": OwnMapping(a=half()),
    "read-only proxy": types.MappingProxyType({"a": half()}),
    "result of torch": torch.max(half().view(1, 2), dim=1),
    "packed sequence": nn.utils.rnn.pack_sequence([half(), half()]),
    "dataclass": Output(half(), [half()]),
    "frozen dataclass": FrozenOutput(half()),
    "dataclass with slots": SlottedOutput(half(), {"a": FrozenOutput(half())}),
    "dataclass without init": WithoutInit(1),
    "mapping that is a dataclass": MappingOutput(half(), (half(), half())),
}


@pytest.mark.parametrize("data", CONTAINERS.values(), ids=CONTAINERS.keys())
def test_every_container_keeps_its_type_and_what_it_held_stays(data):
    before = dtypes(data)
    converted = convert_to_fp32(data)
    assert type(converted) is type(data)
    after = dtypes(converted)
    assert len(after) == len(before)
    assert all(dtype in (torch.float32, torch.int64) for dtype in after)
    assert after.count(torch.float32) == before.count(torch.bfloat16) > 0
    assert dtypes(data) == before


def test_only_half_precision_becomes_fp32():
    data = [
        torch.ones(1, dtype=dtype) for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int8)
    ]
    converted = convert_to_fp32([*data, "text"])
    assert [leaf.dtype for leaf in converted[:4]] == [torch.float32, torch.float32, torch.float64, torch.int8]
    assert converted[2] is data[2]
    assert converted[4] == "text"


def test_gradients_flow_back():
    tensor = torch.ones(1, dtype=torch.float16, requires_grad=True)
    convert_to_fp32(Output([tensor])).logits[0].sum().backward()
    assert tensor.grad == 1


@pytest.mark.parametrize(
    "data",
    [
        torch.ones(1),
        [torch.ones(1)],
        {"a": (torch.ones(1), None)},
        Output(torch.ones(1)),
        ReadOnly(items={"a": torch.ones(1)}),
        {half()},
        Output,
    ],
)
def test_what_holds_nothing_to_convert_is_the_same_object(data):
    assert convert_to_fp32(data) is data


def test_entries_and_fields_of_one_mapping_stay_one_tensor():
    converted = convert_to_fp32(MappingOutput(half(), (half(),)))
    assert converted.logits is converted["logits"]
    assert converted.states[0] is converted["states"][0]
    assert list(converted) == ["logits", "states"]


def test_a_dataclass_that_holds_itself_is_not_followed_in_a_circle():
    node = Output(half())
    node.loss = [node]
    converted = convert_to_fp32(node)
    assert converted.logits.dtype == torch.float32
    assert converted.loss[0] is node


def forward(inputs, scale=1):
    """Say what it is."""
    return {"logits": inputs.bfloat16() * scale}


@pytest.mark.parametrize("wrap", [ConvertOutputsToFp32, convert_outputs_to_fp32])
def test_a_wrapped_forward(wrap):
    wrapped = wrap(forward)
    assert wrapped(torch.ones(1), scale=2)["logits"].dtype == torch.float32
    assert inspect.signature(wrapped) == inspect.signature(forward)
    assert (wrapped.__name__, wrapped.__doc__) == ("forward", "Say what it is.")
    assert inspect.unwrap(wrapped) is forward


def test_the_function_binds_to_a_class_and_the_object_pickles():
    class Model:
        run = convert_outputs_to_fp32(lambda self, inputs: inputs.half())

    assert Model().run(torch.ones(1)).dtype == torch.float32
    wrapped = ConvertOutputsToFp32(forward)
    assert wrapped.model_forward is forward
    assert pickle.loads(pickle.dumps(wrapped)).model_forward is forward


@pytest.mark.parametrize("data", [half(), Pair(half(), [half()]), {"a": half()}, Output(half(), [half()])])
def test_the_compiler_needs_no_break(data):
    """What the conversion does can stand inside a compiled forward pass."""

    def run(tensor):
        return {
            torch.Tensor: lambda: tensor,
            Pair: lambda: Pair(tensor, [tensor]),
            dict: lambda: {"a": tensor},
            Output: lambda: Output(tensor, [tensor]),
        }[type(data)]()

    compiled = torch.compile(ConvertOutputsToFp32(run), backend="eager", fullgraph=True)
    assert set(dtypes(compiled(half()))) == {torch.float32}
