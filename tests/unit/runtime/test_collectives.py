"""The collectives with one process, and what they refuse before anything is sent."""

import pytest
import torch

from accelerate.runtime import rank_group
from accelerate.runtime.collectives import (
    CannotPadNestedTensorWarning,
    broadcast,
    broadcast_object_list,
    current_ranks,
    gather,
    gather_object,
    pad_across_processes,
    reduce,
)
from accelerate.runtime.current import current
from accelerate.runtime.header import Channel
from accelerate.runtime.rank_group import RankGroup


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Start a run of one process in which any use of torch.distributed is an error."""

    class Nothing:
        def __getattr__(self, name: str) -> None:
            raise AssertionError(f"torch.distributed.{name} was used")

    current.start(cpu=True)
    monkeypatch.setattr(rank_group, "dist", Nothing())
    monkeypatch.setattr(rank_group, "channel_of", lambda *args, **kwargs: Channel())
    yield
    current.reset()


def of_two() -> RankGroup:
    return RankGroup(size=2, rank=1, device=torch.device("cpu"))


def test_the_first_public_collective_starts_the_run(monkeypatch):
    current.reset()
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    assert gather(torch.ones(1)) == 1
    assert current.started


def test_one_process_gathers_broadcasts_and_pads_nothing():
    data = {"a": torch.ones(2, 3), "b": [torch.tensor(1)]}
    assert gather(data) is data
    assert broadcast(data) is data
    assert pad_across_processes(data, dim=1) is data
    assert gather({"a": "text", "b": None}) == {"a": "text", "b": None}
    assert gather_object({"a": 1}) == {"a": 1}
    objects = [1, "text"]
    assert broadcast_object_list(objects) is objects


def test_one_process_reduces_to_clones():
    data = [torch.ones(2, requires_grad=True), torch.arange(2)]
    for reduction in ("sum", "mean", "max", "min"):
        result = reduce(data, reduction)
        assert [torch.equal(one, other) for one, other in zip(result, data, strict=True)] == [True, True]
        assert result[0].data_ptr() != data[0].data_ptr()
        assert result[0].requires_grad


def test_the_ranks_are_those_of_the_current_run():
    ranks = current_ranks()
    assert (ranks.size, ranks.rank, ranks.device) == (1, 0, torch.device("cpu"))


@pytest.mark.parametrize("operation", [reduce, pad_across_processes])
def test_one_process_refuses_other_objects_where_work_is_asked_for(operation):
    with pytest.raises(TypeError, match=r"str at \['a'\]\[0\] on rank 0"):
        operation({"a": ["text"]})


def test_a_reduction_that_does_not_exist():
    with pytest.raises(ValueError, match=r"reduction='average'.*sum, mean, max, min"):
        reduce(torch.ones(1), "average")


def test_scale_has_no_effect_and_says_so():
    with pytest.warns(UserWarning, match=r"scale=0.5.*no effect"):
        assert reduce(torch.ones(1), "sum", scale=0.5) == 1


@pytest.mark.parametrize("operation", ["gather", "reduce", "broadcast", "pad_across_processes"])
def test_other_objects_are_named_with_their_place_and_the_rank(operation):
    for other, name in [("text", "str"), (None, "NoneType"), (3, "int")]:
        with pytest.raises(TypeError, match=rf"`{operation}` was given {name} at \['a'\]\[1\] on rank 1"):
            getattr(of_two(), operation)({"a": (torch.ones(1), other)})
        with pytest.raises(TypeError, match=f"an object of type {name} on rank 1"):
            getattr(of_two(), operation)(other)


class Sharded(torch.Tensor):
    """Looks like a tensor that is spread over a mesh."""

    def full_tensor(self) -> torch.Tensor:
        raise AssertionError("not to be called")


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (torch.eye(2).to_sparse(), "to_dense"),
        (torch.ones(1, device="meta"), "without data"),
        (torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged), "to_padded_tensor"),
        (torch.ones(1).as_subclass(Sharded), "full_tensor"),
    ],
)
def test_tensors_without_rows_of_elements_are_refused(tensor, reason):
    for operation in ("gather", "reduce", "broadcast"):
        with pytest.raises(TypeError, match=rf"`{operation}`.*\[0\] on rank 1.*{reason}"):
            getattr(of_two(), operation)([tensor])


def test_one_process_takes_tensors_of_any_layout():
    sparse = torch.eye(2).to_sparse()
    assert reduce([sparse])[0].is_sparse
    assert pad_across_processes([sparse], dim=1)[0] is sparse


def test_nested_tensors_are_not_padded():
    tensor = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged)
    with pytest.warns(CannotPadNestedTensorWarning, match="to_padded_tensor"):
        assert pad_across_processes([tensor])[0] is tensor


@pytest.mark.parametrize(
    ("dtype", "pad_index"),
    [(torch.int64, 0.5), (torch.int64, float("nan")), (torch.uint8, 256), (torch.float16, 1e6)],
)
def test_a_value_that_does_not_fit_is_refused_whether_or_not_this_rank_pads(dtype, pad_index):
    with pytest.raises(ValueError, match=r"pad_index=.*cannot hold"):
        of_two().pad_across_processes([torch.ones(1), torch.ones(1).to(dtype)], pad_index=pad_index)


@pytest.mark.parametrize("source", [-1, 2])
def test_a_process_that_does_not_exist(source):
    with pytest.raises(ValueError, match=f"from_process={source}.*0 to 1"):
        of_two().broadcast(torch.ones(1), source)
    with pytest.raises(ValueError, match=f"from_process={source}.*0 to 1"):
        of_two().broadcast_object_list([1], source)


def test_only_a_list_can_be_filled():
    with pytest.raises(TypeError, match="an object of type tuple on rank 1"):
        of_two().broadcast_object_list((1, 2))


def test_a_dtype_without_the_reduction_is_refused_before_anything_is_sent():
    with pytest.raises(RuntimeError, match="mean"):
        of_two().reduce([torch.ones(1), torch.arange(2)], "mean")
    with pytest.raises(TypeError, match="complex64"):
        of_two().reduce([torch.ones(1), torch.ones(1, dtype=torch.complex64)], "max")


@pytest.mark.parametrize("operation", ["gather", "reduce", "broadcast", "pad_across_processes"])
def test_without_tensors_nothing_is_sent(operation):
    assert getattr(of_two(), operation)({"a": [], "b": ()}) == {"a": [], "b": ()}
