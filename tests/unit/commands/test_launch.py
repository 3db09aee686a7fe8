import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from accelerate.commands import launch
from accelerate.commands.launch import launch_command, launch_command_parser, main
from accelerate.commands.utils import CustomArgumentParser
from accelerate.errors import ConfigurationError
from accelerate.options.field import options
from accelerate.options.launch import LaunchPlan


def test_defaults_of_the_interface() -> None:
    args = launch_command_parser().parse_args(["train.py"])
    assert args.nondefault == {"training_script", "training_script_args"}
    assert (args.cpu, args.quiet, args.debug) == (False, None, None)
    assert (args.training_script, args.training_script_args) == ("train.py", [])


def test_everything_after_the_script_is_the_scripts() -> None:
    args = launch_command_parser().parse_args(
        ["--cpu", "train.py", "--cpu", "--num_processes", "x", "-q", "--"]
    )
    assert args.training_script_args == ["--cpu", "--num_processes", "x", "-q", "--"]
    assert args.nondefault == {"cpu", "training_script", "training_script_args"}


def test_no_abbreviations() -> None:
    with pytest.raises(SystemExit):
        launch_command_parser().parse_args(["--num_proc", "2", "train.py"])


def test_as_a_subcommand() -> None:
    parser = CustomArgumentParser("accelerate")
    launch_command_parser(parser.add_subparsers())
    args = parser.parse_args(["launch", "--num-processes", "2", "-m", "pkg.train", "--x"])
    assert args.func is launch_command
    assert (args.num_processes, args.module, args.training_script) == (2, True, "pkg.train")
    assert args.nondefault == {"num_processes", "module", "training_script", "training_script_args"}


def test_a_missing_script_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert_usage_error([], "error: the following arguments are required: training_script", capsys)


