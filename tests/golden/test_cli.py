"""The command line is that of the interface: every flag, default, choice, heading and handler.

`data/cli.json` was walked from the parsers of accelerate 1.15.0. What is ours is in `ADDITIONS` and
`ADDED_COMMANDS` (commands/utils.py); what differs or is absent on purpose is in the tables below, which only
shrink.
"""

import argparse
import importlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from accelerate.commands import accelerate_cli
from accelerate.commands.utils import ADDED_COMMANDS, ADDITIONS, CustomArgumentParser

INTERFACE: Mapping[str, Any] = json.loads(Path(__file__).with_name("data").joinpath("cli.json").read_text())

# Commands that later work brings.
LATER = {
    "estimate-memory": "big models",
    "merge-weights": "FSDP",
    "to-fsdp2": "FSDP",
}

READS_TRUTH_VALUES = "false is false (there: any text is true)"
# (command, option) -> {fact: (there, here)}, and why.
DIFFERENT: Mapping[tuple[str, str], tuple[dict[str, tuple[object, object]], str]] = {
    **{
        ("launch", f"megatron_lm_{name}"): ({"type": ("bool", "str_to_bool")}, READS_TRUTH_VALUES)
        for name in (
            "use_custom_fsdp",
            "no_load_optim",
            "eod_mask_loss",
            "overlap_cpu_optimizer_d2h_h2d",
            "no_save_optim",
            "optimizer_cpu_offload",
            "use_precision_aware_optimizer",
        )
    },
    ("launch", "parallelism_config_sp_seq_length_is_variable"): (
        {"type": ("bool", "str_to_bool")},
        READS_TRUTH_VALUES,
    ),
    # A function of ours that splits a comma list.
    ("launch", "fp8_override_linear_precision"): (
        {"type": ("callable: splits a comma list into a tuple", "_words")},
        "another name of the same function",
    ),
}


# Command -> the one whose options it takes beside its own. Abbreviations would be ambiguous among so many.
SHARES = {"test": "launch"}

# Command -> the function that adds its parser, where that is not called after it.
MAKERS = {"config": "get_config_parser", "tpu-config": "tpu_command_parser"}


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of every command that there is, subcommands included."""
    top = CustomArgumentParser("accelerate", allow_abbrev=False)
    subparsers = top.add_subparsers()
    for name, (path, _) in accelerate_cli.COMMANDS.items():
        makers = MAKERS.get(name, f"{name.replace('-', '_')}_command_parser")
        getattr(importlib.import_module(path), makers)(subparsers)
    found = {}
    for name, parser in subparsers.choices.items():
        found |= {name: parser} | {f"{name} {inner}": deeper for inner, deeper in nested(parser)}
    return found


def nested(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def facts(parser: argparse.ArgumentParser) -> dict[str, dict[str, object]]:
    """Return dest (and, for a switch that shares one, its flag) -> what is known of the option."""
    known = {}
    for group in parser._action_groups:
        for action in group._group_actions:
            if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
                continue
            known[_name(action.option_strings, action.dest)] = {
                "flags": sorted(action.option_strings),
                "dest": action.dest,
                "action": type(action).__name__.lstrip("_"),
                "type": getattr(action.type, "__name__", None),
                "choices": None if action.choices is None else list(action.choices),
                "default": _default(action.default, action.type),
                "nargs": action.nargs,
                "required": action.required,
                "const": action.const,
                "group": group.title,
            }
    return known


def expected(command: str) -> dict[str, dict[str, object]]:
    known = {}
    for argument in INTERFACE["commands"][command]["args"]:
        fact = {name: argument.get(name) for name in FACTS}
        fact["flags"] = sorted(argument["flags"])
        fact["default"] = _default(argument["default"], str if argument["type"] != "str_to_bool" else _truth)
        known[_name(argument["flags"], argument["dest"])] = fact
    return known


FACTS = ("flags", "dest", "action", "type", "choices", "default", "nargs", "required", "const", "group")


def _truth(text: str) -> bool:
    return text == "true"


def _name(flags: list[str], dest: str) -> str:
    switch_off = next((flag for flag in flags if flag.startswith("--no_") and flag[2:] != dest), None)
    return switch_off or dest


def _default(value: object, kind: object) -> object:
    """Return a default as the option has it: argparse passes a text through the type."""
    if isinstance(value, str) and kind is _truth:
        return value == "true"
    return "the default file" if str(value).endswith(("default_config.yaml", "at import)")) else str(value)


def normal(fact: Mapping[str, object]) -> dict[str, object]:
    """Return what makes a difference: without a type, text stays text."""
    # On Python 3.10 to 3.12 alike: headings of optional arguments are named differently before 3.10.
    return {**fact, "type": None if fact["type"] == "str" else fact["type"], "default": str(fact["default"])}


COMMANDS = sorted(name for name in parsers() if name.split()[0] not in ADDED_COMMANDS)


def test_the_commands() -> None:
    assert set(ADDED_COMMANDS) == set(accelerate_cli.COMMANDS) - INTERFACE["commands"].keys()
    assert set(COMMANDS) <= INTERFACE["commands"].keys()
    assert INTERFACE["commands"].keys() - set(COMMANDS) <= LATER.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option(command: str) -> None:
    ours = facts(parsers()[command])
    added = {name for name, fact in ours.items() if set(ADDITIONS.get(command, ())) & set(fact["flags"])}  # type: ignore[call-overload]
    theirs = expected(command)
    if command in SHARES:
        added |= facts(parsers()[SHARES[command]]).keys() - theirs.keys()
    assert sorted(ours.keys() - added) == sorted(theirs)
    for name, fact in theirs.items():
        there, here = normal(fact), normal(ours[name])
        differences = {key: (there[key], here[key]) for key in FACTS if there[key] != here[key]}
        allowed = DIFFERENT.get((command, name), ({}, ""))[0]
        assert differences == allowed, f"{command}: {name}"


@pytest.mark.parametrize("command", COMMANDS)
def test_abbreviations_and_handlers(command: str) -> None:
    parser, recorded = parsers()[command], INTERFACE["commands"][command]
    assert parser.allow_abbrev is (recorded["allow_abbrev"] and command not in SHARES)
    assert parser.get_default("func").__name__ == recorded["defaults"]["func"]


def test_the_lists_hold_nothing_that_is_not_there() -> None:
    ours = parsers()
    for command, flags in ADDITIONS.items():
        known = {flag for fact in facts(ours[command]).values() for flag in fact["flags"]}  # type: ignore[attr-defined]
        assert set(flags) <= known
    for command, name in DIFFERENT:
        assert name in expected(command)


def test_console_scripts_that_are_there_are_those_of_the_interface() -> None:
    """Each script of the interface whose module there is has its `main`."""
    for name, target in INTERFACE["console_scripts"].items():
        module, _, function = target.partition(":")
        if name in ("accelerate-estimate-memory", "accelerate-merge-weights"):
            continue
        assert callable(getattr(importlib.import_module(module), function))
