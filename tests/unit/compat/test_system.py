import logging
import os
import platform
import socket
import stat
import subprocess
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import pytest

from accelerate.compat import env, system

Driver = Callable[..., None]


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Put an `nvidia-smi` into the path that answers with rows of the columns asked for."""

    def install(rows: list[dict[str, str]], exit_code: int = 0) -> None:
        cases = []
        for columns in (("name",), ("driver_version",), ("index", "uuid", "pci.bus_id")):
            lines = [", ".join(row[column] for column in columns) for row in rows if set(columns) <= set(row)]
            output = "\n".join(f'echo "{line}"' for line in lines)
            cases.append(f"*--query-gpu={','.join(columns)}\\ *)\n{output}\n;;")
        program = tmp_path / "nvidia-smi"
        program.write_text('#!/bin/sh\ncase "$0 $*" in\n' + "\n".join(cases) + f"\nesac\nexit {exit_code}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return install


def cards(name: str, count: int, version: str = "560.1") -> list[dict[str, str]]:
    return [
        {
            "name": name,
            "driver_version": version,
            "index": str(index),
            "uuid": f"GPU-{index}",
            "pci.bus_id": f"00000000:{index + 0x3A:02X}:00.0",
        }
        for index in range(count)
    ]


def test_a_free_port_is_free_and_then_taken() -> None:
    port = system.get_free_port()
    assert 0 < port < 65536
    assert not system.is_port_in_use(port)
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))
        server.listen()
        assert system.is_port_in_use(port)
    assert not system.is_port_in_use(port)


def test_a_port_that_a_closed_connection_lingers_on_is_free() -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = server.accept()
            accepted.close()
            client.recv(1)
    assert not system.is_port_in_use(port)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.5", "::1", "0.0.0.0"])
def test_listeners_on_any_address_are_found(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as server:
        try:
            server.bind((address, 0))
        except OSError:
            pytest.skip(f"this machine has no {address}")
        server.listen()
        assert system.is_port_in_use(server.getsockname()[1])


def test_the_default_port_is_where_ranks_meet() -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("127.0.0.1", 29500))
        except OSError:
            assert system.is_port_in_use()
            return
        server.listen()
        assert system.is_port_in_use()


def test_no_port_is_larger_than_65535() -> None:
    with pytest.raises(OverflowError):
        system.is_port_in_use(70000)


@pytest.mark.parametrize(
    ("name", "release", "warned"),
    [
        ("Linux", "4.4.0-generic", "4.4.0"),
        ("Linux", "5.4.99", "5.4.99"),
        ("Linux", "5.4", "5.4"),
        ("Linux", "5.5.0", None),
        ("Linux", "6.1.0-18-amd64", None),
        ("Linux", "10.0", None),
        ("Linux", "weird", None),
        ("Darwin", "4.0.0", None),
    ],
)
def test_old_kernels_are_warned_about(
    name: str,
    release: str,
    warned: str | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    uname = namedtuple("uname", "system release")
    monkeypatch.setattr(platform, "uname", lambda: uname(name, release))
    with caplog.at_level(logging.WARNING):
        system.check_os_kernel()
    assert [record.levelname for record in caplog.records] == (["WARNING"] if warned else [])
    assert f"kernel {warned} is older than 5.5.0" in caplog.text or not warned


def test_cores_are_those_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    count = system.physical_cores()
    assert 1 <= count <= len(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert system.physical_cores() == 1
    monkeypatch.delattr(os, "sched_getaffinity")
    assert system.physical_cores() == os.cpu_count()


def test_threads_of_one_core_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    siblings = {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*siblings})
    monkeypatch.setattr(Path, "exists", lambda self: True)
    monkeypatch.setattr(Path, "read_text", lambda self: siblings[int(self.parts[5].removeprefix("cpu"))])
    assert system.physical_cores() == 2


def test_libraries_that_are_loaded() -> None:
    assert system.are_libraries_initialized("os", "no_such_module", "pytest") == ["os", "pytest"]


def test_an_environment_file_holds_what_it_can(caplog: pytest.LogCaptureFixture) -> None:
    lines = system.convert_dict_to_env_variables(
        {
            "A": "1",
            "B": "a;b",
            "C": "x y",
            "D": "a\nb",
            "E": "a<b",
            "F": "",
            "G G": "1",
            "H": "a>b",
            "I": "a=b",
            "J": "a|b&c",
            "": "1",
        }
    )
    assert lines == ["A=1\n", "I=a=b\n", "J=a|b&c\n"]
    assert len(caplog.records) == 8
    assert "B='a;b' is left out" in caplog.text


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (0, 1, 0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, (3, 8, 1, 2)),
        ({"PMI_RANK": "3", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}, (3, 8, 1, 2)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, (2, 4, 0, 1)),
        ({"MV2_COMM_WORLD_LOCAL_RANK": "2", "MV2_COMM_WORLD_LOCAL_SIZE": "4"}, (0, 1, 2, 4)),
        ({"RANK": "1", "OMPI_COMM_WORLD_RANK": "2"}, (1, 1, 0, 1)),
        ({"RANK": "-1", "OMPI_COMM_WORLD_RANK": "2"}, (2, 1, 0, 1)),
    ],
)
def test_the_place_among_the_ranks(variables: dict[str, str], expected: tuple[int, ...]) -> None:
    with env.clear_environment():
        env.put(variables)
        place = system.get_cpu_distributed_information()
    assert (place.rank, place.world_size, place.local_rank, place.local_world_size) == expected


def test_without_a_driver_there_is_no_answer(driver: Driver) -> None:
    with pytest.raises(FileNotFoundError):
        system.get_gpu_info()
    with pytest.raises(FileNotFoundError):
        system.get_driver_version()
    assert system.check_cuda_p2p_ib_support() is True
    before = os.sched_getaffinity(0)
    system.override_numa_affinity(0)
    assert os.sched_getaffinity(0) == before


def test_a_driver_that_does_not_answer(driver: Driver) -> None:
    driver([], exit_code=9)
    with pytest.raises(subprocess.CalledProcessError):
        system.get_gpu_info()
    assert system.check_cuda_p2p_ib_support() is True


def test_cards_and_driver(driver: Driver) -> None:
    driver(cards("NVIDIA H200", 2, "550.54.15"))
    assert system.get_gpu_info() == (["NVIDIA H200", "NVIDIA H200"], 2)
    assert system.get_driver_version() == "550.54.15"


@pytest.mark.parametrize(
    ("name", "count", "version", "supported"),
    [
        ("NVIDIA GeForce RTX 4090", 2, "550.40", False),
        ("NVIDIA GeForce RTX 4090", 2, "535.104.05", False),
        ("NVIDIA GeForce RTX 4090", 2, "550.40.07", True),
        ("NVIDIA GeForce RTX 4060 Ti", 2, "535.1", False),
        ("NVIDIA GeForce RTX 4090", 1, "535.1", True),
        ("NVIDIA GeForce RTX 3090", 2, "535.1", True),
        ("NVIDIA H200", 8, "535.1", True),
    ],
)
def test_peer_to_peer(name: str, count: int, version: str, supported: bool, driver: Driver) -> None:
    driver(cards(name, count, version))
    assert system.check_cuda_p2p_ib_support() is supported


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Make the part of /sys that shows two cards on two nodes and one without a node."""
    for card, node in (("0000:3a:00.0", 0), ("0000:3b:00.0", 1), ("0000:3c:00.0", -1)):
        (tmp_path / "bus/pci/devices" / card).mkdir(parents=True)
        (tmp_path / "bus/pci/devices" / card / "numa_node").write_text(f"{node}\n")
    for node, cores in ((0, "0-3,8"), (1, "4-7")):
        (tmp_path / f"devices/system/node/node{node}").mkdir(parents=True)
        (tmp_path / f"devices/system/node/node{node}/cpulist").write_text(f"{cores}\n")
    return tmp_path


