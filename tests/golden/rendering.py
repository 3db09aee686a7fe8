"""One text for a signature or a value, whether it is read from the record or seen on a live object.

Called by the comparison. Annotations are left out; memory addresses, this machine's home folder and where
torch was built differ from run to run and are made alike.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_LETTERS = {
    inspect.Parameter.POSITIONAL_ONLY: "po",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "pk",
    inspect.Parameter.KEYWORD_ONLY: "ko",
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def recorded_signature(params: Sequence[Mapping[str, str]]) -> str:
    """Return the text of a signature as the record holds it."""
    return _signature(
        [
            (param["n"], param["k"], None if "d" not in param else recorded_value(param["d"]))
            for param in params
        ]
    )


def live_signature(function: Callable[..., Any]) -> str:
    """Return the text of the signature of a function, or of a class called to make an instance."""
    parameters = inspect.signature(function).parameters.values()
    return _signature(
        [
            (
                parameter.name,
                _LETTERS[parameter.kind],
                None if parameter.default is parameter.empty else value_text(parameter.default),
            )
            for parameter in parameters
        ]
    )


def _signature(parameters: Sequence[tuple[str, str, str | None]]) -> str:
    parts = []
    bare = True  # no `*` yet, so that the first keyword-only parameter needs one
    for name, kind, default in parameters:
        if kind == "ko" and bare:
            parts.append("*")
        bare = bare and kind not in ("ko", "*")
        stars = kind if kind.startswith("*") else ""
        parts.append(f"{stars}{name}" + ("" if default is None else f"={default}"))
        if kind == "po":
            parts[-1] += " (positional only)"
    return f"({', '.join(parts)})"


def value_text(value: Any) -> str:
    """Return the text of a value, alike on every machine."""
    text = re.sub(r" at 0x[0-9a-f]+>", ">", repr(value))
    return recorded_value(text.replace(str(Path.home()), "~"))


def recorded_value(text: str) -> str:
    """Return a value's text with the bare names of functions and of our classes, whose homes are our own."""
    text = re.sub(r"<function (?:\w+\.)*(\w+)>", r"<function \1>", text)
    return re.sub(r"<class 'accelerate\.(?:\w+\.)*(\w+)'>", r"<class '\1'>", text)
