import pytest

from accelerate.errors import EnvironmentVariableError
from accelerate.runtime.world import World, detect

TORCH = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "node0"}


def test_no_launcher_means_alone():
    assert detect({}) == World()
    assert not detect({}).launched


def test_torch_names():
    world = detect({**TORCH, "MASTER_PORT": "1234"})
    assert world == World(
        rank=3, size=4, local_rank=1, local_size=2, launched=True, address="node0", port=1234
    )
    assert (world.is_main, world.is_local_main, world.is_last) == (False, False, True)


@pytest.mark.parametrize(
    ("names", "launcher"),
    [
        (("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"), "Intel MPI"),
        (
            (
                "OMPI_COMM_WORLD_RANK",
                "OMPI_COMM_WORLD_SIZE",
                "OMPI_COMM_WORLD_LOCAL_RANK",
                "OMPI_COMM_WORLD_LOCAL_SIZE",
            ),
            "Open MPI",
        ),
        (
            (
                "MV2_COMM_WORLD_RANK",
                "MV2_COMM_WORLD_SIZE",
                "MV2_COMM_WORLD_LOCAL_RANK",
                "MV2_COMM_WORLD_LOCAL_SIZE",
            ),
            "MVAPICH",
        ),
    ],
)
def test_mpi_names(names, launcher):
    world = detect({**dict(zip(names, ("1", "2", "1", "2"), strict=True))})
    assert (world.rank, world.size, world.local_rank, world.local_size) == (1, 2, 1, 2)
    assert world.address == "127.0.0.1"
    with pytest.raises(EnvironmentVariableError, match=launcher):
        detect({names[0]: "1"})


def test_torch_names_are_believed_before_mpi_names():
    assert detect({**TORCH, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "9"}).size == 4


def test_local_rank_is_derived_on_one_machine():
    world = detect({"RANK": "1", "WORLD_SIZE": "2"})
    assert (world.local_rank, world.local_size, world.address) == (1, 2, "127.0.0.1")


def test_a_world_of_one_under_a_launcher_counts_as_launched():
    assert detect({"RANK": "0", "WORLD_SIZE": "1"}).launched
    assert detect({"LOCAL_RANK": "0"}).launched
    assert not detect({"LOCAL_RANK": "-1"}).launched
    assert not detect({"WORLD_SIZE": "1"}).launched


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"RANK": "0"}, ["RANK=0", "WORLD_SIZE is not", "accelerate launch"]),
        ({"WORLD_SIZE": "2"}, ["WORLD_SIZE=2", "RANK is not"]),
        ({"LOCAL_RANK": "1"}, ["LOCAL_RANK=1", "RANK and WORLD_SIZE"]),
        ({"RANK": "2", "WORLD_SIZE": "2"}, ["RANK=2", "WORLD_SIZE=2", "contradict"]),
        ({"RANK": "one", "WORLD_SIZE": "2"}, ["RANK='one'", "not an integer"]),
        ({"RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}, ["MASTER_ADDR", "several machines"]),
    ],
)
def test_half_set_variables_are_an_error_that_names_them(environ, words):
    with pytest.raises(EnvironmentVariableError) as caught:
        detect(environ)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_environment_round_trips():
    world = detect(TORCH)
    assert detect(world.environment()) == world


def test_adopt_takes_the_group_of_somebody_else():
    assert World().adopt(rank=1, size=2) == World(rank=1, size=2, local_rank=1, local_size=2, launched=True)
    world = detect(TORCH)
    assert world.adopt(rank=3, size=4) is world
