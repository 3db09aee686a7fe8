import argparse

import pytest

from accelerate.commands.utils import CustomArgumentParser, nearest_flag, typed_options
from accelerate.options.field import OptionInfo


def make_parser(**arguments: object) -> CustomArgumentParser:
    parser = CustomArgumentParser("prog", allow_abbrev=False, **arguments)
    parser.add_argument("--num_things", type=int, default=None, help="how many")
    group = parser.add_argument_group("Group")
    group.add_argument("-q", "--be_quiet", action="store_true")
    group.add_argument("--not_here", dest="here", action="store_const", const=False, default=True)
    return parser


@pytest.mark.parametrize("flag", ["--num_things", "--num-things"])
def test_dashes_are_underscores(flag: str) -> None:
    assert make_parser().parse_args([flag, "2"]).num_things == 2


def test_store_true_is_none_when_absent() -> None:
    assert make_parser().parse_args([]).be_quiet is None
    assert make_parser().parse_args(["-q"]).be_quiet is True
    assert make_parser().parse_args(["--be-quiet"]).be_quiet is True


def test_store_const() -> None:
    assert make_parser().parse_args([]).here is True
    assert make_parser().parse_args(["--not-here"]).here is False


def test_typed_names_are_remembered_only_where_asked_and_anew_each_time() -> None:
    assert not hasattr(make_parser().parse_args(["-q"]), "nondefault")
    parser = make_parser(remembers=True)
    assert parser.parse_args(["-q", "--num-things", "2"]).nondefault == {"be_quiet", "num_things"}
    assert parser.parse_args(["-q"]).nondefault == {"be_quiet"}


def test_help_shows_one_spelling() -> None:
    text = make_parser().format_help()
    assert "-q, --be_quiet" in text
    assert "--num_things NUM_THINGS" in text
    assert "--num-things" not in text


def test_subparsers_are_of_the_same_kind() -> None:
    parser = CustomArgumentParser("prog")
    sub = parser.add_subparsers().add_parser("sub", remembers=True)
    sub.add_argument("--some_thing")
    args = parser.parse_args(["sub", "--some-thing", "x"])
    assert (args.some_thing, args.nondefault) == ("x", {"some_thing"})


def test_an_unknown_flag_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        make_parser().parse_args(["--num_thigs=2"])
    assert caught.value.code == 2
    assert capsys.readouterr().err.endswith(
        "prog: error: unrecognized arguments: --num_thigs=2; did you mean --num_things?\n"
    )


def test_an_unknown_flag_of_a_subcommand_too(capsys: pytest.CaptureFixture[str]) -> None:
    parser = CustomArgumentParser("prog")
    parser.add_subparsers().add_parser("sub").add_argument("--some_thing")
    with pytest.raises(SystemExit):
        parser.parse_args(["sub", "--sum-thing"])
    assert "did you mean --some_thing?" in capsys.readouterr().err


def test_nearest_flag() -> None:
    flags = ["--cpu", "--num_processes", "--num-processes", "-q"]
    assert nearest_flag("--num-proceses=3", flags) == "--num_processes"
    assert nearest_flag("--zzz", flags) is None


def test_typed_options_counts_what_a_caller_set_by_hand() -> None:
    declared = (OptionInfo(name="num_things", type=int, default=None, flags=("--num_things",)),)
    assert typed_options(argparse.Namespace(num_things=None), declared) == {}
    assert typed_options(argparse.Namespace(num_things=3), declared) == {"num_things": 3}
    typed_none = argparse.Namespace(num_things=None, nondefault={"num_things"})
    assert typed_options(typed_none, declared) == {"num_things": None}
