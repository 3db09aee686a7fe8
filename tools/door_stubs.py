"""Write the `.pyi` beside each door from the door's table, for editors and type checkers. Run by engineers.

    python tools/door_stubs.py            write the stubs
    python tools/door_stubs.py --check    say which differ, exit 1 if any does

A row whose home does not exist is left out of the stub; `--missing` lists these rows.
"""

import argparse
import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
HEADER = "# Written by tools/door_stubs.py from the table in {name}: change that and run it again."


def doors() -> Iterator[tuple[Path, dict[str, list[str]]]]:
    """Yield each door of the package with its table."""
    for path in sorted((SOURCE / "accelerate").rglob("*.py")):
        table = table_of(ast.parse(path.read_text()))
        if table is not None:
            yield path, table


def table_of(tree: ast.Module) -> dict[str, list[str]] | None:
    """Return the table of a door, or None for a module that is not one."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "HOMES":
            table: dict[str, list[str]] = ast.literal_eval(node.value)
            return table
    return None


def exists(home: str) -> bool:
    """Return whether a dotted module name is a file or folder of the source tree."""
    path = SOURCE / home.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def missing_rows() -> Iterator[str]:
    """Yield `door: home (names)` for each home that is not there."""
    for path, table in doors():
        for home, names in table.items():
            if not exists(home):
                yield f"{path.relative_to(SOURCE)}: {home} ({', '.join(names)})"


def stub_text(path: Path, table: Mapping[str, Sequence[str]]) -> str:
    """Return the stub of a door: one import for each name, its submodules, and `__all__` spelled out."""
    present = {home: names for home, names in table.items() if exists(home)}
    lines = [HEADER.format(name=path.name), ""]
    if path.name == "__init__.py":
        package = ".".join(path.parent.relative_to(SOURCE).parts)
        named = {name for names in table.values() for name in names}  # these win over submodules
        lines += [
            f"from {package} import {name} as {name}" for name in submodules(path.parent) if name not in named
        ]
    for home, names in present.items():
        lines += [f"from {home} import (", *(f"    {name} as {name}," for name in names), ")"]
    if "__version__" in path.read_text():
        lines += ["", "__version__: str"]
    public = sorted(name for names in present.values() for name in names if not name.startswith("_"))
    lines += ["", "__all__ = [", *(f'    "{name}",' for name in public), "]"]
    return "\n".join(lines) + "\n"


def submodules(folder: Path) -> list[str]:
    """Return the modules and packages in a folder that a user can import."""
    files = {path.stem for path in folder.glob("*.py")}
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    return sorted(name for name in files | packages if not name.startswith("_"))


def main() -> int:
    """Write or compare all stubs; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare only")
    parser.add_argument("--missing", action="store_true", help="list the rows whose home does not exist")
    args = parser.parse_args()
    if args.missing:
        print("\n".join(missing_rows()))
        return 0
    stale = [
        (path.with_suffix(".pyi"), text)
        for path, table in doors()
        if (text := stub_text(path, table)) != _content(path.with_suffix(".pyi"))
    ]
    for stub, text in stale:
        if args.check:
            print(f"{stub.relative_to(SOURCE)} differs from its table: run python tools/door_stubs.py")
        else:
            stub.write_text(text)
    return int(args.check and bool(stale))


def _content(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
