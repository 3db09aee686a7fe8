import multiprocessing
import os
from pathlib import Path

import pytest

from accelerate.launching.forked import PrepareForLaunch

NAMES = ("LOCAL_RANK", "RANK", "FORK_LAUNCHED")


def seen(distributed_type: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NPROC", "2")
    monkeypatch.setenv("NODE_RANK", "1")
    found: dict[str, str] = {}

    def look(*arguments: object) -> None:
        assert arguments == ("a", 1)
        found.update({name: os.environ[name] for name in NAMES if name in os.environ})

    PrepareForLaunch(look, distributed_type)(1, "a", 1)
    for name in NAMES:
        os.environ.pop(name, None)
    return found


@pytest.mark.parametrize("kind", ["MULTI_CPU", "MULTI_GPU", "MULTI_XPU"])
def test_a_rank_over_all_machines(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(kind, monkeypatch) == {"LOCAL_RANK": "1", "RANK": "3", "FORK_LAUNCHED": "1"}


@pytest.mark.parametrize("kind", ["NO", "XLA", "FSDP"])
def test_others_find_their_rank_by_themselves(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(kind, monkeypatch) == {"FORK_LAUNCHED": "1"}


def meet(folder: str, rank: int) -> None:
    os.environ.update(WORLD_SIZE="2", ACCELERATE_DEBUG_RDV_FILE=f"{folder}/meet")

    def note() -> None:
        import torch
        import torch.distributed as dist

        total = torch.tensor(dist.get_rank() + 1)
        dist.all_reduce(total)
        Path(folder, str(dist.get_rank())).write_text(f"{dist.get_backend()} {total.item()}")
        dist.destroy_process_group()

    PrepareForLaunch(note, debug=True)(rank)


def test_debugging_meets_over_a_file(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=meet, args=(str(tmp_path), rank)) for rank in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(60)
    assert [process.exitcode for process in ranks] == [0, 0]
    assert [(tmp_path / str(rank)).read_text() for rank in range(2)] == ["gloo 3", "gloo 3"]
