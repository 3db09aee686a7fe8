"""Compare example scripts by line: does the complete one show what each feature's does? Called by tests."""

from pathlib import Path

from accelerate.errors import ConfigurationError

__all__ = ["clean_lines", "compare_against_test", "get_function_contents_by_name"]

_FUNCTIONS = ("main", "training_function")
_TEMPLATE = Path("examples", "nlp_example.py")  # what every example of a feature adds to


def get_function_contents_by_name(lines: list[str], name: str) -> list[str]:
    """Return the lines of one function of a script, its first line included.

    Args:
        lines: those of the script, with their line ends.
        name: "training_function" or "main".

    Raises:
        ValueError: another name, or no such function.

    Example:
        >>> get_function_contents_by_name(["import os\\n", "def main():\\n", "    print()\\n"], "main")
        ['def main():\\n', '    print()\\n']
    """
    if name not in _FUNCTIONS:
        raise ConfigurationError(
            f"Incorrect function name passed: {name}, choose either 'main' or 'training_function'"
        )
    starts = [index for index, line in enumerate(lines) if line.startswith(f"def {name}")]
    if not starts:
        raise ConfigurationError(f"The script has no function `{name}` at its top level.")
    body: list[str] = []
    for line in lines[starts[0] + 1 :]:
        if line.strip() and not line[0].isspace() and not line.startswith((")", "#")):
            break
        body.append(line)
    return [lines[starts[0]], *body]


def clean_lines(lines: list[str]) -> list[str]:
    """Return the lines without comments of their own line and without empty ones.

    Example:
        >>> clean_lines(["a = 1\\n", "\\n", "    # why\\n", "b = 2  # why\\n"])
        ['a = 1\\n', 'b = 2  # why\\n']
    """
    return [line for line in lines if line != "\n" and not line.lstrip().startswith("#")]


def compare_against_test(
    base_filename: str, feature_filename: str, parser_only: bool, secondary_filename: str | None = None
) -> list[str]:
    """Return the lines that a feature's example adds to the template and a complete example lacks.

    The template is `examples/nlp_example.py` in the current folder, which is read along with the others.

    Args:
        base_filename: the complete example, which should show every feature.
        feature_filename: the example of one feature.
        parser_only: compare the functions `main`, where the arguments are; otherwise `training_function`.
        secondary_filename: the template of the complete example, where it has another than the feature.

    Raises:
        FileNotFoundError: one of the files is missing.
        ValueError: one of them lacks the function.
    """
    name = "main" if parser_only else "training_function"
    template = _lines_of(_TEMPLATE, name)
    own_template = template if secondary_filename is None else _lines_of(Path(secondary_filename), name)
    shown = set(_lines_of(Path(base_filename), name)) - set(own_template)
    added = [line for line in _lines_of(Path(feature_filename), name) if line not in template]
    return [line for line in added if line not in shown]


def _lines_of(path: Path, name: str) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return clean_lines(get_function_contents_by_name(lines, name))
