from pathlib import Path

import pytest
import yaml

from accelerate.commands.config.config import main


def test_old_keys_are_written_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("distributed_type: MULTI_GPU\nnum_processes: 2\nfp16: true\nuse_xpu: false\n")
    assert main(["update", "--config_file", str(file)]) == 0
    assert capsys.readouterr().out == f"Successfully updated the configuration file at {file}.\n"
    content = yaml.safe_load(file.read_text())
    assert (content["mixed_precision"], content["num_processes"], content["num_machines"]) == ("fp16", 2, 1)
    assert not {"fp16", "use_xpu"} & content.keys()


def test_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["update", "--config_file", str(tmp_path / "no.yaml")]) == 1
    assert "does not exist: write one with `accelerate config`" in capsys.readouterr().err


def test_a_file_with_mistakes_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("distributed_type: 'NO'\nnum_proceses: 1\n")
    assert main(["update", "--config_file", str(file)]) == 1
    assert "did you mean num_processes?" in capsys.readouterr().err
    assert file.read_text() == "distributed_type: 'NO'\nnum_proceses: 1\n"
