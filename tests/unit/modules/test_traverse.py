import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, distribute_tensor

from accelerate.modules.traverse import (
    get_model_tp_size,
    get_module_children_bottom_up,
    get_module_class_from_name,
    model_has_dtensor,
)


def model():
    block = nn.ModuleList([nn.Linear(1, 1), nn.Sequential(nn.ReLU())])
    return nn.Sequential(block, nn.Linear(1, 1))


def test_children_come_before_their_parents():
    start = model()
    named = get_module_children_bottom_up(start, return_fqns=True)
    assert [name for name, _ in named] == ["0.0", "0.1.0", "0.1", "0", "1", ""]
    assert all(part is start.get_submodule(name) for name, part in named)
    assert get_module_children_bottom_up(start) == [part for _, part in named]


def test_a_module_without_children_is_all_there_is():
    leaf = nn.Linear(1, 1)
    assert get_module_children_bottom_up(leaf) == [leaf]
    assert get_module_children_bottom_up(leaf, True) == [("", leaf)]


def test_a_module_in_two_places_is_listed_once():
    shared = nn.Linear(1, 1)
    deep = nn.Sequential(nn.Sequential(shared), nn.ReLU(), shared)
    assert [name for name, _ in get_module_children_bottom_up(deep, True)] == ["0.0", "0", "1", ""]


@pytest.mark.parametrize(
    ("name", "found"),
    [("Linear", nn.Linear), ("Sequential", nn.Sequential), ("linear", None), ("GELU", None)],
)
def test_classes_by_name(name, found):
    assert get_module_class_from_name(model(), name) is found


def test_a_size_that_a_library_noted():
    start = model()
    assert get_model_tp_size(start) is None
    start.tp_size = 4
    assert get_model_tp_size(start) == 4


def test_parameters_on_a_mesh():
    assert not model_has_dtensor(model())


def on_a_mesh():
    torch.distributed.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (1,))
    start = model()
    start[1].weight = nn.Parameter(distribute_tensor(start[1].weight.detach(), mesh, [Replicate()]))
    buffered = nn.Linear(1, 1)
    buffered.register_buffer("table", distribute_tensor(torch.ones(1), mesh, [Replicate()]))
    return model_has_dtensor(start), model_has_dtensor(buffered)


def test_only_parameters_on_a_mesh_count(rank_pool):
    assert rank_pool.run(on_a_mesh, num_ranks=1) == [(True, False)]
