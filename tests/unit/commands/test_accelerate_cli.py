import subprocess
import sys

import pytest

from accelerate.commands import accelerate_cli


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_help_names_every_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["accelerate", "--help"])
    with pytest.raises(SystemExit) as caught:
        accelerate_cli.main()
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for name, (_, purpose) in accelerate_cli.COMMANDS.items():
        assert name in text
        assert purpose in text


def test_no_command_prints_help_and_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["accelerate"])
    assert accelerate_cli.main() == 1
    assert capsys.readouterr().out.startswith("usage: accelerate <command> [<args>]")


def test_an_unknown_command_is_a_usage_error() -> None:
    ended = run("lunch")
    assert ended.returncode == 2
    assert "invalid choice: 'lunch'" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "arguments", ["['--help']", "[]", "['lunch']", "['launch', '--help']", "['launch', '--cpuu', 'x.py']"]
)
def test_answers_that_need_no_work_load_nothing_heavy(arguments: str) -> None:
    code = (
        "import sys; from accelerate.commands.accelerate_cli import main\n"
        f"sys.argv = ['accelerate', *{arguments}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'yaml', 'rich', 'importlib.metadata', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_every_command_has_a_parser_and_a_main() -> None:
    import importlib

    named_otherwise = {"config": "get_config_parser", "tpu-config": "tpu_command_parser"}
    for name, (path, _) in accelerate_cli.COMMANDS.items():
        module = importlib.import_module(path)
        assert callable(module.main)
        assert callable(getattr(module, named_otherwise.get(name, f"{name}_command_parser")))
