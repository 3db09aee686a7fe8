"""Which ranks read the same batches: those that share a model. Called by prepare.py and dispatch.py. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from accelerate.errors import ConfigurationError
from accelerate.runtime.world import World

__all__ = ["DataShares"]

# Dims of a mesh along which ranks compute parts of one result, and so need the same samples.
_MODEL_DIMS = frozenset(["tp", "cp", "sp", "pp"])

# What the dispatcher's public attributes call the other dims.
_KINDS = {"tp": ("tp",), "dp": ("dp", "dp_replicate"), "fsdp": ("fsdp", "dp_shard")}


@dataclass(frozen=True, kw_only=True)
class DataShares:
    """How the batches of all are divided among the ranks.

    Attributes:
        count: number of shares.
        of_ranks: which share each rank of the run gets.
        mesh: the device mesh, if there is one.
    """

    count: int
    of_ranks: Sequence[int]
    mesh: Any = None

    @staticmethod
    def of(mesh: Any, world: World) -> "DataShares":
        """Return the shares of a run: one a rank, or as a mesh says.

        Args:
            mesh: a `torch.distributed.DeviceMesh` over all ranks, or None.
            world: the ranks.

        Raises:
            ConfigurationError: the mesh leaves ranks out.
        """
        if mesh is None:
            return DataShares(count=world.size, of_ranks=range(world.size))
        ranks: torch.Tensor = mesh.mesh
        if ranks.numel() != world.size:
            raise ConfigurationError(
                f"torch_device_mesh holds {ranks.numel()} of {world.size} ranks: which samples the others "
                "read is open. Pass a mesh over all ranks, or None."
            )
        names = mesh.mesh_dim_names or ("dp",) * ranks.ndim
        indices = torch.zeros_like(ranks)
        count = 1
        for dim, name in enumerate(names):
            if name in _MODEL_DIMS:
                continue
            size = ranks.shape[dim]
            along = torch.arange(size).view([-1 if each == dim else 1 for each in range(ranks.ndim)])
            indices = indices * size + along
            count *= size
        of_ranks = dict(zip(ranks.flatten().tolist(), indices.flatten().tolist(), strict=True))
        return DataShares(count=count, of_ranks=[of_ranks[rank] for rank in range(world.size)], mesh=mesh)

    def submesh(self, kind: str) -> Any:
        """Return the dims of one kind ("tp", "dp" or "fsdp") of the mesh, None where it has none."""
        names = () if self.mesh is None else self.mesh.mesh_dim_names or ()
        found = tuple(name for name in names if name in _KINDS[kind])
        return self.mesh[found if len(found) > 1 else found[0]] if found else None
