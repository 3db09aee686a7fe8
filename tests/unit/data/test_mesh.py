"""Ranks that share a model read the same batches."""

from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader

from accelerate.data.mesh import DataShares
from accelerate.data.prepare import prepare_data_loader
from accelerate.errors import ConfigurationError
from accelerate.runtime.world import World


def world(size, rank=0):
    return World(rank=rank, size=size, local_rank=rank, local_size=size, launched=True)


class Mesh(SimpleNamespace):
    def __getitem__(self, names):
        return names


def mesh(*shape, names=None):
    ranks = torch.arange(torch.Size(shape).numel()).reshape(shape)
    return Mesh(mesh=ranks, mesh_dim_names=names)


@pytest.mark.parametrize(
    ("given", "size", "count", "of_ranks"),
    [
        (None, 3, 3, [0, 1, 2]),
        (mesh(4), 4, 4, [0, 1, 2, 3]),
        (mesh(2, 2, names=("dp", "tp")), 4, 2, [0, 0, 1, 1]),
        (mesh(2, 2, names=("tp", "dp")), 4, 2, [0, 1, 0, 1]),
        (mesh(2, 2, 2, names=("dp_replicate", "dp_shard", "cp")), 8, 4, [0, 0, 1, 1, 2, 2, 3, 3]),
        (mesh(2, 2, names=("sp", "tp")), 4, 1, [0, 0, 0, 0]),
    ],
)
def test_shares(given, size, count, of_ranks):
    shares = DataShares.of(given, world(size))
    assert (shares.count, list(shares.of_ranks)) == (count, of_ranks)


def test_a_mesh_over_some_of_the_ranks_is_refused():
    with pytest.raises(ConfigurationError, match="holds 2 of 4 ranks"):
        DataShares.of(mesh(2), world(4))


def test_submeshes():
    shares = DataShares.of(mesh(2, 2, 1, names=("dp_shard", "tp", "cp")), world(4))
    assert (shares.submesh("tp"), shares.submesh("fsdp"), shares.submesh("dp")) == ("tp", "dp_shard", None)
    assert DataShares.of(None, world(1)).submesh("tp") is None


def test_a_loader_of_one_rank_with_a_mesh():
    loader = prepare_data_loader(
        DataLoader(range(4), batch_size=2), num_processes=7, process_index=5, torch_device_mesh=mesh(1)
    )
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]
