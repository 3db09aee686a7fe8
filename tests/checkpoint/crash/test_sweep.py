"""A run that is stopped anywhere in a save finds a whole checkpoint, not older than the last, and goes on.

It goes on exactly: what it comes to is compared with a run that never stopped.

Here a sample is taken; `make crash-sweep` goes through every call of the file layer, and kills at 200 random
times.
"""

import errno
import os
import random
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from accelerate.checkpoint import manifest
from tests.checkpoint.crash.scenario import EXPECTED, USERS_FILE
from tests.checkpoint.crash.server import Server

FULL = os.environ.get("CRASH_SWEEP") == "full"
KINDS = ["numbered", "named", "inside", "journal"]
NUM_RANDOM = 200 if FULL else 8
FIRST, SECOND, END = 2, 4, 6  # steps at which the run saves, and to which it goes on


@pytest.fixture
def folder(tmp_path):
    """Give a folder in memory where there is one: who kills a process loses nothing that the kernel has."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.close()


class Sweep:
    """A run that has saved once, to be stopped in its second save."""

    def __init__(self, server, folder, kind, num_ranks):
        self.server, self.folder, self.kind, self.num_ranks = server, folder, kind, num_ranks
        self.start = folder / "start"
        self.start.mkdir()
        self.never_stopped = self.run("save_at", str(folder / "other"), [FIRST, SECOND, END], new=True)
        self.run("save_at", str(self.start), [FIRST])
        if kind != "numbered":
            (self.start / "checkpoint" / USERS_FILE).write_text("mine")
        shutil.copytree(self.start, folder / "counted")
        self.calls = [rank["calls"] for rank in self.run("save_at", str(folder / "counted"), [SECOND])]

    def run(self, function, folder, *args, new=False, **job):
        if new:
            os.mkdir(folder)
        return self.server.run(function, folder, self.kind, *args, num_ranks=self.num_ranks, **job)

    def stop(self, **job):
        """Copy the start, stop the second save, and return the folder with what the ranks reported."""
        folder = self.folder / "stopped"
        shutil.copytree(self.start, folder)
        return folder, self.run("save_at", str(folder), [SECOND], **job)

    def check(self, folder, outcomes):
        """Check that the run goes on from a checkpoint that is whole, exactly, and that it can save again."""
        committed = [
            report["committed"] for rank in outcomes for report in rank["reports"] if "committed" in report
        ]
        resumed = self.run("resume_and_save", str(folder), END)
        for rank, expected in zip(resumed, self.never_stopped, strict=True):
            assert rank["status"] == 0, rank["traceback"]
            assert rank["reports"] == [{"resumed": rank["reports"][0]["resumed"]}]
            assert max(committed, default=FIRST) <= rank["reports"][0]["resumed"] <= SECOND
            assert rank["value"] == expected["value"]
        self.check_tidy(folder)
        shutil.rmtree(folder)

    def check_tidy(self, folder):
        """Check that nothing is left but one checkpoint, and the user's file."""
        left = sorted(path.name for path in folder.iterdir())
        if self.kind == "numbered":
            assert left == ["checkpoints"]
            assert len(list((folder / "checkpoints").iterdir())) == 1
        else:
            assert left == ["checkpoint"]
            assert (folder / "checkpoint" / USERS_FILE).read_text() == "mine"
            assert not [path for path in (folder / "checkpoint").iterdir() if path.name.startswith(".")]


def places(sweep, rank, stride):
    """Return the calls at which a rank is stopped: all, or in the sample every so many."""
    return range(1, sweep.calls[rank] + 1, 1 if FULL else stride)


@pytest.mark.parametrize(("kind", "stride"), [("numbered", 1), ("named", 2), ("inside", 4), ("journal", 2)])
def test_killed_at_any_call(server, folder, kind, stride):
    sweep = Sweep(server, folder, kind, 1)
    assert sweep.calls[0] > 25
    for number in places(sweep, 0, stride):
        stopped, outcomes = sweep.stop(kill=(0, number))
        assert outcomes[0]["status"] == -9
        sweep.check(stopped, outcomes)


@pytest.mark.parametrize("kind", KINDS if FULL else ["numbered"])
def test_one_of_two_ranks_killed_at_any_call(server, folder, kind):
    sweep = Sweep(server, folder, kind, 2)
    for rank, stride in ((0, 16), (1, 3)):
        for number in places(sweep, rank, stride):
            stopped, outcomes = sweep.stop(kill=(rank, number))
            assert outcomes[rank]["status"] == -9
            survivor = outcomes[1 - rank]
            if survivor["status"] != 0:  # else it was killed after all had agreed
                assert "AbsentRankError" in survivor["raised"]
                assert survivor["seconds"] - outcomes[rank]["seconds"] < 5
            sweep.check(stopped, outcomes)


