"""The argument parser of all commands, and parser options made from declared ones. Loads without torch.

Each option with an underscore in its name is also accepted with dashes; `--help` shows the underscores.
"""

import argparse
import os
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from accelerate.options.field import OptionInfo

__all__ = [
    "ADDED_COMMANDS",
    "ADDITIONS",
    "CustomArgumentGroup",
    "CustomArgumentParser",
    "HelpFormatter",
    "add_options",
    "end_quietly_on_interrupt",
    "is_console_script",
    "nearest_flag",
    "print_error",
    "typed_options",
]

# Commands that the interface does not have. The test of the command line reads this list, too.
ADDED_COMMANDS = ("checkpoint",)

# Command -> flags that the interface does not have. The test of the command line reads this list.
ADDITIONS: Mapping[str, tuple[str, ...]] = {
    "env": ("--json",),
    "launch": (
        "--explain",
        "--grace_period",
        "--log_prefix",
        "--mpirun_kind",
        "--preflight",
        "--slurm",
        "--srun_args",
    ),
}

_NONDEFAULT = "nondefault"
_CONSOLE_SCRIPTS = frozenset({"accelerate", "accelerate-launch"})
_INTERRUPTED = 130  # exit status, as shells have it


def _spellings(flags: Iterable[str]) -> list[str]:
    """Return each flag followed by its spelling with dashes, where that is another one."""
    both = [[flag, "--" + flag[2:].replace("_", "-")] if flag.startswith("--") else [flag] for flag in flags]
    return list(dict.fromkeys(spelling for pair in both for spelling in pair))


class _StoreAction(argparse.Action):
    """Stores a value and, once something was typed, its name in `namespace.nondefault`."""

    def __init__(self, option_strings: Sequence[str], dest: str, **kwargs: Any) -> None:
        super().__init__(_spellings(option_strings), dest, **kwargs)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, values)
        if isinstance(parser, CustomArgumentParser) and parser.remembers:
            # A new set each time: parsers may be used more than once.
            setattr(namespace, _NONDEFAULT, getattr(namespace, _NONDEFAULT, set()) | {self.dest})


class _AppendAction(_StoreAction):
    """Collects the values of an option that may be given several times."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        earlier = getattr(namespace, self.dest, None) or []
        super().__call__(parser, namespace, [*earlier, values], option_string)


class _StoreConstAction(_StoreAction):
    """Stores a constant when its flag is there."""

    def __init__(
        self,
        option_strings: Sequence[str],
        dest: str,
        const: Any,
        default: Any = None,
        required: bool = False,
        help: str | None = None,
    ) -> None:
        super().__init__(
            option_strings, dest, nargs=0, const=const, default=default, required=required, help=help
        )

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        super().__call__(parser, namespace, self.const, option_string)


class _StoreTrueAction(_StoreConstAction):
    """Stores True when its flag is there. The default is None: not typed."""

    def __init__(
        self,
        option_strings: Sequence[str],
        dest: str,
        default: Any = None,
        required: bool = False,
        help: str | None = None,
    ) -> None:
        super().__init__(option_strings, dest, True, default=default, required=required, help=help)


class HelpFormatter(argparse.HelpFormatter):
    """Shows one spelling of each flag."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        shown = [flag for flag in action.option_strings if not _is_twin(flag, action.option_strings)]
        if not shown:
            return super()._format_action_invocation(action)
        names = ", ".join(shown)
        if action.nargs == 0:
            return names
        return f"{names} {self._format_args(action, self._get_default_metavar_for_optional(action))}"


def _is_twin(flag: str, flags: Sequence[str]) -> bool:
    underscored = (other for other in flags if other != flag and other.startswith("--"))
    return any(other.replace("_", "-") == flag for other in underscored)


def _register(container: Any) -> None:
    container.register("action", None, _StoreAction)
    container.register("action", "store", _StoreAction)
    container.register("action", "append", _AppendAction)
    container.register("action", "store_const", _StoreConstAction)
    container.register("action", "store_true", _StoreTrueAction)


class CustomArgumentGroup(argparse._ArgumentGroup):
    """A group of options of a `CustomArgumentParser`."""


