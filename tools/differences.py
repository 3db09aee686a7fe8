"""Write docs/differences.md from docs/differences.yaml, for readers of the docs. Run by engineers.

    python tools/differences.py            write the page
    python tools/differences.py --check    say whether it is current, exit 1 if not

The file holds sections of free text, and under `surface` the names and signatures that differ: each has a
`path`, a reason `why`, and either `here`, the signature or value as it is now, or `adds`, names that the
class or module at that path has in addition.
"""

import argparse
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

DOCS = Path(__file__).resolve().parents[1] / "docs"
SOURCE, PAGE = DOCS / "differences.yaml", DOCS / "differences.md"
TITLE = "# What differs from accelerate 1.15.0 on purpose"
NOTE = (
    "<!-- Written by tools/differences.py from differences.yaml: change that and run `make differences`. -->"
)
WIDTH = 116


def read(text: str) -> Mapping[str, Any]:
    """Return the content of the source file."""
    content: Mapping[str, Any] = yaml.safe_load(text)
    return content


def page(content: Mapping[str, Any]) -> str:
    """Return the text of the page."""
    blocks = [f"{TITLE}\n\n{NOTE}", _paragraph(content["introduction"])]
    for section in content["sections"]:
        blocks.append(f"## {section['title']}")
        if "introduction" in section:
            blocks.append(_paragraph(section["introduction"]))
        blocks.append("\n".join(map(_bullet, section["differences"])))
    blocks.append("## Names and signatures")
    blocks.append("\n".join(_bullet(text) for text in surface_texts(content)))
    return "\n\n".join(blocks) + "\n"


def surface_texts(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each difference of names and signatures."""
    for entry in content["surface"]:
        if "adds" in entry:
            names = ", ".join(f"`{name}`" for name in entry["adds"])
            yield f"`{entry['path']}` has {names} in addition: {entry['why']}"
        else:
            yield f"`{entry['path']}` is `{entry['here']}`: {entry['why']}"


def _paragraph(text: str) -> str:
    return "\n".join(textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False))


def _bullet(text: str) -> str:
    lines = textwrap.wrap(text, WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    return "- " + "\n  ".join(lines)


def main() -> int:
    """Write or compare the page; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare only")
    text = page(read(SOURCE.read_text()))
    if not parser.parse_args().check:
        PAGE.write_text(text)
        return 0
    if PAGE.read_text() == text:
        return 0
    print(f"{PAGE.name} is not what {SOURCE.name} says: run `make differences`")
    return 1


if __name__ == "__main__":
    sys.exit(main())
