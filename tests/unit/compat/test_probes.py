import importlib.metadata
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from accelerate.compat import probes, versions
from accelerate.compat.probes import PACKAGES
from accelerate.errors import EnvironmentVariableError, MissingPackageError

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put fake packages ahead of the real ones; the answers of the probes are forgotten before and after."""

    def forget() -> None:
        probes._found.cache_clear()
        versions.is_installed.cache_clear()
        versions.installed_version.cache_clear()

    def add(module: str, distribution: str | None = None, version: str | None = None, code: str = "") -> None:
        folder = tmp_path / module
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").write_text(code)
        if version is not None:
            name = distribution or module
            metadata = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
            metadata.mkdir()
            (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        importlib.invalidate_caches()
        forget()

    monkeypatch.syspath_prepend(str(tmp_path))
    forget()
    yield add
    for name in {name.split(".")[0] for name in sys.modules} & {path.name for path in tmp_path.iterdir()}:
        for module in [module for module in sys.modules if module.split(".")[0] == name]:
            if str(tmp_path) in str(getattr(sys.modules[module], "__file__", "")):
                del sys.modules[module]
    forget()


def ask(name: str) -> bool:
    answer = getattr(probes, f"is_{name}_available")()
    assert isinstance(answer, bool)
    return answer


def is_installed(module: str) -> bool:
    return importlib.util.find_spec(module.partition(".")[0]) is not None


# What the tests need, and what whoever runs them has besides, is there in truth.
ABSENT = sorted(
    name
    for name, packages in PACKAGES.items()
    if name != "megatron_core" and not any(is_installed(package.module) for package in packages)
)


def test_every_question_is_public_and_named() -> None:
    for name in set(PACKAGES) - {"rich", "megatron_core"}:
        function = getattr(probes, f"is_{name}_available")
        assert function.__name__ == function.__qualname__ == f"is_{name}_available"
        assert function.__module__ == "accelerate.compat.probes"
        assert f"is_{name}_available" in probes.__all__
        assert name in (inspect.getdoc(function) or "")


def test_what_these_tests_run_on_is_there() -> None:
    assert ask("pytest")
    assert ask("numpy")
    assert ask("tqdm")
    assert ask("torch_distributed")
    assert ask("pippy")
    assert ask("weights_only")


@pytest.mark.parametrize("name", ABSENT)
def test_a_folder_of_that_name_is_no_package(name: str, install: Install) -> None:
    for package in PACKAGES[name]:
        install(package.module)
    assert ask(name) is False


@pytest.mark.parametrize(
    ("name", "package"), [(name, package) for name in sorted(PACKAGES) for package in PACKAGES[name]]
)
def test_module_and_distribution_together_are_one(
    name: str, package: probes.Package, install: Install
) -> None:
    install(package.module, package.distribution, package.minimum or "1.0")
    question = getattr(probes, f"is_{name}_available", None) or getattr(probes, f"_is_{name}_installed")
    if name == "rich":
        question = probes._is_rich_installed
    assert question() is True


@pytest.mark.parametrize(
    ("name", "module", "version", "expected"),
    [
        ("aim", "aim", "3.29.1", True),
        ("aim", "aim", "4.0.0", False),
        ("torchao", "torchao", "0.6.0", False),
        ("torchao", "torchao", "0.6.1", True),
        ("torchdata", "torchdata", "0.7.0", True),
        ("torchdata_stateful_dataloader", "torchdata", "0.7.0", False),
        ("torchdata_stateful_dataloader", "torchdata", "0.8.0", True),
        ("bnb", "bitsandbytes", "0.37", True),
        ("8bit_bnb", "bitsandbytes", "0.37.1", False),
        ("8bit_bnb", "bitsandbytes", "0.37.2", True),
        ("4bit_bnb", "bitsandbytes", "0.38.1", False),
        ("4bit_bnb", "bitsandbytes", "0.39.0", True),
    ],
)
def test_version_limits(name: str, module: str, version: str, expected: bool, install: Install) -> None:
    install(module, version=version)
    assert ask(name) is expected


def test_minimum_versions_of_the_caller(install: Install) -> None:
    install("bitsandbytes", version="0.43.1")
    assert probes.is_bnb_available("0.43.1")
    assert not probes.is_bnb_available("0.44")
    assert probes.is_numpy_available(importlib.metadata.version("numpy"))
    assert not probes.is_numpy_available("999")


@pytest.mark.parametrize(("features", "expected"), [("{'multi_backend'}", True), ("set()", False)])
def test_bitsandbytes_says_its_backends_itself(features: str, expected: bool, install: Install) -> None:
    install("bitsandbytes", version="0.45.0", code=f"features = {features}")
    assert ask("bitsandbytes_multi_backend") is expected


def test_a_module_without_spec_is_a_module(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("wandb", version="1.0")
    module = type(sys)("wandb")
    monkeypatch.setitem(sys.modules, "wandb", module)
    assert ask("wandb")


def test_nothing_is_imported_by_asking() -> None:
    program = (
        "import sys\n"
        "from accelerate.compat import probes\n"
        "for name in probes.PACKAGES:\n"
        "    getattr(probes, f'is_{name}_available', lambda: None)()\n"
        "imported = {'torch', 'numpy', 'rich', 'pytest'} & set(sys.modules)\n"
        "assert not imported, imported\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_question_is_looked_up_once(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask("pytest")
    monkeypatch.setattr(importlib.util, "find_spec", None)
    assert ask("pytest")


@pytest.mark.parametrize(("flag", "expected"), [("1", True), ("no", False), (None, False)])
def test_rich_must_be_asked_for(
    flag: str | None, expected: bool, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("rich", version="13.0")
    monkeypatch.delenv("ACCELERATE_ENABLE_RICH", raising=False)
    if flag is not None:
        monkeypatch.setenv("ACCELERATE_ENABLE_RICH", flag)
    assert ask("rich") is expected


def test_a_flag_for_rich_that_cannot_be_read_is_an_error(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("rich", version="13.0")
    monkeypatch.setenv("ACCELERATE_ENABLE_RICH", "maybe")
    with pytest.raises(EnvironmentVariableError, match="ACCELERATE_ENABLE_RICH='maybe'"):
        probes.is_rich_available()


@pytest.mark.parametrize(
    ("flag", "version", "has_training", "expected"),
    [
        ("true", "0.8.0", True, True),
        ("true", "0.8.0", False, False),
        ("true", "0.7.0", True, False),
        ("false", "0.8.0", True, False),
        (None, "0.8.0", True, False),
    ],
)
def test_megatron(
    flag: str | None,
    version: str,
    has_training: bool,
    expected: bool,
    install: Install,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install("megatron", "megatron-core", version)
    if has_training:
        (tmp_path / "megatron" / "training.py").write_text("")
    monkeypatch.delenv("ACCELERATE_USE_MEGATRON_LM", raising=False)
    if flag is not None:
        monkeypatch.setenv("ACCELERATE_USE_MEGATRON_LM", flag)
    assert ask("megatron_lm") is expected


def test_torchao_required(install: Install) -> None:
    @probes.torchao_required
    def convert(value: int, *, twice: bool = False) -> int:
        return value * 2 if twice else value

    assert convert.__name__ == "convert"
    with pytest.raises(MissingPackageError, match=r"convert` needs torchao 0\.6\.1") as caught:
        convert(1)
    assert isinstance(caught.value, ImportError)
    install("torchao", version="0.13.0")
    assert convert(2, twice=True) == 4


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize(
    ("pytorch", "fp8"),
    [
        ("def is_mxfp8_available(): return {}", "raise AssertionError"),
        ("", "def check_mxfp8_support(): return {}, 'a reason'"),
    ],
    ids=["newer releases", "older releases"],
)
def test_mxfp8_is_asked_of_transformer_engine(
    pytorch: str, fp8: str, answer: bool, install: Install, tmp_path: Path
) -> None:
    assert ask("transformer_engine_mxfp8") is False
    install("transformer_engine", "transformer-engine", "2.0")
    (tmp_path / "transformer_engine" / "pytorch").mkdir()
    (tmp_path / "transformer_engine" / "pytorch" / "__init__.py").write_text(pytorch.format(answer))
    (tmp_path / "transformer_engine" / "pytorch" / "fp8.py").write_text(fp8.format(answer))
    assert ask("transformer_engine_mxfp8") is answer
