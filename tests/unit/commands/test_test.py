import subprocess
from argparse import Namespace
from typing import Any

import pytest

from accelerate.commands import test as command
from accelerate.errors import ConfigurationError, LaunchError


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Namespace]:
    """Give what was launched, instead of launching it."""
    seen: list[Namespace] = []
    monkeypatch.setattr(command, "launch_command", seen.append)
    return seen


def test_the_options_are_those_of_launch(
    launched: list[Namespace], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--cpu", "--num-processes", "2"]) == 0
    (args,) = launched
    assert (args.cpu, args.num_processes, args.training_script_args) == (True, 2, [])
    assert args.nondefault == {"cpu", "num_processes"}
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"Running:  accelerate launch --cpu --num_processes 2 {args.training_script}"
    assert lines[-1] == "Test is a success! You are ready for your distributed training!"


def test_as_a_subcommand(launched: list[Namespace]) -> None:
    from accelerate.commands.utils import CustomArgumentParser

    parser = CustomArgumentParser()
    command.test_command_parser(parser.add_subparsers())
    args = parser.parse_args(["test", "--cpu"])
    args.func(args)
    assert launched[0].training_script.endswith("__main__.py")


def test_a_configuration_file_is_passed_on(
    launched: list[Namespace], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--config_file", "mine.yaml"]) == 0
    assert launched[0].config_file == "mine.yaml"
    assert "Running:  accelerate launch --config_file mine.yaml" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (ConfigurationError("--x"), 2, "accelerate test: error: --x"),
        (LaunchError("no port"), 1, "accelerate test: error: no port"),
        (subprocess.CalledProcessError(3, "x"), 3, "a check failed, see above (exit status 3)"),
    ],
)
def test_failures(
    error: Exception,
    status: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(args: Any) -> None:
        raise error

    monkeypatch.setattr(command, "launch_command", fail)
    assert command.main([]) == status
    shown = capsys.readouterr()
    assert told in shown.err
    assert "success" not in shown.out


def test_options_about_the_script_are_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    for argument in ("--module", "--no_python", "script.py"):
        with pytest.raises(SystemExit):
            command.main([argument])
        assert "unrecognized arguments" in capsys.readouterr().err
