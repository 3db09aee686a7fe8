import pytest
import torch

from accelerate.accelerator import Accelerator
from accelerate.test_utils.scripts.report import Skipped, expect, expect_close, run, tell_where


def skips(accelerator: Accelerator) -> None:
    raise Skipped("no reason")


def fails(accelerator: Accelerator) -> None:
    expect(2, 3, "the number")


def test_a_line_a_check(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AssertionError, match="the number is 2, but must be 3"):
        run("title", {"one": lambda accelerator: None, "two": skips, "three": fails, "four": skips})
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" (")[0] for line in lines] == [
        "title: one ... ok",
        "title: two ... skipped: no reason",
        "title: three ... FAILED on rank 0 of 1: AssertionError: the number is 2, but must be 3",
    ]


def test_checks_do_not_see_each_other() -> None:
    def accumulates(accelerator: Accelerator) -> None:
        accelerator.gradient_accumulation_steps = 5
        accelerator.prepare(torch.nn.Linear(1, 1))

    def sees_nothing(accelerator: Accelerator) -> None:
        assert accelerator.gradient_accumulation_steps == 1
        assert accelerator._models == []

    run("title", {"one": accumulates, "two": sees_nothing})


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (1, 2),
        ([1], [1, 2]),
        (torch.ones(2), torch.zeros(2)),
        (torch.ones(2), torch.ones(3)),
        (torch.ones(2), torch.ones(2, dtype=torch.int64)),
        (None, torch.ones(2)),
    ],
)
def test_what_differs_fails(found: object, wanted: object) -> None:
    with pytest.raises(AssertionError, match="must be"):
        expect(found, wanted)
    expect(wanted, wanted)


def test_what_is_close_passes() -> None:
    expect_close(torch.ones(2), torch.ones(2) + 1e-6, "x")
    with pytest.raises(AssertionError, match=r"x is \[1.0\], but must be \[2.0\]"):
        expect_close(torch.ones(1), torch.ones(1) + 1, "x")


def test_the_place_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    tell_where()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"torch {torch.__version__}, 1 process(es)")
