"""Launches on several machines: two on loopback addresses always, two network namespaces where root."""

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

LAUNCH = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--cpu"]
TIMEOUT = 90.0  # seconds
FAST = "keep_alive_interval=1,keep_alive_max_attempt=3,timeout=40"

SUM = """
import datetime, os, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
rank, attempt = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"]
total = torch.ones(1)
dist.all_reduce(total)
print(f"{rank} of {dist.get_world_size()}: {total.item():.0f} in {attempt}\\n", end="", flush=True)
"""
LEAVE = "dist.barrier()\ndist.destroy_process_group()\n"
# Without torch: nothing but the launcher notices what happens.
WAIT = """
import os, pathlib, sys, time
pathlib.Path(sys.argv[1], os.environ["RANK"]).write_text(str(os.getpid()))
time.sleep(60)
"""


class Machines:
    """Two launches that take each other for the other machine."""

    def __init__(self, addresses: tuple[str, str], enter: Callable[[int], list[str]]) -> None:
        self.address = addresses[0]
        self.port = free_port()
        self._enter = enter
        self.started: list[subprocess.Popen[str]] = []

    def start(self, machine: int, *arguments: str, **options: object) -> "subprocess.Popen[str]":
        given = {
            "num_machines": 2,
            "machine_rank": machine,
            "main_process_ip": self.address,
            "main_process_port": self.port,
            "num_processes": 2,
            "rdzv_conf": FAST,
            **options,
        }
        flags = [
            word for name, value in given.items() if value is not None for word in (f"--{name}", str(value))
        ]
        process = subprocess.Popen(
            [*self._enter(machine), *LAUNCH, *flags, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"},
        )
        self.started.append(process)
        return process

    def run(self, *arguments: str, **options: object) -> list[tuple[int, str, str]]:
        """Run both and return exit status, standard output and standard error of each."""
        for machine in (0, 1):
            self.start(machine, *arguments, **options)
        return [ended(process) for process in self.started]

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=TIMEOUT)
    return process.returncode, output, errors


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def loopback() -> Iterator[Machines]:
    """Give two machines that are this one, so that nothing is needed for them."""
    machines = Machines(("127.0.0.1", "127.0.0.2"), lambda machine: [])
    yield machines
    machines.close()


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def namespaces() -> Iterator[tuple[Machines, str]]:
    """Give two machines with networks of their own, and the name of the link of the second one."""
    tag = uuid.uuid4().hex[:6]
    bridge, names, links = f"b{tag}", [f"a0{tag}", f"a1{tag}"], [f"l0{tag}", f"l1{tag}"]
    try:
        ip("link", "add", bridge, "type", "bridge")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces to be had here: {getattr(error, 'stderr', '') or error}")
    machines = Machines(("10.79.0.1", "10.79.0.2"), lambda machine: ["ip", "netns", "exec", names[machine]])
    try:
        ip("link", "set", bridge, "up")
        for number, (name, link) in enumerate(zip(names, links, strict=True), start=1):
            try:
                ip("netns", "add", name)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"no network namespaces to be had here: {error.stderr}")
            ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", link, "master", bridge, "up")
            ip("-n", name, "addr", "add", f"10.79.0.{number}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield machines, links[1]
    finally:
        machines.close()
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", bridge], check=False, capture_output=True)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    """Give a function that writes a script and returns its path."""

    def write_script(text: str) -> str:
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(text))
        return str(script)

    return write_script


def wait_for_ranks(folder: Path) -> list[int]:
    files = [folder / str(rank) for rank in (0, 1)]
    deadline = time.monotonic() + 40
    while not all(file.is_file() and file.read_text() for file in files):
        assert time.monotonic() < deadline, "the ranks do not come"
        time.sleep(0.05)
    return [int(file.read_text()) for file in files]


def test_two_machines_with_two_ranks_each_after_a_preflight(
    loopback: Machines, write: Callable[[str], str]
) -> None:
    results = loopback.run("--preflight", write(SUM + LEAVE), num_processes=4)
    for machine, (status, output, errors) in enumerate(results):
        assert status == 0, errors
        ranks = (2 * machine, 2 * machine + 1)
        assert sorted(output.splitlines()) == [f"{rank} of 4: 4 in 0" for rank in ranks]
        assert "preflight: 2 machines reach each other, have the same versions and exchange data" in errors


def test_c10d_needs_no_number(loopback: Machines, write: Callable[[str], str]) -> None:
    results = loopback.run(write(SUM + LEAVE), machine_rank=None, rdzv_backend="c10d")
    assert [status for status, _, _ in results] == [0, 0], results
    assert sorted(output for _, output, _ in results) == ["0 of 2: 2 in 0\n", "1 of 2: 2 in 0\n"]


def test_all_machines_start_again_when_a_rank_of_one_fails(
    loopback: Machines, write: Callable[[str], str]
) -> None:
    fails = "if rank == 1 and attempt == '0': os._exit(5)\n"
    zero, one = loopback.run("--max_restarts", "1", write(SUM + fails + LEAVE))
    assert (zero[0], one[0]) == (0, 0), zero[2] + one[2]
    assert zero[1].splitlines() == ["0 of 2: 2 in 0", "0 of 2: 2 in 1"]
    assert "starting all ranks again (1 of 1)" in zero[2]
    assert "rank 1 failed with exit code 5" in one[2]


def test_a_rank_that_is_killed_is_told_on_every_machine(
    loopback: Machines, write: Callable[[str], str]
) -> None:
    dies = "if rank == 1: os.kill(os.getpid(), 9)\n"
    zero, one = loopback.run(write(SUM + dies + LEAVE))
    assert (zero[0], one[0]) == (137, 137)
    assert f"rank 1 of 2 on machine 1 ({socket.gethostname()}) was ended by SIGKILL" in zero[2]
    assert "rank 1 of 2 was ended by SIGKILL" in one[2]
    assert "out of memory" in zero[2]


def test_an_exception_of_another_machine_is_the_last_word_here(
    loopback: Machines, write: Callable[[str], str]
) -> None:
    script = write(
        "import os\nif os.environ['RANK'] == '1': raise ValueError('boom')\nimport time; time.sleep(60)"
    )
    zero, one = loopback.run(script)
    assert (zero[0], one[0]) == (1, 1)
    for _, _, errors in (zero, one):
        assert errors.splitlines()[-1] == "ValueError: boom"
        assert errors.count("Traceback") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_one_machine_ends_all(
    number: signal.Signals, loopback: Machines, write: Callable[[str], str], tmp_path: Path
) -> None:
    script = write(WAIT)
    zero, one = (loopback.start(machine, script, str(tmp_path)) for machine in (0, 1))
    wait_for_ranks(tmp_path)
    begin = time.monotonic()
    one.send_signal(number)
    results = [ended(process) for process in (zero, one)]
    assert time.monotonic() - begin < 10
    assert [status for status, _, _ in results] == [128 + number, 128 + number]
    assert f"was told to end by {number.name}" in results[0][2]


def test_a_launch_that_is_killed_is_missed(
    loopback: Machines, write: Callable[[str], str], tmp_path: Path
) -> None:
    script = write(WAIT)
    zero, one = (loopback.start(machine, script, str(tmp_path)) for machine in (0, 1))
    wait_for_ranks(tmp_path)
    begin = time.monotonic()
    one.kill()
    status, _, errors = ended(zero)
    assert time.monotonic() - begin < 15
    assert status == 1
    assert re.search(r"machine 1 \(.*\) has not been heard of for 3 s \(rank 1\)", errors)


def test_machines_that_do_not_come_are_named(loopback: Machines, write: Callable[[str], str]) -> None:
    process = loopback.start(0, write(WAIT), num_machines=3, num_processes=3, rdzv_conf="timeout=2")
    status, _, errors = ended(process)
    assert status == 1
    assert "machines 1 and 2 of 3 have not come to 127.0.0.1:" in errors


def test_an_address_at_which_nobody_listens(loopback: Machines, write: Callable[[str], str]) -> None:
    process = loopback.start(1, write(WAIT), rdzv_conf="timeout=2")
    status, _, errors = ended(process)
    assert status == 1
    assert f"machine 0 cannot be reached at 127.0.0.1:{loopback.port}: Connection refused" in errors


def test_the_address_of_machine_0_must_lead_to_it(loopback: Machines, write: Callable[[str], str]) -> None:
    process = loopback.start(0, write(WAIT), main_process_ip="192.0.2.1")
    status, _, errors = ended(process)
    assert status == 1
    assert "--main_process_ip 192.0.2.1: this is machine 0, and the address does not lead here" in errors


def test_a_port_that_is_taken_on_machine_0_is_an_error(
    loopback: Machines, write: Callable[[str], str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("", loopback.port))
        taken.listen()
        status, _, errors = ended(loopback.start(0, write(WAIT)))
    assert status == 2
    assert f"--main_process_port {loopback.port} is in use on this machine" in errors


def test_two_machines_with_one_number(loopback: Machines, write: Callable[[str], str]) -> None:
    script = write(WAIT)
    options = {"num_machines": 3, "num_processes": 3, "rdzv_conf": "timeout=9"}
    for machine in (0, 1, 1):
        loopback.start(machine, script, **options)
    results = [ended(process) for process in loopback.started]
    assert [status for status, _, _ in results] == [1, 1, 1]
    assert (
        sum(") already: give every machine another --machine_rank" in errors for _, _, errors in results) == 1
    )


def test_machines_that_were_told_different_numbers(loopback: Machines, write: Callable[[str], str]) -> None:
    script = write(WAIT)
    zero = loopback.start(0, script)
    one = loopback.start(1, script, num_processes=4)
    for status, _, errors in map(ended, (zero, one)):
        assert status == 1
        assert "got --num_processes 2 and machine 1" in errors


def test_two_hosts_and_a_link_that_is_cut(
    namespaces: tuple[Machines, str], write: Callable[[str], str], tmp_path: Path
) -> None:
    machines, link = namespaces
    work = "open(os.path.join(sys.argv[1], str(rank)), 'w').write(str(os.getpid()))\n"
    script = write(SUM + work + "while True: dist.all_reduce(total); time.sleep(0.05)\n")
    zero, one = (machines.start(machine, script, str(tmp_path)) for machine in (0, 1))
    wait_for_ranks(tmp_path)
    begin = time.monotonic()
    ip("link", "set", link, "down")
    results = [ended(process) for process in (zero, one)]
    assert time.monotonic() - begin < 20
    for other, (status, output, errors) in zip((1, 0), results, strict=True):
        assert status == 1
        assert output == f"{1 - other} of 2: 2 in 0\n"
        assert re.search(rf"machine {other} \(.*\) has not been heard of for \d+ s \(rank {other}\)", errors)


@pytest.mark.parametrize("backend", ["static", "c10d"])
def test_two_hosts_meet(backend: str, namespaces: tuple[Machines, str], write: Callable[[str], str]) -> None:
    machines, _ = namespaces
    rank = {} if backend == "static" else {"machine_rank": None}
    results = machines.run("--preflight", write(SUM + LEAVE), rdzv_backend=backend, **rank)
    assert [status for status, _, _ in results] == [0, 0], results
    assert [output for _, output, _ in results] == ["0 of 2: 2 in 0\n", "1 of 2: 2 in 0\n"]
