import io

import pytest

from accelerate.commands.config.interview import LineInterview, interview, whole_number
from accelerate.commands.menu import BulletMenu
from accelerate.errors import ConfigurationError


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> "type[Ask]":
    Ask.patch = monkeypatch
    return Ask


class Ask(LineInterview):
    """An interview that is answered by lines."""

    patch: pytest.MonkeyPatch

    def __init__(self, *lines: str) -> None:
        self.patch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def test_choices_by_number_by_name_and_by_default(ask: type[Ask]) -> None:
    assert ask("2").choose("Which?", ["red", "blue"], "red") == "blue"
    assert ask("BLUE").choose("Which?", ["red", "blue"], "red") == "blue"
    assert ask("").choose("Which?", ["red", "blue"], "red") == "red"


def test_a_wrong_answer_is_asked_again(ask: type[Ask], capsys: pytest.CaptureFixture[str]) -> None:
    assert ask("3", "green", "1").choose("Which?", ["red", "blue"], "red") == "red"
    assert capsys.readouterr().out.count("use a number from 1 to 2") == 2
    assert ask("perhaps", "y").confirm("Really?") is True
    assert ask("x", "0", "3").text("How many?", "", whole_number(1)) == 3


def test_yes_and_no(ask: type[Ask]) -> None:
    assert ask("").confirm("Really?") is False
    assert ask("").confirm("Really?", default=True) is True
    assert ask("No").confirm("Really?", default=True) is False


@pytest.mark.parametrize(
    ("name", "line", "value"),
    [
        ("debug", "yes", True),
        ("fsdp_offload_params", "", False),
        ("fsdp_cpu_ram_efficient_loading", "", True),
        ("mixed_precision", "bf16", "bf16"),
        ("zero_stage", "4", 3),
        ("fsdp_version", "2", "2"),
        ("fsdp_sharding_strategy", "2", "SHARD_GRAD_OP"),
        ("fsdp_min_num_params", "", 100_000_000),
        ("gradient_clipping", "0.5", 0.5),
        ("main_process_ip", "", None),
        ("main_process_port", "12", 12),
    ],
)
def test_an_option_asks_in_the_form_of_its_type(ask: type[Ask], name: str, line: str, value: object) -> None:
    assert ask(line).option(name) == value


def test_the_end_of_the_lines_is_an_error(ask: type[Ask]) -> None:
    with pytest.raises(ConfigurationError, match="standard input has ended"):
        ask().confirm("Really?")


def test_without_a_terminal_lines_are_read(ask: type[Ask]) -> None:
    ask()
    assert type(interview()) is LineInterview


def test_bullet_menu(ask: type[Ask]) -> None:
    menu = BulletMenu("Which?", ["red", "blue", "green"])
    ask("3")
    assert menu.run() == 2
    assert menu.position == 2
    ask("")
    assert menu.run(default_choice=1) == 1
