"""The manifest says whether files are whole, and whether it is whole itself."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelerate.checkpoint import disk, manifest
from accelerate.checkpoint.disk import Stamp
from accelerate.checkpoint.manifest import MANIFEST, Manifest
from accelerate.errors import CheckpointError


def make(folder, **contents):
    """Write files with a manifest, and return it."""
    for name, text in contents.items():
        (folder / name).write_text(text)
    content = Manifest(
        generation="g",
        step=3,
        world_size=2,
        rank=0,
        created=1.5,
        versions={"torch": "2"},
        files={name: disk.stamp(folder / name) for name in contents},
    )
    (folder / MANIFEST).write_bytes(content.encode())
    return content


def test_it_reads_what_it_wrote(tmp_path):
    assert manifest.read(tmp_path) is None
    content = make(tmp_path, a="text", b="more text")
    assert manifest.read(tmp_path) == content
    assert content.size == 13
    assert list(manifest.problems(tmp_path, content.files)) == []


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.unlink(), r"a is missing"),
        (lambda path: path.write_text("tex"), r"a has 3 bytes instead of 4: it is damaged"),
        (lambda path: path.write_text("texT"), r"a is damaged: its content does not have its checksum"),
        (lambda path: (path.unlink(), path.mkdir()), r"a (cannot be read|has \d+ bytes)"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, damage, said):
    content = make(tmp_path, a="text", b="fine")
    damage(tmp_path / "a")
    (problem,) = manifest.problems(tmp_path, content.files)
    assert re.search(said, problem)
    assert str(tmp_path / "a") in problem


def test_sizes_alone_are_compared_without_reading(tmp_path):
    content = make(tmp_path, a="text")
    (tmp_path / "a").write_text("texT")
    assert list(manifest.problems(tmp_path, content.files, contents=False)) == []
    (tmp_path / "a").write_text("texts")
    assert len(list(manifest.problems(tmp_path, content.files, contents=False))) == 1


def read_or_complaint(folder):
    """Return the manifest, or the path that the error begins with."""
    try:
        return manifest.read(folder)
    except CheckpointError as error:
        return str(error).split(" ")[0]


def test_no_flipped_bit_of_the_manifest_goes_unseen(tmp_path):
    original = make(tmp_path, a="text", b="")
    path = tmp_path / MANIFEST
    text = path.read_bytes()
    for position in range(len(text)):
        for bit in range(8):
            flipped = bytearray(text)
            flipped[position] ^= 1 << bit
            path.write_bytes(flipped)
            assert read_or_complaint(tmp_path) in (original, str(path))  # white space may change


@pytest.mark.parametrize("length", [0, 1, 50, -3])
def test_a_cut_manifest_is_damaged(tmp_path, length):
    make(tmp_path, a="text")
    path = tmp_path / MANIFEST
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(CheckpointError, match=r"accelerate_manifest\.json is damaged"):
        manifest.read(tmp_path)


@pytest.mark.parametrize("text", ["[]", "3", "null", '"text"', "{}", '{"crc32": 1}', "[" * 100_000, "NaN"])
def test_other_json_is_no_manifest(tmp_path, text):
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(CheckpointError, match=r"accelerate_manifest\.json is damaged"):
        manifest.read(tmp_path)


def signed(folder, **changes):
    """Write a manifest with a right checksum and wrong content."""
    content = json.loads((folder / MANIFEST).read_text()) | changes
    del content["crc32"]
    content["crc32"] = manifest._crc32_of(content)
    (folder / MANIFEST).write_text(json.dumps(content))


@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "", "a/../../b", "a\\..\\b"])
def test_names_outside_the_folder_are_refused(tmp_path, name):
    make(tmp_path, a="text")
    signed(tmp_path, files={name: {"size": 1, "crc32": "00000000"}})
    with pytest.raises(CheckpointError, match="no name of a file inside the folder"):
        manifest.read(tmp_path)


def test_a_later_format_is_told_from_damage(tmp_path):
    make(tmp_path, a="text")
    signed(tmp_path, format=2)
    with pytest.raises(CheckpointError, match="has format 2, and this version reads 1"):
        manifest.read(tmp_path)


@given(st.lists(st.integers(0, 1000), max_size=20), st.integers(1, 5))
def test_readers_share_all_files(sizes, num):
    files = {f"file{index}": Stamp(size=size, crc32=0) for index, size in enumerate(sizes)}
    shares = [manifest.share(files, index, num) for index in range(num)]
    assert sorted(name for mine in shares for name in mine) == sorted(files)
    loads = [sum(file.size for file in mine.values()) for mine in shares]
    assert max(loads) - min(loads) <= max(sizes, default=0)


def test_files_are_named_at_every_depth(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").touch()
    (tmp_path / "top").touch()
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "left out").mkdir()
    (tmp_path / "left out" / "file").touch()
    assert manifest.files_in(tmp_path, without=["left out"]) == ["a/b/file", "link", "top"]
