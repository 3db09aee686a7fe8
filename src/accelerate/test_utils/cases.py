"""Base classes for unittest: a folder, a state that is reset, mocks that are stopped. Called by users."""

import shutil
import tempfile
import unittest
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

from accelerate.state import AcceleratorState, GradientState

__all__ = ["AccelerateTestCase", "MockingTestCase", "TempDirTestCase"]


class TempDirTestCase(unittest.TestCase):
    """A case whose tests share a temporary folder.

    Attributes:
        tmpdir: the folder; it is made before the first test of the class and removed after the last.
        clear_on_setup: empty it before each test.

    Example:
        >>> class TestFiles(TempDirTestCase):
        ...     def test_writing(self):
        ...         (self.tmpdir / "file").write_text("content")
    """

    clear_on_setup: ClassVar[bool] = True
    tmpdir: ClassVar[Path]

    @classmethod
    def setUpClass(cls) -> None:
        """Make the folder."""
        super().setUpClass()
        cls.tmpdir = Path(tempfile.mkdtemp())

    @classmethod
    def tearDownClass(cls) -> None:
        """Remove the folder and all that is in it."""
        shutil.rmtree(cls.tmpdir, ignore_errors=True)  # tests may have removed it themselves
        super().tearDownClass()

    def setUp(self) -> None:
        """Empty the folder, unless the class says otherwise."""
        super().setUp()
        if not self.clear_on_setup:
            return
        for path in self.tmpdir.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


class AccelerateTestCase(unittest.TestCase):
    """A case after each test of which the state of accelerate is as if no `Accelerator` had been made."""

    def tearDown(self) -> None:
        """Forget the run and the accumulation window; a process group is left as it is."""
        super().tearDown()
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()


class MockingTestCase(unittest.TestCase):
    """A case that starts patchers for the length of each test.

    Example:
        >>> from unittest import mock
        >>> class TestOffline(MockingTestCase):
        ...     def setUp(self):
        ...         super().setUp()
        ...         self.add_mocks(mock.patch.dict("os.environ", {"HF_HUB_OFFLINE": "1"}))
    """

    def add_mocks(self, mocks: Any) -> None:
        """Start patchers now and stop them after the test. `setUp` calls this.

        Args:
            mocks: one or several of what `unittest.mock.patch` and its kind return.
        """
        several = mocks if isinstance(mocks, Iterable) and not hasattr(mocks, "start") else [mocks]
        for mock in several:
            mock.start()
            self.addCleanup(mock.stop)
