"""The public surface is that of version 1.15.0: names, signatures, defaults, fields, members, attributes.

The record is tests/golden/data/api.json; the two lists of exceptions are tests/golden/later.py and, for what
is meant, docs/differences.yaml.
"""

from tests.golden.comparison import compare, compare_paths
from tests.golden.differences import intended
from tests.golden.instances import EXAMPLES
from tests.golden.later import LATER
from tests.golden.record import client_paths, modules
from tests.golden.verdict import unexpected


def test_the_surface_is_the_recorded_one() -> None:
    findings = [*compare(modules(), EXAMPLES), *compare_paths(client_paths())]
    messages = unexpected(findings, LATER, intended(), modules())
    assert not messages, "\n".join(messages)


def test_every_example_is_of_a_recorded_class() -> None:
    for path, example in EXAMPLES.items():
        module, _, name = path.rpartition(".")
        assert name in modules()[module]["defined"], path
        assert type(example()).__name__ == name
