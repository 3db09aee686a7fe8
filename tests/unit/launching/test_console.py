import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from accelerate.launching.console import STDERR, STDOUT, Console, same_target

TRACEBACK = "Traceback (most recent call last):\nValueError: no\n"


@pytest.fixture
def console(capfd: pytest.CaptureFixture[str]) -> Iterator[Console]:
    made = Console()
    yield made
    made.close()


def wait_for(found: "object", timeout: float = 5.0) -> None:
    deadline = time.monotonic() + timeout
    while not found():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def write(path: str, text: str) -> None:
    with open(path, "w") as stream:
        stream.write(text)


def test_output_reaches_the_sink_while_the_rank_runs(
    console: Console, capfd: pytest.CaptureFixture[str]
) -> None:
    path = console.add(0, STDERR)
    write(path, "hello\n")
    seen = []

    def found() -> bool:
        seen.append(capfd.readouterr().err)
        return "".join(seen) == "hello\n"

    wait_for(found)
    assert console.tails(0) == ["hello\n"]


def test_a_traceback_waits_and_is_left_to_the_report(
    console: Console, capfd: pytest.CaptureFixture[str]
) -> None:
    for rank in (0, 1):
        write(console.add(rank, STDERR), f"rank {rank}\n{TRACEBACK}")
    console.drain()
    assert console.trouble_at(0) is not None
    console.finish(untold=frozenset({1}))
    shown = capfd.readouterr().err
    assert shown.count("Traceback") == 1
    assert "rank 1\n" in shown


def test_everything_goes_into_the_log(console: Console, tmp_path: Path) -> None:
    log = tmp_path / "stderr.log"
    write(console.add(0, STDERR, prefix="[x0]:", log=str(log)), "a\rb\n")
    console.drain()
    console.finish(untold=frozenset())
    assert log.read_bytes() == b"a\rb\n"


def test_a_log_that_takes_no_more_is_given_up_and_the_output_goes_on(
    console: Console, capfd: pytest.CaptureFixture[str]
) -> None:
    path = console.add(0, STDERR, log="/dev/full")
    write(path, "one\n")
    console.drain()
    write(path, "two\n")
    console.drain()
    shown = capfd.readouterr().err
    assert shown.splitlines() == [
        "accelerate launch: /dev/full cannot be written any further: No space left on device",
        "one",
        "two",
    ]


def test_the_launchers_own_words_start_a_line(console: Console, capfd: pytest.CaptureFixture[str]) -> None:
    write(console.add(0, STDERR), "\r 10%")
    console.drain()
    console.finish(untold=frozenset())
    console.say("bye\n")
    assert capfd.readouterr().err == "\r 10%\nbye\n"


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the kernel does not tell when a process ends")
def test_the_end_of_a_process_is_noted(console: Console) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        console.watch(0, process.pid)
        wait_for(lambda: console.exited_at(0) is not None)
    assert console.exited_at(1) is None


def test_a_rank_learns_that_nobody_reads() -> None:
    reader, writer = os.pipe()
    console = Console()
    try:
        path = console.add(0, writer)
        os.close(reader)
        write(path, "lost\n")
        console.drain()
        with pytest.raises(BrokenPipeError):
            os.write(int(path.rsplit("/", 1)[1]), b"lost too\n")
    finally:
        console.close()
        os.close(writer)


def test_same_target() -> None:
    reader, writer = os.pipe()
    twin = os.dup(writer)
    try:
        assert same_target(writer, twin)
        assert not same_target(writer, STDOUT)
        assert not same_target(writer, 10_000)
    finally:
        for descriptor in (reader, writer, twin):
            os.close(descriptor)
