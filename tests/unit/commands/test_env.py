import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import accelerate
from accelerate.commands.env import env_command, env_command_parser, main
from accelerate.options.config_file import default_config_file


def test_facts_are_printed_and_returned(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import numpy
    import torch

    monkeypatch.setenv("HF_HOME", str(tmp_path))
    facts = env_command(env_command_parser().parse_args([]))
    printed = capsys.readouterr().out
    assert facts["`Accelerate` version"] == accelerate.__version__
    assert facts["Python version"] == platform.python_version()
    assert facts["PyTorch version"] == torch.__version__
    assert facts["Numpy version"] == numpy.__version__
    assert facts["`Accelerate` default config"] == "\tNot found"
    assert f"- Platform: {platform.platform()}\n" in printed
    assert "- `Accelerate` default config:\n\tNot found\n" in printed


def test_a_configuration_is_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("num_processes: 2\n")
    assert main(["--config-file", str(file)]) == 0
    assert f"({file}):\n\tnum_processes: 2\n" in capsys.readouterr().out


def test_a_missing_configuration_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--config_file", str(tmp_path / "no.yaml")]) == 1
    assert "no.yaml does not exist" in capsys.readouterr().err


def test_json_for_programs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("num_processes: 2\n")
    assert main(["--json", "--config_file", str(file)]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["Python version"] == platform.python_version()
    assert facts[f"`Accelerate` config passed ({file})"] == {"num_processes": 2}
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    main(["--json"])
    assert json.loads(capsys.readouterr().out)["`Accelerate` default config"] is None


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HF_HOME": "/hf", "XDG_CACHE_HOME": "/cache"}, "/hf/accelerate"),
        ({"XDG_CACHE_HOME": "/cache"}, "/cache/huggingface/accelerate"),
        ({}, "~/.cache/huggingface/accelerate"),
    ],
)
def test_default_config_file(environ: dict[str, str], folder: str) -> None:
    assert default_config_file(environ) == Path(folder).expanduser() / "default_config.yaml"


def test_torch_is_not_imported() -> None:
    code = (
        "import sys; from accelerate.commands.env import main\n"
        "main([]); sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert ended.returncode == 0