@pytest.mark.parametrize("name", ["ENOSPC", "EIO"])
@pytest.mark.parametrize("kind", KINDS if FULL else ["numbered"])
def test_a_failing_call_is_an_error_and_costs_no_checkpoint(server, folder, kind, name):
    sweep = Sweep(server, folder, kind, 1)
    for number in places(sweep, 0, 6):
        stopped, outcomes = sweep.stop(fail=(0, number), errno=getattr(errno, name), lasting=name == "ENOSPC")
        (report,) = outcomes[0]["reports"]
        if "committed" not in report:
            assert report["error"].startswith("CheckpointWriteError: Writing failed: [Errno ")
            assert os.strerror(getattr(errno, name)) in report["error"]
        sweep.check(stopped, outcomes)


@pytest.mark.parametrize("kind", KINDS if FULL else ["numbered"])
def test_a_rank_that_fails_is_named_on_all_within_seconds(server, folder, kind):
    sweep = Sweep(server, folder, kind, 2)
    for rank, stride in ((0, 17), (1, 3)):
        for number in places(sweep, rank, stride):
            stopped, outcomes = sweep.stop(fail=(rank, number), errno=errno.ENOSPC)
            for outcome in outcomes:
                if outcome["status"] != 0:
                    assert f"rank {rank} failed" in outcome["raised"]
                    assert (
                        "CheckpointWriteError: Writing failed: [Errno 28] No space left on device"
                        in outcome["raised"]
                    )
                assert outcome["seconds"] < 10
            assert len({outcome["status"] for outcome in outcomes}) == 1
            sweep.check(stopped, outcomes)


@pytest.mark.parametrize("num_ranks", [1, 2] if FULL else [1])
def test_killed_at_random_times(server, folder, num_ranks):
    sweep = Sweep(server, folder, "numbered", num_ranks)
    chance = random.Random(0 if FULL else None)
    took = max(rank["seconds"] for rank in sweep.stop()[1])
    shutil.rmtree(folder / "stopped")
    for _ in range(NUM_RANDOM // (2 if FULL else 1)):
        stopped, outcomes = sweep.stop(after=chance.uniform(0.2, 1.0) * took)
        sweep.check(stopped, outcomes)


@pytest.mark.parametrize("kind", ["named", "journal"])
def test_several_runs_that_use_one_folder_do_not_mix(server, folder, kind):
    seconds = 20 if FULL else 1.5
    outcomes = server.run("save_and_load_beside_others", str(folder), kind, seconds, num_ranks=3, apart=True)
    totals = Counter()
    for outcome in outcomes:
        assert outcome["status"] == 0, outcome["traceback"]
        totals.update(outcome["value"])
    assert set(totals) <= {"save", "resume", *EXPECTED}
    assert min(totals["save"], totals["resume"], totals[EXPECTED[0]]) > 0
    assert os.listdir(folder) == ["checkpoint"]
    checkpoint = folder / "checkpoint"
    assert list(manifest.problems(checkpoint, manifest.read(checkpoint).files)) == []


def test_a_disk_that_is_really_full(tmp_path):
    mounted = [
        "unshare",
        "-rm",
        "sh",
        "-c",
        'mount -t tmpfs -o size=300k none "$0" && exec "$@"',
        str(tmp_path),
    ]
    try:
        possible = (
            subprocess.run([*mounted, "true"], capture_output=True, timeout=30, check=False).returncode == 0
        )
    except FileNotFoundError:
        possible = False
    if not possible:
        pytest.skip("nothing can be mounted here")
    server = Server(*mounted)
    try:
        (outcome,) = server.run("fill_the_disk", str(tmp_path))
    finally:
        server.close()
    assert outcome["status"] == 0, outcome["traceback"]
    *committed, full, resumed, saved = outcome["reports"]
    assert len(committed) > 3
    assert "No space left on device: " in full["error"]
    assert re.search(r"What this rank writes takes \d+\.?\d* k?B, and \d+\.?\d* k?B were free", full["error"])
    assert resumed["resumed"] == committed[-1]["committed"] == full["full"] - 1
    assert saved["saved"] == ["checkpoints"]
    assert outcome["value"] == "True"
