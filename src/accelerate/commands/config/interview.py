"""How questions are put: on a terminal with questionary, without one line by line. Called by config/*.py.

An answer that is not allowed is asked for again, with what is allowed; an empty one is the default.
"""

import abc
import sys
from collections.abc import Callable, Sequence
from typing import Any

from accelerate.errors import ConfigurationError
from accelerate.options.config_values import convert
from accelerate.options.field import OptionInfo, options
from accelerate.options.launch import LaunchPlan

__all__ = ["Interview", "LineInterview", "TerminalInterview", "interview"]

Check = Callable[[str], Any]  # text -> value; ValueError says what is allowed


class Interview(abc.ABC):
    """Puts questions. The three kinds are abstract; the others are made of them."""

    @abc.abstractmethod
    def choose(self, question: str, choices: Sequence[str], default: str) -> str:
        """Return the one of `choices` that was chosen."""

    @abc.abstractmethod
    def confirm(self, question: str, default: bool = False) -> bool:
        """Return yes or no."""

    @abc.abstractmethod
    def text(self, question: str, default: str = "", check: Check = str) -> Any:
        """Return what `check` makes of the text."""

    def say(self, text: str) -> None:
        """Print a line that is no question."""
        print(text)

    def option(self, name: str, default: Any = None) -> Any:
        """Ask for an option of the launch, in the form of question that its type and choices call for.

        Args:
            name: an option of `LaunchPlan` that declares a question.
            default: what an empty answer means; the declared default when None.
        """
        info = next(info for info in options(LaunchPlan) if info.name == name)
        question = info.question or info.help
        value = info.default if default is None else default
        choices = info.values or info.choices
        if info.type is bool or choices == ("true", "false"):
            return self.confirm(question, default=str(value).lower() == "true")
        if choices is not None:
            named = _named(choices)
            chosen = self.choose(question, named, str(value) if str(value) in named else named[0])
            return convert(info, chosen)
        return self.text(question, "" if value is None else str(value), lambda text: _converted(info, text))


def _named(choices: Sequence[Any]) -> list[str]:
    """Return the choices to show: numbers that only stand for a name are left out."""
    texts = [choice for choice in choices if not (isinstance(choice, str) and choice.isdigit())]
    return [str(choice) for choice in texts or choices]


def _converted(info: OptionInfo, text: str) -> Any:
    return convert(info, text) if text else None


def whole_number(least: int = 0) -> Check:
    """Return a check for whole numbers of at least `least`."""

    def check(text: str) -> int:
        if not text.strip().isdigit() or int(text) < least:
            raise ValueError(f"use a whole number of at least {least}")
        return int(text)

    return check


def interview() -> Interview:
    """Return the kind of interview that standard input allows."""
    return TerminalInterview() if sys.stdin.isatty() and sys.stdout.isatty() else LineInterview()


class TerminalInterview(Interview):
    """Menus with arrow keys, and lines that can be edited.

    Every method raises KeyboardInterrupt on Ctrl-C.
    """

    def choose(self, question: str, choices: Sequence[str], default: str) -> str:
        """Return what was chosen with the arrow keys."""
        import questionary

        answer: str = questionary.select(
            question, choices=list(choices), default=default, qmark="?", instruction="(arrow keys, Enter)"
        ).unsafe_ask()
        return answer

    def confirm(self, question: str, default: bool = False) -> bool:
        """Return whether y was pressed."""
        import questionary

        answer: bool = questionary.confirm(question, default=default).unsafe_ask()
        return answer

    def text(self, question: str, default: str = "", check: Check = str) -> Any:
        """Return what `check` makes of the line that was typed."""
        import questionary

        def allowed(text: str) -> bool | str:
            try:
                check(text)
            except ValueError as error:
                return str(error)
            return True

        return check(questionary.text(question, default=default, validate=allowed).unsafe_ask())


class LineInterview(Interview):
    """One line of standard input per answer: for pipes, and for terminals without cursor control."""

    def choose(self, question: str, choices: Sequence[str], default: str) -> str:
        """Return the choice that a line names, by its text or its number from 1 on."""

        def check(text: str) -> str:
            if text.isdigit() and 1 <= int(text) <= len(choices):
                return choices[int(text) - 1]
            near = [choice for choice in choices if choice.lower() == text.lower()]
            if not near:
                raise ValueError(f"use a number from 1 to {len(choices)}, or the text of a choice")
            return near[0]

        for number, choice in enumerate(choices, start=1):
            self.say(f"  {number}. {choice}")
        answer: str = self.text(question, default, check)
        return answer

    def confirm(self, question: str, default: bool = False) -> bool:
        """Return whether a line says yes."""

        def check(text: str) -> bool:
            if text.lower() not in ("y", "yes", "n", "no"):
                raise ValueError("use yes or no")
            return text.lower() in ("y", "yes")

        answer: bool = self.text(question, "yes" if default else "no", check)
        return answer

    def text(self, question: str, default: str = "", check: Check = str) -> Any:
        """Return what `check` makes of the next line.

        Raises:
            ConfigurationError: there is no next line.
        """
        while True:
            print(f"{question} [{default}]: ", end="", flush=True)
            line = sys.stdin.readline()
            if not line:
                raise ConfigurationError(
                    f"no answer to {question!r}: standard input has ended. Run this on a terminal, give one "
                    "line per answer, or run `accelerate config default`, which asks nothing"
                )
            print(line.strip())
            try:
                return check(line.strip() or default)
            except ValueError as error:
                print(f"  {error}")
