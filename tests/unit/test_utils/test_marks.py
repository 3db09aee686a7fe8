from collections.abc import Callable

import pytest

from accelerate.compat import probes
from accelerate.devices import support
from accelerate.errors import EnvironmentVariableError
from accelerate.test_utils import marks


def reason(mark: Callable[..., object]) -> str | None:
    """Return why a test with this mark is skipped here, None when it runs."""

    def test_something() -> None: ...

    marked = mark(test_something)
    return marked.__unittest_skip_why__ if getattr(marked, "__unittest_skip__", False) else None


REQUIREMENTS = [name for name in marks.__all__ if name.startswith("require_")]
SAME_NAME = [name for name in REQUIREMENTS if hasattr(probes, f"is_{name[8:]}_available")]


@pytest.mark.parametrize("name", sorted(set(REQUIREMENTS) - {"require_torch_min_version"}))
def test_a_mark_gives_back_the_test_and_has_the_name_of_its_own(name: str) -> None:
    mark = getattr(marks, name)
    assert mark.__name__ == name
    told = reason(mark)
    assert told is None or told.startswith("test requires ")

    class TestSomething: ...

    assert mark(TestSomething) is TestSomething


@pytest.mark.parametrize("name", SAME_NAME)
def test_marks_of_packages_follow_the_probes(name: str) -> None:
    found = getattr(probes, f"is_{name[8:]}_available")()
    assert (reason(getattr(marks, name)) is None) == found


def test_there_are_marks_of_packages_that_run_and_that_skip() -> None:
    assert len(SAME_NAME) >= 20
    assert reason(marks.require_pippy) is None
    assert reason(marks.require_fsdp2) is None
    assert reason(marks.require_aim) == "test requires aim"


DEVICES = {
    # device, count -> which of these marks let a test run
    ("cpu", 1): {"require_cpu", "require_non_hpu", "require_non_xpu"},
    ("cuda", 1): {"require_non_cpu", "require_single_device", "require_non_hpu", "require_non_xpu"},
    ("cuda", 4): {"require_non_cpu", "require_multi_device", "require_non_hpu", "require_non_xpu"},
    ("xpu", 1): {"require_non_cpu", "require_single_device", "require_non_hpu"},
    ("hpu", 8): {"require_non_cpu", "require_multi_device", "require_non_xpu"},
}


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_marks_of_devices(device: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "torch_device", device[0])
    monkeypatch.setattr(marks, "device_count", device[1])
    names = set.union(*DEVICES.values())
    assert {name for name in names if reason(getattr(marks, name)) is None} == DEVICES[device]


@pytest.mark.parametrize(
    ("gpus", "runs"), [(0, set()), (1, {"single_gpu"}), (2, {"multi_gpu", "multi_gpu_or_xpu"})]
)
def test_marks_of_gpus(gpus: int, runs: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = marks.KINDS["cuda"]
    monkeypatch.setattr(type(cuda), "is_available", lambda self: self is cuda and gpus > 0)
    monkeypatch.setattr(type(cuda), "count", lambda self: gpus)
    names = ("single_gpu", "multi_gpu", "multi_gpu_or_xpu", "single_xpu", "multi_xpu")
    assert {name for name in names if reason(getattr(marks, f"require_{name}")) is None} == runs
    assert (reason(marks.require_cuda) is None) == (gpus > 0)


def test_fp8_needs_package_and_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "is_fp8_available", lambda: True)
    monkeypatch.setattr(marks, "choose", lambda environ: marks.KINDS["cpu"])
    assert reason(marks.require_fp8) is not None

    class Modern(type(marks.KINDS["cpu"])):  # type: ignore[misc]
        def supports(self, dtype: object) -> bool:
            return True

    monkeypatch.setattr(marks, "choose", lambda environ: Modern())
    assert reason(marks.require_fp8) is None


@pytest.mark.parametrize(("text", "runs"), [(None, False), ("1", True), ("yes", True), ("no", False)])
def test_slow(text: str | None, runs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUN_SLOW", raising=False)
    if text is not None:
        monkeypatch.setenv("RUN_SLOW", text)
    assert (reason(marks.slow) is None) == runs


def test_slow_with_text_that_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUN_SLOW", "maybe")
    with pytest.raises(EnvironmentVariableError, match="RUN_SLOW='maybe'"):
        reason(marks.slow)


def test_skip() -> None:
    assert reason(marks.skip) == "Test was skipped"


def test_torch_version() -> None:
    assert reason(marks.require_torch_min_version(version="2.6")) is None
    assert reason(marks.require_torch_min_version(version="99.0")) == "test requires torch 99.0 or later"
    assert reason(lambda test: marks.require_torch_min_version(test, "99.0")) is not None
    with pytest.raises(TypeError, match=r'version="2.6"'):
        marks.require_torch_min_version("99.0")  # type: ignore[call-overload]


def test_run_first_needs_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    def test_something() -> None: ...

    monkeypatch.setattr(marks, "is_installed", lambda name: False)
    assert marks.run_first(test_something) is test_something
    assert not hasattr(test_something, "pytestmark")
    monkeypatch.setattr(marks, "is_installed", lambda name: name == "pytest-order")
    monkeypatch.setattr(pytest.mark, "_config", None)  # this suite allows registered marks only
    marks.run_first(test_something)
    assert [mark.name for mark in test_something.pytestmark] == ["order"]


@marks.require_cpu
class TestOnCpu:
    def test_pytest_sees_the_mark_of_a_class(self) -> None:
        assert marks.torch_device == "cpu"
