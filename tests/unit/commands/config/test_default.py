import json
from pathlib import Path

import pytest

from accelerate.commands.config import get_config_parser, load_config_from_file
from accelerate.commands.config.config import main
from accelerate.commands.config.default import basic_config, write_basic_config
from accelerate.launching.machine import Machine
from accelerate.options.config_file import read


def machine(gpus: int) -> Machine:
    return Machine(installed_gpus=gpus, gpus=gpus, evidence="made up", cores=4)


@pytest.mark.parametrize(
    ("gpus", "kind", "processes", "cpu"),
    [(0, "NO", 1, True), (1, "NO", 1, False), (4, "MULTI_GPU", 4, False)],
)
def test_all_of_the_machine(gpus: int, kind: str, processes: int, cpu: bool) -> None:
    written = basic_config("bf16", machine(gpus)).to_dict()
    assert (written["distributed_type"], written["num_processes"]) == (kind, processes)
    assert (written["use_cpu"], written["mixed_precision"]) == (cpu, "bf16")


def test_what_is_written_has_every_key_of_the_interface(tmp_path: Path) -> None:
    path = write_basic_config("no", str(tmp_path / "new" / "c.yaml"))
    assert path == tmp_path / "new" / "c.yaml"
    assert json.loads(path.read_text()).keys() == {
        "compute_environment",
        "debug",
        "distributed_type",
        "downcast_bf16",
        "enable_cpu_affinity",
        "machine_rank",
        "main_training_function",
        "mixed_precision",
        "num_machines",
        "num_processes",
        "rdzv_backend",
        "same_network",
        "tpu_use_cluster",
        "tpu_use_sudo",
        "use_cpu",
    }
    assert load_config_from_file(str(path)).mixed_precision == "no"
    assert read(path).warnings == ()


def test_a_file_that_is_there_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("mine")
    assert write_basic_config(save_location=str(file)) is False
    assert file.read_text() == "mine"
    assert "will not override" in capsys.readouterr().out


def test_an_unknown_precision_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'fp64': use one of no, fp16, bf16, fp8"):
        write_basic_config("fp64", str(tmp_path / "c.yaml"))


def test_as_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "c.yaml"
    assert main(["default", "--config-file", str(file), "--mixed_precision", "fp16"]) == 0
    assert capsys.readouterr().out == f"accelerate configuration saved at {file}\n"
    assert json.loads(file.read_text())["mixed_precision"] == "fp16"


def test_the_parser_names_its_subcommands() -> None:
    text = get_config_parser().format_help()
    assert "default" in text
    assert "update" in text
