"""A launch in words: each effective value with its source, the command, the environment. Pure.

Called by `accelerate launch --explain`, which shows it as a table, and by the golden files of the plans.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accelerate.launching.base import Launcher
from accelerate.launching.checks import is_effective
from accelerate.options.field import options
from accelerate.options.launch import LaunchPlan

__all__ = ["Explanation", "Row", "explain"]

# They say what to do with a plan, and are no part of it.
_ASIDE = frozenset({"explain", "config_file", "sources"})
_SECRET = frozenset({"aws_access_key_id", "aws_secret_access_key"})
# Declared as None for "not said"; what they are then is off.
_OFF = frozenset({"quiet", "module", "no_python", "debug"})


@dataclass(frozen=True, kw_only=True)
class Row:
    """One value: the option as it is typed, its value and what decided it."""

    option: str
    value: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """All that a launch would do.

    Attributes:
        launcher: name of the launcher.
        file: the configuration file that was read, or None.
        rows: the values that have an effect.
        command: argument list of each process.
        environ: the variables that are added to the caller's environment.
    """

    launcher: str
    file: str | None
    rows: Sequence[Row]
    command: Sequence[str]
    environ: dict[str, str]

    def command_line(self) -> str:
        """Return the command as a shell would read it."""
        return shlex.join(self.command)

    def environ_lines(self) -> list[str]:
        """Return NAME=value as a shell would read it, in the order of names."""
        return [f"{name}={shlex.quote(text)}" for name, text in sorted(self.environ.items())]


def explain(
    plan: LaunchPlan, launcher: Launcher, file: str | None = None, local: Mapping[str, str] | None = None
) -> Explanation:
    """Return what `launcher` would do with `plan`.

    Args:
        plan: the launch.
        launcher: what starts it.
        file: the configuration file that was read.
        local: variables that depend on this machine, `launcher.local_environ(plan)`.
    """
    rows = [
        Row(
            option=info.flags[0] if len(info.flags) == 1 else next(f for f in info.flags if f[:2] == "--"),
            value=_shown(info.name, getattr(plan, info.name)),
            source=plan.sources.get(info.name, "default"),
        )
        for info in options(LaunchPlan)
        if info.flags and info.name not in _ASIDE and is_effective(plan, info.name)
    ]
    return Explanation(
        launcher=launcher.name,
        file=file,
        rows=rows,
        command=launcher.command(plan),
        environ=launcher.environ(plan) | dict(local or {}),
    )


def _shown(name: str, value: Any) -> str:
    if name in _SECRET and value is not None:
        return "(hidden)"
    if value is None or value == ():
        return "no" if name in _OFF else "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return shlex.join(map(str, value)) if isinstance(value, tuple | list) else str(value)
