import pytest

from accelerate.accelerator import Accelerator
from accelerate.errors import NotInitializedError
from accelerate.state import AcceleratorState, GradientState
from accelerate.training.placement import rank_along


@pytest.fixture(autouse=True)
def fresh():
    yield
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


class Mesh:
    mesh_dim_names = ("dp_replicate", "tp")

    def get_local_rank(self, axis):
        return {"dp_replicate": 1, "tp": 3}[axis]


def test_the_mesh_knows():
    assert (rank_along(Mesh(), "tp", "Tensor parallelism"), rank_along(Mesh(), "dp_replicate", "")) == (3, 1)


@pytest.mark.parametrize("mesh", [None, Mesh()])
def test_an_absent_axis_is_an_error_that_says_what_there_is(mesh):
    with pytest.raises(NotInitializedError, match=r"Sharded.* 'dp_shard'.*accelerator\.process_index"):
        rank_along(mesh, "dp_shard", "Sharded data parallelism")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("tensor_parallel_rank", RuntimeError),
        ("data_parallel_rank", RuntimeError),
        ("data_parallel_shard_rank", RuntimeError),
        ("pipeline_parallel_rank", NotImplementedError),
        ("context_parallel_rank", NotImplementedError),
    ],
)
def test_without_a_mesh_there_are_replicas_only(name, kind):
    accelerator = Accelerator(cpu=True)
    assert accelerator.torch_device_mesh is accelerator.parallelism_config is None
    with pytest.raises(kind, match=r"accelerator\.process_index") as failure:
        getattr(accelerator, name)
    assert isinstance(failure.value, NotInitializedError)
