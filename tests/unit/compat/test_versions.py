import importlib.metadata
import subprocess
import sys
from types import SimpleNamespace

import pytest
from packaging.version import InvalidVersion, Version, parse

from accelerate.compat import versions
from accelerate.compat.versions import compare_versions, installed_version, is_installed, is_torch_version


@pytest.mark.parametrize(
    ("operation", "expected"),
    [(">", False), (">=", True), ("==", True), ("!=", False), ("<=", True), ("<", False)],
)
def test_every_operation(operation: str, expected: bool) -> None:
    assert compare_versions(parse("1.10.0"), operation, "1.10") is expected


def test_versions_are_compared_as_versions() -> None:
    assert compare_versions(parse("1.10"), ">", "1.9")
    assert compare_versions(parse("2.6.0.dev1"), "<", "2.6.0")
    assert compare_versions(parse("2.13.0+cpu"), ">", "2.13.0")


def test_a_name_is_an_installed_distribution() -> None:
    assert compare_versions("packaging", ">=", "21")
    with pytest.raises(importlib.metadata.PackageNotFoundError) as caught:
        compare_versions("no-such-distribution", ">=", "1")
    assert isinstance(caught.value, ImportError)


@pytest.mark.parametrize("operation", ["~=", "=", ""])
def test_unknown_operations_are_refused(operation: str) -> None:
    with pytest.raises(ValueError, match=r"use one of \['>', '>=', '==', '!=', '<=', '<'\]"):
        is_torch_version(operation, "2.0")


def test_texts_that_are_no_version_are_refused() -> None:
    with pytest.raises(InvalidVersion):
        is_torch_version(">=", "junk")


def test_installed() -> None:
    assert is_installed("packaging")
    assert not is_installed("no-such-distribution")


def test_the_version_of_torch_is_the_same_before_and_after_loading_it() -> None:
    program = (
        "import sys\n"
        "from accelerate.compat import versions\n"
        "assert versions.is_torch_version('>=', '2.6')\n"
        "assert 'torch' not in sys.modules\n"
        "before = versions.torch_version\n"
        "import torch\n"
        "versions.installed_version.cache_clear()\n"
        "assert before == versions.torch_version\n"
        "assert str(before) == torch.__version__\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_a_loaded_torch_says_its_version_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    installed_version.cache_clear()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="9.9.9a0+git1"))
    try:
        assert versions.torch_version == Version("9.9.9a0+git1")
        assert is_torch_version(">", "9.9.8")
    finally:
        installed_version.cache_clear()


def test_loading_reads_no_metadata() -> None:
    program = "import sys, accelerate.compat.versions; assert 'importlib.metadata' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_other_names_are_unknown() -> None:
    with pytest.raises(
        AttributeError, match=r"module 'accelerate\.compat\.versions' has no attribute 'nope'"
    ):
        _ = versions.nope  # type: ignore[attr-defined]