class CustomArgumentParser(argparse.ArgumentParser):
    """Accepts dashes for underscores, and answers what it does not know with what it does.

    Attributes:
        remembers: note the name of each option that was typed in `namespace.nondefault`.
    """

    def __init__(self, *args: Any, remembers: bool = False, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", HelpFormatter)
        super().__init__(*args, **kwargs)
        self.remembers = remembers
        _register(self)

    def add_argument_group(self, *args: Any, **kwargs: Any) -> CustomArgumentGroup:
        """Add a group whose options behave as those of the parser."""
        group = CustomArgumentGroup(self, *args, **kwargs)
        self._action_groups.append(group)
        return group

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and on an unknown option end the program with the name of the nearest one."""
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.error(self._unknown(unknown))
        return parsed

    def error(self, message: str) -> NoReturn:
        """Print one line of usage and the message, and end the program with status 2."""
        self.exit(
            2, f"usage: {self.prog} [options] ... (see {self.prog} --help)\n{self.prog}: error: {message}\n"
        )

    def _unknown(self, unknown: Sequence[str]) -> str:
        flag = next((text for text in unknown if text.startswith("-")), unknown[0])
        near = nearest_flag(flag, self._flags())
        return f"unrecognized arguments: {' '.join(unknown)}" + (f"; did you mean {near}?" if near else "")

    def _flags(self) -> list[str]:
        parsers = [self]
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                parsers += action.choices.values()
        return [flag for parser in parsers for flag in parser._option_string_actions]


def nearest_flag(flag: str, flags: Iterable[str]) -> str | None:
    """Return the flag that most resembles `flag`, or None when none does.

    Example:
        >>> nearest_flag("--num_proceses=2", ["--num_processes", "--cpu"])
        '--num_processes'
    """
    from difflib import get_close_matches

    plain: dict[str, str] = {}
    for known in flags:
        plain.setdefault(known.replace("-", "_"), known)
    near = get_close_matches(flag.partition("=")[0].replace("-", "_"), plain, n=1, cutoff=0.6)
    return plain[near[0]] if near else None


def add_options(parser: argparse.ArgumentParser, declared: Iterable["OptionInfo"]) -> None:
    """Add each declared option that has a flag to `parser`, under the heading that it names."""
    groups: dict[str, Any] = {}
    for info in declared:
        if not info.flags:
            continue
        target: Any = parser
        if info.group is not None:
            if info.group not in groups:
                groups[info.group] = parser.add_argument_group(info.group)
            target = groups[info.group]
        target.add_argument(*info.flags, **_arguments(info))
        if info.off_flags:
            off = {
                "action": "store_const",
                "const": False,
                "default": True,
                "help": f"Take {info.flags[0]} back.",
            }
            target.add_argument(*info.off_flags, dest=info.name, **off)


def typed_options(args: argparse.Namespace, declared: Iterable["OptionInfo"]) -> dict[str, Any]:
    """Return what was really asked for: options that were typed, and those that a caller set by hand."""
    passed: set[str] = getattr(args, _NONDEFAULT, set())
    given = {info.name: getattr(args, info.name) for info in declared if hasattr(args, info.name)}
    defaults = {info.name: info.default for info in declared}
    return {name: value for name, value in given.items() if name in passed or value != defaults[name]}


def _arguments(info: "OptionInfo") -> dict[str, Any]:
    """Return what argparse calls the facts of an option."""
    arguments: dict[str, Any] = {"help": info.help.replace("%", "%%")}
    if not info.flags[0].startswith("-"):
        return arguments | ({"nargs": info.nargs} if info.nargs is not None else {})
    arguments |= {"dest": info.name, "default": info.default}
    if info.type is bool and info.parse is None:
        return arguments | {"action": "store_true"}
    arguments["type"] = info.parse or info.type
    if info.repeats:
        return arguments | {"action": "append"}
    if info.choices is not None:
        arguments["choices"] = list(info.choices)
    return arguments


def print_error(prog: str, error: Exception) -> None:
    """Print an error of the user's making on one line, without a traceback."""
    print(f"{prog}: error: {error}", file=sys.stderr)


def is_console_script() -> bool:
    """Return whether this process exists to run a command, so that the command may end or replace it."""
    if os.name != "posix":
        return False
    started = sys.modules["__main__"]
    spec = getattr(started, "__spec__", None)
    if spec is not None:
        return str(spec.name).startswith("accelerate.commands.")
    return os.path.basename(getattr(started, "__file__", None) or "") in _CONSOLE_SCRIPTS


def end_quietly_on_interrupt(prog: str) -> None:
    """Let Ctrl-C end this process with a line instead of a traceback, if it is a console script.

    Importing torch may swallow the KeyboardInterrupt that Python would raise otherwise.
    """
    if not is_console_script() or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return

    def end(number: int, frame: FrameType | None) -> None:
        os.write(2, f"{prog}: interrupted\n".encode())
        os._exit(_INTERRUPTED)

    signal.signal(signal.SIGINT, end)
