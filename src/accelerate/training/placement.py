"""This rank's place along the axes of the device mesh. Called by the properties of the Accelerator."""

from typing import Any, NoReturn

from accelerate.errors import NotInitializedError

__all__ = ["UnsupportedAxisError", "rank_along", "refuse_axis"]


class UnsupportedAxisError(NotInitializedError, NotImplementedError):
    """An axis that this version does not have."""


def rank_along(mesh: Any, axis: str, kind: str) -> int:
    """Return this rank's place along an axis.

    Args:
        mesh: the run's DeviceMesh, None without one.
        axis: name of the axis in the mesh, such as "tp".
        kind: what the axis is for, for the message.

    Raises:
        NotInitializedError: there is no such axis (a RuntimeError).
    """
    if mesh is None or axis not in (mesh.mesh_dim_names or ()):
        raise NotInitializedError(
            f"{kind} is not configured: this run has no mesh with an axis {axis!r}. Without one every "
            "process has a replica of the model: `accelerator.process_index` of `accelerator.num_processes`."
        )
    rank: int = mesh.get_local_rank(axis)
    return rank


def refuse_axis(kind: str) -> NoReturn:
    """Raise for an axis that this version does not have.

    Raises:
        UnsupportedAxisError: always (a NotImplementedError).
    """
    raise UnsupportedAxisError(
        f"{kind} is not available in this version. Its processes train replicas of the model: ask for "
        "`accelerator.process_index`."
    )
