import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from accelerate.commands.config import config_args, default_config_file, load_config_from_file
from accelerate.commands.config.config_args import BaseConfig, ClusterConfig, SageMakerConfig
from accelerate.errors import ConfigurationError
from accelerate.options.enums import ComputeEnvironment, DistributedType, SageMakerDistributedType

CONFIGS = Path("tests/golden/configs")
BASE = {
    "compute_environment": ComputeEnvironment.LOCAL_MACHINE,
    "distributed_type": DistributedType.NO,
    "mixed_precision": "no",
    "use_cpu": True,
    "debug": False,
}


def load(folder: Path, text: str) -> ClusterConfig | SageMakerConfig:
    file = folder / "c.yaml"
    file.write_text(text)
    return load_config_from_file(str(file))


@pytest.mark.parametrize("file", sorted((CONFIGS / "trl").glob("*.yaml")), ids=lambda file: file.stem)
def test_what_trl_ships_loads(file: Path) -> None:
    config = load_config_from_file(str(file))
    assert isinstance(config, ClusterConfig)
    written = yaml.safe_load(file.read_text())
    assert config.to_dict().items() >= {k: v for k, v in written.items() if v not in (None, [])}.items()


def test_files_that_this_package_writes(tmp_path: Path) -> None:
    config = ClusterConfig(**BASE, num_processes=2, fsdp_config={"fsdp_version": 2})
    for name in ("c.json", "c.yaml"):
        path = str(tmp_path / name)
        config.save(path)
        assert load_config_from_file(path) == config
    config.to_json_file(str(tmp_path / "d.json"))
    config.to_yaml_file(str(tmp_path / "d.yaml"))
    assert ClusterConfig.from_json_file(str(tmp_path / "d.json")) == config
    assert ClusterConfig.from_yaml_file(str(tmp_path / "d.yaml")) == config
    text = (tmp_path / "d.json").read_text()
    assert text == json.dumps(config.to_dict(), indent=2, sort_keys=True) + "\n"


def test_to_dict_holds_values_and_nothing_empty() -> None:
    written = ClusterConfig(**BASE).to_dict()
    assert written["distributed_type"] == "NO"
    assert type(written["distributed_type"]) is str
    assert not {"fsdp_config", "gpu_ids", "dynamo_config"} & written.keys()
    assert written["use_cpu"] is True


def test_texts_become_members() -> None:
    config = ClusterConfig(**{**BASE, "distributed_type": "FSDP", "compute_environment": "LOCAL_MACHINE"})
    assert config.distributed_type is DistributedType.FSDP
    assert config.compute_environment is ComputeEnvironment.LOCAL_MACHINE
    assert (config.fsdp_config, config.dynamo_config, config.mpirun_config) == ({}, {}, {})


def test_sagemaker_by_its_compute_environment() -> None:
    config = load_config_from_file(str(CONFIGS / "sagemaker.yaml"))
    assert isinstance(config, SageMakerConfig)
    assert config.distributed_type is SageMakerDistributedType.DATA_PARALLEL
    assert (config.base_job_name, config.py_version) == ("accelerate-sagemaker-1", "py38")


def test_defaults_of_a_short_file(tmp_path: Path) -> None:
    config = load(tmp_path, "distributed_type: NO\n")
    assert isinstance(config, ClusterConfig)
    assert config.distributed_type is DistributedType.NO
    assert (config.num_processes, config.mixed_precision, config.use_cpu) == (1, None, False)
    config = load(tmp_path, "distributed_type: MULTI_GPU\n")
    assert isinstance(config, ClusterConfig)
    assert config.num_processes == -1


@pytest.mark.parametrize(
    ("text", "attribute", "value"),
    [
        ("fp16: true", "mixed_precision", "fp16"),
        ("fp16: false", "mixed_precision", None),
        ("mixed_precision: no", "mixed_precision", "no"),
        ("dynamo_backend: INDUCTOR", "dynamo_config", {"dynamo_backend": "INDUCTOR"}),
        ("dynamo_backend: 'NO'", "dynamo_config", {}),
        ("dynamo_backend: NO", "dynamo_config", {}),
        ("ipex_config: {ipex: true}", "num_machines", 1),
    ],
)
def test_legacy_keys(tmp_path: Path, text: str, attribute: str, value: object) -> None:
    assert getattr(load(tmp_path, f"distributed_type: 'NO'\n{text}\n"), attribute) == value


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load_config_from_file(str(tmp_path / "missing.yaml"))
    with pytest.raises(ValueError, match="`distributed_type` must be specified"):
        load(tmp_path, "num_processes: 2\n")
    with pytest.raises(
        ConfigurationError, match=r"2 problems(.|\n)*did you mean num_processes(.|\n)*use true or"
    ):
        load(tmp_path, "distributed_type: 'NO'\nnum_proceses: 2\nuse_cpu: perhaps\n")


def test_the_default_file_is_where_the_environment_said_at_import(tmp_path: Path) -> None:
    assert default_config_file == config_args.default_yaml_config_file == config_args.default_json_config_file
    assert os.path.dirname(default_config_file) == config_args.cache_dir
    code = (
        "from accelerate.commands.config.config_args import *\n"
        "print(hf_cache_home, cache_dir, default_config_file, load_config_from_file(None).num_processes)"
    )
    folder = tmp_path / "accelerate"
    folder.mkdir()
    (folder / "default_config.yaml").write_text("distributed_type: MULTI_CPU\nnum_processes: 3\n")
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HF_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.split() == [str(tmp_path), str(folder), str(folder / "default_config.yaml"), "3"]


def test_the_base_is_the_common_part() -> None:
    assert set(BASE) == set(BaseConfig.__dataclass_fields__)