ADDRESSES = ["00000000:3A:00.0", "00000000:3B:00.0", "00000000:3C:00.0", "00000000:3D:00.0"]


@pytest.mark.parametrize(
    ("index", "cores"), [(0, {0, 1, 2, 3, 8}), (1, {4, 5, 6, 7}), (2, set()), (3, set()), (4, set())]
)
def test_cores_beside_a_card(index: int, cores: set[int], machine: Path) -> None:
    assert system.cores_beside_gpu(index, ADDRESSES, machine) == cores


@pytest.mark.parametrize(
    ("visible", "indices"),
    [(None, [0, 1, 2]), ("2,0", [2, 0]), ("GPU-1", [1]), ("", []), ("0, 2", [0, 2]), ("7", [])],
)
def test_cards_that_this_process_sees(
    visible: str | None, indices: list[int], driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(cards("NVIDIA H200", 3))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert system._gpu_addresses() == [ADDRESSES[index] for index in indices]


def test_binding_stays_within_what_is_open_to_the_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bound: list[set[int]] = []
    monkeypatch.setattr(system, "_gpu_addresses", lambda: ADDRESSES)
    monkeypatch.setattr(system, "cores_beside_gpu", lambda index, addresses: {2, 3, 4})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 4, 5})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: bound.append(cores))
    monkeypatch.delenv("ACCELERATE_DEBUG_MODE", raising=False)
    with caplog.at_level(logging.INFO):
        system.override_numa_affinity(0)
        assert not caplog.records
        system.override_numa_affinity(0, verbose=True)
        monkeypatch.setenv("ACCELERATE_DEBUG_MODE", "1")
        system.override_numa_affinity(0)
        system.override_numa_affinity(0, verbose=False)
    assert bound == [{3, 4}] * 4
    assert [record.getMessage() for record in caplog.records] == ["Process 0 is bound to cores [3, 4]"] * 2
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {9})
    system.override_numa_affinity(0)
    assert len(bound) == 4


def test_set_numa_affinity_binds_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, bool | None]] = []
    monkeypatch.setattr(system, "override_numa_affinity", lambda *args: calls.append(args))
    system.set_numa_affinity.cache_clear()
    for _ in range(3):
        system.set_numa_affinity(1)
    assert calls == [(1, None)]
    system.set_numa_affinity.cache_clear()
