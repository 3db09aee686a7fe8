import os
import unittest
from pathlib import Path
from unittest import mock

import pytest

from accelerate.accelerator import Accelerator
from accelerate.state import AcceleratorState, PartialState
from accelerate.test_utils.cases import AccelerateTestCase, MockingTestCase, TempDirTestCase


def run(case: type[unittest.TestCase]) -> None:
    """Run all tests of a case; fail where one of them does."""
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    assert result.testsRun > 0
    assert result.errors + result.failures == []


@pytest.mark.parametrize("clear", [True, False])
def test_a_temporary_folder(clear: bool, tmp_path: Path) -> None:
    seen: list[list[str]] = []
    folders: set[Path] = set()

    class Case(TempDirTestCase):
        clear_on_setup = clear

        def test_1(self) -> None:
            (self.tmpdir / "folder" / "below").mkdir(parents=True)
            (self.tmpdir / "file").touch()
            (self.tmpdir / "link").symlink_to(tmp_path)
            folders.add(self.tmpdir)

        def test_2(self) -> None:
            seen.append(sorted(os.listdir(self.tmpdir)))
            folders.add(self.tmpdir)

    run(Case)
    (folder,) = folders
    assert seen == [[]] if clear else [["file", "folder", "link"]]
    assert not folder.exists()
    assert tmp_path.exists()


def test_the_state_is_reset_after_each_test() -> None:
    class Case(AccelerateTestCase):
        def test_1(self) -> None:
            accelerator = Accelerator(gradient_accumulation_steps=3, mixed_precision="bf16")
            assert accelerator.gradient_accumulation_steps == 3

        def test_2(self) -> None:
            assert Accelerator(mixed_precision="no").gradient_accumulation_steps == 1

    run(Case)
    assert (PartialState._shared_state, AcceleratorState._shared_state) == ({}, {})


def test_mocks_are_stopped_after_the_test() -> None:
    class Case(MockingTestCase):
        def setUp(self) -> None:
            super().setUp()
            self.add_mocks(mock.patch.dict(os.environ, {"ONE": "1"}))
            self.add_mocks([mock.patch.dict(os.environ, {"TWO": "2"})])

        def test(self) -> None:
            assert (os.environ["ONE"], os.environ["TWO"]) == ("1", "2")

    run(Case)
    assert "ONE" not in os.environ
    assert "TWO" not in os.environ
