"""Which rank this process is, among how many: a value, read from the launcher's variables.

Called by the start of the current run. `detect` is pure: it takes the environment as a mapping.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from accelerate.errors import EnvironmentVariableError

__all__ = ["DEFAULT_PORT", "World", "detect"]

DEFAULT_PORT = 29500

# One row a launcher, in the order in which they are believed: (name, rank, size, local rank, local size).
_LAUNCHERS = (
    ("torch", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("Intel MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    (
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    (
        "MVAPICH",
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        "MV2_COMM_WORLD_LOCAL_RANK",
        "MV2_COMM_WORLD_LOCAL_SIZE",
    ),
)


@dataclass(frozen=True, kw_only=True)
class World:
    """The ranks of one run and this process's place among them.

    Attributes:
        rank: this process, 0 <= rank < size.
        size: number of processes over all machines.
        local_rank: this process among those of its machine.
        local_size: number of processes on this machine.
        launched: whether a launcher's variables were found, also for a world of one.
        address: host name or address of rank 0.
        port: TCP port on which rank 0 hosts the store.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    launched: bool = False
    address: str | None = None
    port: int = DEFAULT_PORT

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0 of the whole run."""
        return self.rank == 0

    @property
    def is_local_main(self) -> bool:
        """Whether this is the first rank of its machine."""
        return self.local_rank == 0

    @property
    def is_last(self) -> bool:
        """Whether this is the highest rank."""
        return self.rank == self.size - 1

    def environment(self) -> dict[str, str]:
        """Return the variables from which torch.distributed makes this world (`init_method="env://"`)."""
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.size),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_size),
            "MASTER_ADDR": self.address or "127.0.0.1",
            "MASTER_PORT": str(self.port),
        }

    def adopt(self, *, rank: int, size: int) -> "World":
        """Return this world with the rank and size of a process group that somebody else made."""
        if (rank, size) == (self.rank, self.size):
            return self
        local_size = self.local_size if self.local_size > 1 else size
        return dataclasses.replace(
            self, rank=rank, size=size, local_rank=rank % local_size, local_size=local_size, launched=True
        )


def detect(environ: Mapping[str, str]) -> World:
    """Read the world from a launcher's variables; without any, this process is alone.

    torch's own names are believed first, then those of Intel MPI, Open MPI and MVAPICH. A missing local
    rank is derived as if all ranks were on one machine.

    Raises:
        EnvironmentVariableError: one of rank and world size is set without the other, a value is not an
            integer or out of range, or several machines are meant and nothing says where rank 0 is.

    Example:
        >>> detect({}).size
        1
        >>> detect({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}).rank
        1
    """
    for launcher, rank_name, size_name, local_rank_name, local_size_name in _LAUNCHERS:
        rank, size = _integer(environ, rank_name), _integer(environ, size_name)
        if rank is None and (size is None or size == 1):
            continue
        if rank is None or size is None:
            missing, found = (rank_name, size_name) if rank is None else (size_name, rank_name)
            raise EnvironmentVariableError(
                f"{found}={environ[found]} is set but {missing} is not: {launcher} sets both. Unset {found} "
                "to run one process, or start the script with `accelerate launch`, which sets all of them."
            )
        if not 0 <= rank < size:
            raise EnvironmentVariableError(
                f"{rank_name}={rank} and {size_name}={size} contradict each other: "
                f"0 <= {rank_name} < {size_name} must hold."
            )
        local_size = _integer(environ, local_size_name) or size
        local_rank = _integer(environ, local_rank_name)
        return World(
            rank=rank,
            size=size,
            local_rank=rank % local_size if local_rank is None else local_rank,
            local_size=local_size,
            launched=True,
            address=_address(environ, alone=local_size >= size),
            port=_integer(environ, "MASTER_PORT") or DEFAULT_PORT,
        )
    return _alone(environ)


def _alone(environ: Mapping[str, str]) -> World:
    local_rank = _integer(environ, "LOCAL_RANK")
    if local_rank:
        raise EnvironmentVariableError(
            f"LOCAL_RANK={local_rank} is set but RANK and WORLD_SIZE are not. Unset LOCAL_RANK to run one "
            "process, or start the script with `accelerate launch`, which sets all of them."
        )
    return World(launched=local_rank == 0)


def _address(environ: Mapping[str, str], *, alone: bool) -> str:
    address = environ.get("MASTER_ADDR")
    if address:
        return address
    if alone:
        return "127.0.0.1"
    raise EnvironmentVariableError(
        "This run spans several machines, but MASTER_ADDR is not set. Set MASTER_ADDR to an address of the "
        "machine of rank 0 that all others reach, and MASTER_PORT to a free port there."
    )


def _integer(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "").strip()
    if not text:
        return None
    try:
        value = int(text)
    except ValueError:
        raise EnvironmentVariableError(f"{name}={text!r} in the environment is not an integer.") from None
    return None if value < 0 else value  # -1 is a usual way to say "not set"
