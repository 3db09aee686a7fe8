"""safetensors files are what the library writes, and are read into tensors that are there."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save

from accelerate.checkpoint import disk, tensors
from accelerate.errors import CheckpointError


def write(path, content):
    with disk.Writer(path) as writer:
        tensors.write(content, writer)


names = st.text(min_size=1, max_size=8).filter(lambda name: name != "__metadata__")


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        names.filter(lambda name: name.isprintable()),
        st.tuples(st.sampled_from(sorted(tensors._DTYPES, key=str)), st.lists(st.integers(0, 3), max_size=3)),
        max_size=12,
    )
)
def test_files_are_byte_for_byte_the_librarys(tmp_path_factory, kinds):
    path = tmp_path_factory.mktemp("folder") / "file"
    content = {name: torch.randn(shape).to(dtype) for name, (dtype, shape) in kinds.items()}
    write(path, content)
    assert path.read_bytes() == save(content, metadata={"format": "pt"})


def test_a_dtype_that_the_format_lacks_is_named(tmp_path):
    with pytest.raises(TypeError, match=r"'b' has dtype torch.complex128"):
        write(tmp_path / "file", {"a": torch.ones(1), "b": torch.ones(1, dtype=torch.complex128)})


def test_bytes_go_straight_into_live_tensors(tmp_path):
    content = {name: torch.randn(3, 4) for name in "ab"} | {"n": torch.tensor(3), "e": torch.ones(0, 2)}
    write(tmp_path / "file", content)
    live = {name: torch.zeros_like(value) for name, value in content.items()}
    addresses = {name: value.data_ptr() for name, value in live.items()}
    assert tensors.read_into(tmp_path / "file", live)
    assert all(torch.equal(live[name], content[name]) for name in content)
    assert {name: value.data_ptr() for name, value in live.items()} == addresses


@pytest.mark.parametrize(
    "change",
    [
        {"a": torch.zeros(4, 3)},
        {"a": torch.zeros(3, 4).half()},
        {"a": torch.zeros(4, 3).t()},
        {"a": torch.zeros(3, 4, device="meta")},
        {"b": torch.zeros(1)},
    ],
)
def test_what_does_not_fit_is_left_to_another_reader(tmp_path, change):
    write(tmp_path / "file", {"a": torch.ones(3, 4)})
    live = {"a": torch.zeros(3, 4), **change}
    assert not tensors.read_into(tmp_path / "file", live)
    assert all(value.is_meta or not value.any() for value in live.values())


@pytest.mark.parametrize("cut", [0, 5, 9, 40, -1])
def test_a_cut_file_is_left_to_the_library_which_names_the_damage(tmp_path, cut):
    path = tmp_path / "file"
    write(path, {"a": torch.ones(3, 4)})
    path.write_bytes(path.read_bytes()[:cut])
    assert not tensors.read_into(path, {"a": torch.zeros(3, 4)})
    with pytest.raises(Exception, match=r"(?i)header|incomplete|deserializ|mmap|size"):
        load_file(path)


def test_a_file_that_ends_while_it_is_read_is_damaged(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write(path, {"a": torch.ones(3, 4)})
    places = tensors._places

    def then_cut(file, path):
        found = places(file, path)
        path.write_bytes(path.read_bytes()[:-8])
        return found

    monkeypatch.setattr(tensors, "_places", then_cut)
    with pytest.raises(CheckpointError, match="it ends too early"):
        tensors.read_into(path, {"a": torch.zeros(3, 4)})
