import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from accelerate import Accelerator, debug_launcher
from accelerate.errors import ConfigurationError, LaunchError, RankTraceback
from accelerate.launchers import test_launch as check_launch


class OddError(Exception):
    """Cannot be made from its text alone, as pickle would."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


def test_ranks_meet_on_the_cpu(tmp_path: Path) -> None:
    def note(word: str) -> None:
        accelerator = Accelerator()
        total = accelerator.reduce(torch.tensor([accelerator.process_index + 1])).item()
        facts = accelerator.local_process_index, accelerator.num_processes, accelerator.mixed_precision
        (tmp_path / str(accelerator.process_index)).write_text(f"{word} {total} {facts} {accelerator.device}")
        accelerator.end_training()

    Accelerator(cpu=True, mixed_precision="bf16")  # the run of this process is not that of the others
    debug_launcher(note, ("word",), num_processes=3)
    texts = [file.read_text() for file in sorted(tmp_path.iterdir())]
    assert texts == [f"word 6 ({rank}, 3, 'no') cpu:0" for rank in range(3)]


def test_threads_of_this_process_are_no_trap() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.randn(1_000_000).exp().sum()

    def compute() -> None:
        torch.set_num_threads(2)
        torch.randn(1_000_000).exp().sum()

    debug_launcher(compute)
    torch.set_num_threads(threads)


def test_the_first_exception_is_raised() -> None:
    def fail() -> None:
        accelerator = Accelerator()
        if accelerator.process_index == 1:
            raise KeyError("boom")
        accelerator.reduce(torch.ones(1))

    with pytest.raises(KeyError, match="boom") as caught:
        debug_launcher(fail)
    assert isinstance(caught.value.__cause__, RankTraceback)
    text = str(caught.value.__cause__)
    assert text.startswith("rank 1 of 2:\nTraceback")
    assert "ranks.py" not in text


def fail_oddly() -> None:
    raise OddError("two", "words")


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (fail_oddly, "failed: .*OddError: two words"),
        (lambda: sys.exit(3), "failed: SystemExit: 3"),
        (interrupt, "failed: KeyboardInterrupt"),
        (lambda: os.kill(os.getpid(), 9), "was ended by SIGKILL"),
        (lambda: os._exit(5), "ended with exit code 5, without an exception"),
    ],
)
def test_other_ends(function: Callable[[], object], words: str) -> None:
    with pytest.raises(LaunchError, match=rf"rank [01] of 2 {words}"):
        debug_launcher(function)


def test_sys_exit_without_an_error_is_none() -> None:
    debug_launcher(lambda: sys.exit(0))


def test_the_check_of_a_launch() -> None:
    debug_launcher(check_launch, num_processes=1)


def test_no_process_at_all() -> None:
    with pytest.raises(ConfigurationError, match=r"num_processes=0\): give at least 1"):
        debug_launcher(print, num_processes=0)


def test_a_rank_forks_no_others() -> None:
    with pytest.raises(ConfigurationError, match="this process is a rank already"):
        debug_launcher(lambda: debug_launcher(print), num_processes=1)
