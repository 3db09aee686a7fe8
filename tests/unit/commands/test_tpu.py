import subprocess
from pathlib import Path

import pytest

from accelerate.commands.tpu import main, pod_command, tpu_command_launcher, tpu_command_parser
from accelerate.errors import ConfigurationError
from accelerate.options.config_file import ConfigFile, parse

POD = ["--tpu_name", "pod", "--tpu_zone", "zone"]


@pytest.fixture(autouse=True)
def no_default_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))


def command(*arguments: str, file: ConfigFile | None = None) -> list[str]:
    return pod_command(tpu_command_parser().parse_args(arguments), file)


def test_commands_run_on_every_machine_of_the_pod() -> None:
    assert command(*POD, "--command", "echo", "hi", "--command", "ls") == [
        *("gcloud", "compute", "tpus", "tpu-vm", "ssh", "pod", "--zone", "zone"),
        *("--command", "cd /usr/share; echo hi; ls", "--worker", "all"),
    ]


def test_installing_and_alpha() -> None:
    made = command(*POD, "--use_alpha", "--install_accelerate", "--accelerate_version", "1.2")
    assert made[:3] == ["gcloud", "alpha", "compute"]
    assert "cd /usr/share; pip install accelerate==1.2" in made
    assert "cd /usr/share; pip install accelerate -U; ls" in command(
        *POD, "--install_accelerate", "--command", "ls"
    )


def test_the_file_gives_what_is_not_typed(tmp_path: Path) -> None:
    content = {"tpu_name": "a", "tpu_zone": "b", "commands": ["x", "y"]}
    made = command(file=parse(content, "c.yaml"))
    assert (made[5], made[7], made[9]) == ("a", "b", "cd /usr/share; x; y")
    assert "cd /usr/share; ls" in command("--command", "ls", file=parse(content, "c.yaml"))
    commands = tmp_path / "commands"
    commands.write_text("one\n\ntwo\n")
    made = command(file=parse({**content, "command_file": str(commands)}, "c.yaml"))
    assert "cd /usr/share; one; two" in made


def test_all_that_is_missing_is_listed() -> None:
    with pytest.raises(ConfigurationError) as caught:
        command("--command_file", "/nowhere", "--accelerate_version", "dev", "--install_accelerate")
    for words in ("--tpu_name", "--tpu_zone", "there is no such file", "--accelerate_version dev"):
        assert words in str(caught.value)
    with pytest.raises(ConfigurationError, match="pass a command"):
        command(*POD)


def test_debug_only_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*POD, "--command", "ls", "--debug"]) == 0
    assert capsys.readouterr().out.startswith("Running gcloud compute tpus tpu-vm ssh pod --zone zone")


def test_running(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ran: list[list[str]] = []

    def run(argv: list[str], check: bool) -> None:
        ran.append(argv)
        if len(ran) == 2:
            raise subprocess.CalledProcessError(3, argv)
        if len(ran) == 3:
            raise FileNotFoundError(argv[0])

    monkeypatch.setattr(subprocess, "run", run)
    tpu_command_launcher(tpu_command_parser().parse_args([*POD, "--command", "ls"]))
    assert ran[0][0] == "gcloud"
    assert "Successfully setup pod" in capsys.readouterr().out
    assert main([*POD, "--command", "ls"]) == 3
    assert main([*POD, "--command", "ls"]) == 1
    assert "gcloud is not installed here" in capsys.readouterr().err