def assert_usage_error(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status: object = main(arguments)
    except SystemExit as ended:
        status = ended.code
    printed = capsys.readouterr()
    assert status == 2
    assert words in printed.err
    assert printed.out == ""
    assert "Traceback" not in printed.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cpuu", "t.py"], "did you mean --cpu?"),
        (["--num_proceses", "2", "t.py"], "did you mean --num_processes?"),
        (
            ["--num_processes", "two", "t.py"],
            "argument --num_processes/--num-processes: invalid int value: 'two'",
        ),
        (["--main_process_port", "http", "t.py"], "invalid int value: 'http'"),
        (["--main_process_port", "70000", "--cpu", "t.py"], "from 1 to 65535"),
        (["--mixed_precision", "fp64", "t.py"], "invalid choice: 'fp64'"),
        (["--cpu", "--multi_gpu", "t.py"], "--cpu and --multi_gpu exclude each other"),
        (["--cpu", "--num_processes", "0", "t.py"], "--num_processes 0"),
        (["-m", "--no_python", "t"], "exclude each other"),
        (["--cpu", "/nowhere/t.py"], "there is no script /nowhere/t.py"),
        (["--cpu", "--num_processes", "2", "/nowhere/t.py"], "there is no script /nowhere/t.py"),
    ],
)
def test_bad_input_is_one_readable_error(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_usage_error(arguments, words, capsys)


def test_from_python_a_wrong_plan_is_an_exception() -> None:
    args = launch_command_parser().parse_args(["--cpu", "--multi_gpu", __file__])
    with pytest.raises(ConfigurationError, match="exclude each other"):
        launch_command(args)


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """A script that writes its arguments and environment into a file and ends with a status."""
    script = tmp_path / "report.py"
    script.write_text(
        "import json, os, sys\n"
        "json.dump([sys.argv[2:], dict(os.environ)], open(sys.argv[1], 'w'))\n"
        "sys.exit(int(sys.argv[2]))\n"
    )
    return script


def test_from_python_one_process(report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp16")
    facts = tmp_path / "facts.json"
    args = launch_command_parser().parse_args(
        ["--cpu", "--mixed_precision", "bf16", str(report), str(facts), "0", "--lr"]
    )
    assert launch_command(args) is None
    arguments, environ = json.loads(facts.read_text())
    assert arguments == ["0", "--lr"]
    assert environ["ACCELERATE_MIXED_PRECISION"] == "bf16"
    assert environ["ACCELERATE_USE_CPU"] == "True"


def test_from_python_values_set_by_hand_count(report: Path, tmp_path: Path) -> None:
    facts = tmp_path / "facts.json"
    args = argparse.Namespace(training_script=str(report), training_script_args=[str(facts), "0"])
    args.mixed_precision = "bf16"
    launch_command(args)
    assert json.loads(facts.read_text())[1]["ACCELERATE_MIXED_PRECISION"] == "bf16"


def test_from_python_a_failing_script_raises(report: Path, tmp_path: Path) -> None:
    arguments = ["--cpu", str(report), str(tmp_path / "facts.json"), "5"]
    with pytest.raises(subprocess.CalledProcessError) as caught:
        launch_command(launch_command_parser().parse_args(arguments))
    assert caught.value.returncode == 5
    with pytest.raises(SystemExit) as ended:
        launch_command(launch_command_parser().parse_args(["-q", *arguments]))
    assert ended.value.code == 5


def test_main_called_from_python_does_not_replace_this_process(report: Path, tmp_path: Path) -> None:
    assert main(["--cpu", str(report), str(tmp_path / "facts.json"), "3"]) == 3


def test_the_console_script_is_replaced_by_the_script(report: Path, tmp_path: Path) -> None:
    facts = tmp_path / "facts.json"
    report.write_text("import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); sys.exit(4)")
    command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--cpu", str(report)]
    process = subprocess.Popen([*command, str(facts)])
    assert process.wait(60) == 4
    assert int(facts.read_text()) == process.pid


def test_what_was_decided_for_the_user_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def told(**values: object) -> str:
        launch._tell_defaults(LaunchPlan(training_script="t", training_script_args=(), **values))
        return capsys.readouterr().err

    sources = {info.name: "flag" for info in options(LaunchPlan)}
    assert told(num_processes=4, sources=sources) == ""
    assert told(num_processes=1, sources=sources | {"num_processes": "detected"}) == ""
    by_gpu = sources | {"num_processes": "detected"}
    assert told(num_processes=4, sources=by_gpu) == (
        "accelerate launch: 4 processes, one per GPU (choose with --num_processes)\n"
    )
    assert told(num_processes=4, quiet=True, sources=by_gpu) == ""
    assert "on the CPU" in told(num_processes=4, sources=sources | {"cpu": "detected"})


def test_the_names_of_the_interface() -> None:
    assert [launch.clean_option(word) for word in ("--use-fsdp", "--multi_gpu", "-q", "x-y")] == [
        "use_fsdp",
        "multi_gpu",
        None,
        None,
    ]
    titles = {group.title for group in launch_command_parser()._action_groups}
    assert set(launch.options_to_group.values()) <= titles


def headings(monkeypatch: pytest.MonkeyPatch, *words: str) -> list[str]:
    monkeypatch.setattr(sys, "argv", ["accelerate", "launch", *words])
    lines = launch_command_parser().format_help().splitlines()
    return [line[:-1] for line in lines if line.endswith(":") and not line.startswith((" ", "usage"))]


def test_help_alone_shows_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = headings(monkeypatch, "--help")
    assert {"FSDP Arguments", "TPU", "Megatron-LM Arguments", "options"} <= set(shown)


def test_help_beside_a_flag_shows_what_belongs_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert headings(monkeypatch, "--use-fsdp", "--help") == [
        "positional arguments",
        "options",
        "Hardware Selection Arguments",
        "Resource Selection Arguments",
        "Training Paradigm Arguments",
        "FSDP Arguments",
    ]
    assert "DeepSpeed Arguments" not in headings(monkeypatch, "--cpu", "-h")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without configuration, and where one would be."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home/accelerate"
    folder.mkdir(parents=True)
    return folder / "default_config.yaml"


def test_explain_shows_and_starts_nothing(
    report: Path, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = tmp_path / "facts.json"
    config = tmp_path / "c.yaml"
    config.write_text("distributed_type: MULTI_CPU\nnum_processes: 2\nuse_cpu: true\nuse_xpu: false\n")
    arguments = [
        "--explain",
        "--config_file",
        str(config),
        "--mixed_precision",
        "bf16",
        str(report),
        str(facts),
    ]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert not facts.exists()
    rows = [line.replace("\u2502", " ").split() for line in printed.splitlines()]
    assert ["--num_processes", "2", "file"] in rows
    assert f"Configuration file: {config}\n" in printed
    assert ["--mixed_precision", "bf16", "flag"] in rows
    assert ["--tee", "0", "default"] in rows
    assert f"  {sys.executable} -u {report} {facts}\n" in printed
    assert "  ACCELERATE_USE_CPU=True\n" in printed
    assert "Warning: use_xpu in" in printed
    assert printed.endswith("Nothing was started.\n")


def test_explain_says_what_would_keep_it_from_starting(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--explain", "--cpu", "--tee", "9", "/nowhere/t.py"]) == 2
    printed = capsys.readouterr()
    assert "Command of each process" in printed.out
    assert "2 problems, nothing was started" in printed.err


def test_from_python_explain_returns(report: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    launch_command(launch_command_parser().parse_args(["--explain", "--cpu", str(report)]))
    assert "Nothing was started." in capsys.readouterr().out


def test_the_default_file_counts_but_for_those_who_ask_for_the_cpu(
    report: Path, home: Path, tmp_path: Path
) -> None:
    home.write_text("distributed_type: 'NO'\nnum_processes: 1\nmixed_precision: bf16\nuse_cpu: true\n")
    facts = tmp_path / "facts.json"
    assert main([str(report), str(facts), "0"]) == 0
    assert json.loads(facts.read_text())[1]["ACCELERATE_MIXED_PRECISION"] == "bf16"
    assert main(["--cpu", str(report), str(facts), "0"]) == 0
    assert json.loads(facts.read_text())[1]["ACCELERATE_MIXED_PRECISION"] == "no"


def test_files_that_are_wrong_or_missing(
    report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.yaml"
    assert_usage_error(["--config_file", str(file), str(report)], "does not exist", capsys)
    file.write_text("num_proceses: 2\nmixed_precision: fp64\n")
    assert_usage_error(["--config_file", str(file), str(report)], "did you mean num_processes?", capsys)
    assert_usage_error(["--config_file", str(file), str(report)], "2. mixed_precision: fp64", capsys)


@pytest.mark.parametrize("flag", ["--use_deepspeed", "--use_megatron_lm"])
def test_an_engine_that_is_not_there_yet_is_named(
    flag: str, report: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_usage_error(
        ["--num_processes", "1", flag, str(report)], "yet; train with data parallelism", capsys
    )


def test_launchers_of_the_interface(report: Path, home: Path, tmp_path: Path) -> None:
    facts = tmp_path / "facts.json"

    def parse(*arguments: str) -> argparse.Namespace:
        args: argparse.Namespace = launch_command_parser().parse_args(
            [*arguments, str(report), str(facts), "0"]
        )
        return args

    launch.simple_launcher(parse("--cpu"))
    assert "RANK" not in json.loads(facts.read_text())[1]
    code = (
        "from accelerate.commands.launch import *; multi_gpu_launcher(launch_command_parser().parse_args())"
    )
    subprocess.run(
        [sys.executable, "-c", code, "--cpu", str(report), str(facts), "0"], check=True, timeout=60
    )
    assert json.loads(facts.read_text())[1]["WORLD_SIZE"] == "1"
    with pytest.raises(ConfigurationError, match="has no DeepSpeed yet"):
        launch.deepspeed_launcher(parse("--use_deepspeed", "--cpu"))
    with pytest.raises(ConfigurationError, match="no pod is named"):
        launch.tpu_pod_launcher(parse("--tpu", "--num_processes", "8"))


def test_a_file_for_sagemaker_is_a_job(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "s.py"
    script.touch()
    config = Path("tests/golden/configs/sagemaker.yaml")
    assert main(["--explain", "--config_file", str(config), str(script), "--lr", "1"]) == 0
    printed = capsys.readouterr().out
    assert "Launcher: sagemaker" in printed
    assert "ACCELERATE_SAGEMAKER_DISTRIBUTED_TYPE=DATA_PARALLEL" in printed
    assert main(["--explain", "--config_file", str(config), str(script), "--switch"]) == 2
    assert "pairs of a name and a value" in capsys.readouterr().err
