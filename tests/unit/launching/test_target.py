from pathlib import Path
from typing import Any

import pytest

from accelerate.errors import ConfigurationError
from accelerate.launching.target import check_target
from accelerate.options.launch import LaunchPlan


def check(script: str, path: str | None = None, **how: Any) -> None:
    check_target(LaunchPlan(training_script=script, training_script_args=(), **how), path)


def test_a_script_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    check(str(tmp_path / "train.py"))


def test_a_folder_with_a_main_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"a folder without a __main__\.py"):
        check(str(tmp_path))
    (tmp_path / "__main__.py").touch()
    check(str(tmp_path))


def test_a_missing_script_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    with pytest.raises(ConfigurationError, match=r"there is no script .*; did you mean .*train\.py\?"):
        check(str(tmp_path / "trian.py"))


def test_a_missing_script_in_a_missing_folder() -> None:
    with pytest.raises(ConfigurationError, match="there is no script /nowhere/at/all/2"):
        check("/nowhere/at/all/2")


def test_a_script_on_standard_input_is_for_one_process() -> None:
    check("-", num_processes=1, num_machines=1)
    with pytest.raises(ConfigurationError, match="can be read by one process only"):
        check("-", num_processes=2, num_machines=1)


def test_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check("json.tool", module=True)
    check("this", module=True)
    with pytest.raises(ConfigurationError, match="there is no module no_such_module"):
        check("no_such_module.train", module=True)
    (tmp_path / "my_own_training.py").touch()
    monkeypatch.chdir(tmp_path)
    check("my_own_training", module=True)


def test_programs(tmp_path: Path) -> None:
    program = tmp_path / "run.sh"
    program.write_text("#!/bin/sh\n")
    with pytest.raises(ConfigurationError, match="no such program"):
        check(str(program), no_python=True)
    program.chmod(0o755)
    check(str(program), no_python=True)
    with pytest.raises(ConfigurationError, match=r"is written \./run\.sh"):
        check("run.sh", path="/bin", no_python=True)
    check("run.sh", path=str(tmp_path), no_python=True)
