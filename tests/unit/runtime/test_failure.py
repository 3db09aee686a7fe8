import faulthandler
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from accelerate.runtime.failure import ERROR_FILE_VARIABLE, error_record, install_excepthook, keep_lines_whole


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[BaseException]]:
    """Give the exceptions that the former hook got, and put that hook back afterwards."""
    seen: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, stack: seen.append(error))
    was_enabled = faulthandler.is_enabled()
    yield seen
    if not was_enabled:
        faulthandler.disable()


def fail(error: BaseException) -> None:
    sys.excepthook(type(error), error, error.__traceback__)


def test_the_record_has_the_form_that_torch_elastic_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: list[BaseException]
) -> None:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

    file = tmp_path / "error.json"
    monkeypatch.setenv(ERROR_FILE_VARIABLE, str(file))
    install_excepthook()
    error = ValueError("boom")
    fail(error)
    assert printed == [error]
    failure = ProcessFailure(local_rank=1, pid=1, exitcode=1, error_file=str(file))
    assert failure.message["message"] == "ValueError: boom"  # type: ignore[index]
    assert "ValueError: boom" in failure.message["extraInfo"]["py_callstack"]  # type: ignore[index]
    assert [path.name for path in tmp_path.iterdir()] == ["error.json"]


def test_installing_twice_is_installing_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: list[BaseException]
) -> None:
    monkeypatch.setenv(ERROR_FILE_VARIABLE, str(tmp_path / "error.json"))
    install_excepthook()
    hook = sys.excepthook
    install_excepthook()
    assert sys.excepthook is hook


def test_nothing_outside_an_elastic_launch(
    monkeypatch: pytest.MonkeyPatch, printed: list[BaseException]
) -> None:
    monkeypatch.delenv(ERROR_FILE_VARIABLE, raising=False)
    hook = sys.excepthook
    install_excepthook()
    assert sys.excepthook is hook


def test_an_interrupt_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: list[BaseException]
) -> None:
    file = tmp_path / "error.json"
    monkeypatch.setenv(ERROR_FILE_VARIABLE, str(file))
    install_excepthook()
    fail(KeyboardInterrupt())
    assert len(printed) == 1
    assert not file.exists()


def test_a_folder_that_is_gone_does_not_hide_the_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: list[BaseException]
) -> None:
    monkeypatch.setenv(ERROR_FILE_VARIABLE, str(tmp_path / "gone" / "error.json"))
    install_excepthook()
    fail(ValueError("boom"))
    assert len(printed) == 1


def test_a_crash_in_native_code_prints_a_stack(tmp_path: Path) -> None:
    code = (
        "import ctypes; from accelerate.runtime.failure import install_excepthook\n"
        "install_excepthook(); ctypes.string_at(0)"
    )
    import os

    environ = {**os.environ, ERROR_FILE_VARIABLE: str(tmp_path / "error.json")}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False
    )
    assert ended.returncode == -11
    assert "Fatal Python error: Segmentation fault" in ended.stderr


def test_record_keeps_the_cause() -> None:
    error = ValueError("boom")
    error.__cause__ = KeyError("why")
    record = json.loads(json.dumps(error_record(error, 12.5)))
    assert "KeyError: 'why'" in record["message"]["extraInfo"]["py_callstack"]
    assert record["message"]["extraInfo"]["timestamp"] == "12"
    assert record["message"]["extraInfo"]["timestamp_ns"] == "12500000000"


def test_an_unbuffered_print_becomes_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    class Writes(io.RawIOBase):
        def __init__(self) -> None:
            self.seen: list[bytes] = []

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            self.seen.append(bytes(data))
            return len(self.seen[-1])

    writes = Writes()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(writes, write_through=True))
    print("rank", 0)
    assert len(writes.seen) > 1
    writes.seen.clear()
    keep_lines_whole()
    print("rank", 0)
    assert writes.seen == [b"rank 0\n"]


def test_an_output_of_another_kind_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    other = io.StringIO()
    monkeypatch.setattr(sys, "stdout", other)
    keep_lines_whole()
    print("rank", 0)
    assert other.getvalue() == "rank 0\n"
