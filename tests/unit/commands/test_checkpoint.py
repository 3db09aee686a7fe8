"""`accelerate checkpoint` tells what checkpoints there are, and which are whole."""

import json
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

from accelerate.checkpoint import disk
from accelerate.checkpoint.commit import Staging, new_generation
from accelerate.checkpoint.manifest import MANIFEST
from accelerate.checkpoint.place import place_of
from accelerate.commands.checkpoint import age_in_words, main


def make(folder, step, content="text"):
    staging = Staging(place_of(folder))
    staging.begin()
    (staging.folder / "model.safetensors").write_text(content)
    stamps = {"model.safetensors": disk.stamp(staging.folder / "model.safetensors")}
    staging.seal(stamps, generation=new_generation(), step=step, world_size=2, rank=0)
    staging.publish()
    return folder


@pytest.fixture
def project(tmp_path):
    for number in (1, 9, 10):
        make(tmp_path / "checkpoints" / f"checkpoint_{number}", 10 * number)
    (tmp_path / "checkpoints" / "checkpoint_1" / MANIFEST).unlink()
    (tmp_path / ".staging" / "checkpoint_11").mkdir(parents=True)
    return tmp_path


def output(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize("inside", ["", "checkpoints"])
def test_ls_lists_the_checkpoints_of_a_project(project, capsys, inside):
    status, out, err = output(capsys, "ls", project / inside)
    assert status == 0
    lines = out.replace("\n", " ").split()
    assert lines[:6] == ["checkpoint", "step", "size", "age", "ranks", "state"]
    assert [line for line in lines if line in ("whole", "unknown")] == ["whole", "whole", "unknown"]
    assert "100" in lines
    assert f"checkpoint_1: without {MANIFEST} nothing tells whether it is whole" in err
    assert "checkpoint_11" not in out


def test_ls_as_json(project, capsys):
    status, out, _ = output(capsys, "ls", project, "--json")
    found = json.loads(out)
    assert status == 0
    names = [item["folder"].rpartition("/")[2] for item in found]
    assert names == ["checkpoint_10", "checkpoint_9", "checkpoint_1"]
    assert [item["state"] for item in found] == ["whole", "whole", "unknown"]
    first = found[0]
    assert (first["step"], first["world_size"], first["size"]) == (100, 2, 4)
    assert first["created"] == pytest.approx(time.time(), abs=60)
    assert found[2]["step"] is None


def test_ls_of_the_working_directory(project, capsys, monkeypatch):
    monkeypatch.chdir(project)
    assert len(json.loads(output(capsys, "ls", "--json")[1])) == 3


def test_a_folder_that_is_named_may_be_hidden(tmp_path, monkeypatch, capsys):
    make(tmp_path / ".hidden", 1)
    assert output(capsys, "verify", tmp_path / ".hidden")[0] == 0
    (tmp_path / ".hidden" / "mine").mkdir()
    monkeypatch.chdir(tmp_path / ".hidden" / "mine")
    assert json.loads(output(capsys, "show", "..", "--json")[1])["step"] == 1


def test_show_names_every_file(project, capsys):
    folder = project / "checkpoints" / "checkpoint_9"
    status, out, err = output(capsys, "show", folder)
    assert (status, err) == (0, "")
    crc32 = f"{zlib.crc32(b'text'):08x}"
    assert out.split()[-4:] == ["model.safetensors", "4", "B", crc32]
    assert "torch" in out
    shown = json.loads(output(capsys, "show", folder, "--json")[1])
    assert shown["files"] == {"model.safetensors": {"size": 4, "crc32": crc32}}


def test_verify_reads_what_ls_only_measures(project, capsys):
    damaged = project / "checkpoints" / "checkpoint_9"
    (damaged / "model.safetensors").write_text("texT")
    assert [item["state"] for item in json.loads(output(capsys, "ls", project, "--json")[1])][:2] == [
        "whole"
    ] * 2
    status, out, err = output(capsys, "verify", project / "checkpoints" / "checkpoint_10", damaged)
    assert status == 1
    assert f"{damaged}/model.safetensors is damaged: its content does not have its checksum" in err
    assert out.count("whole") == 1
    assert output(capsys, "verify", project / "checkpoints" / "checkpoint_10")[0] == 0


def test_verify_does_not_vouch_for_a_folder_without_manifest(project, capsys):
    assert output(capsys, "verify", project / "checkpoints" / "checkpoint_1")[0] == 1


@pytest.mark.parametrize("action", ["ls", "show", "verify"])
@pytest.mark.parametrize("folder", ["safetensors", "pickles"])
def test_a_checkpoint_of_the_reference_is_of_unknown_state(capsys, action, folder):
    place = Path(__file__).parents[2] / "reference" / "data" / "checkpoint_1_15_0" / folder
    status, out, _ = output(capsys, action, place, "--json")
    assert status == (action == "verify")
    found = json.loads(out) if action == "show" else json.loads(out)[0]
    assert (found["folder"], found["state"], found["step"]) == (str(place), "unknown", None)
    assert found["size"] == sum(path.stat().st_size for path in place.iterdir())
    assert "unknown" in output(capsys, action, place)[1]


def test_a_damaged_manifest_is_told(project, capsys):
    folder = project / "checkpoints" / "checkpoint_9"
    (folder / MANIFEST).write_text("{")
    status, out, err = output(capsys, "show", folder)
    assert status == 0
    assert "damaged" in out
    assert f"{folder / MANIFEST} is damaged" in err


def test_an_interrupted_publishing_is_told(tmp_path, capsys):
    make(tmp_path / "run", 1)
    place_of(tmp_path / "run").journal.mkdir()
    (found,) = json.loads(output(capsys, "ls", tmp_path, "--json")[1])
    assert found["state"] == "interrupted"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ls", "nowhere"], "nowhere: there is no such folder"),
        (["verify", "."], r".: there is no checkpoint"),
        (["show", "."], r".: that is no checkpoint"),
    ],
)
def test_what_is_not_there_is_an_error(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    status, _, err = output(capsys, *arguments)
    assert status == 1
    assert said in err


def test_neither_torch_nor_numpy_is_loaded(project):
    code = (
        "import sys; from accelerate.commands.checkpoint import main\n"
        "status = main(['verify', sys.argv[1]])\n"
        "sys.exit(f'loaded: {loaded}' if (loaded := {'torch', 'numpy'} & set(sys.modules)) else status)"
    )
    folder = str(project / "checkpoints" / "checkpoint_10")
    ended = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(("seconds", "words"), [(-3, "0 s"), (59, "59 s"), (3600, "1 h"), (200_000, "2 d")])
def test_ages_in_words(seconds, words):
    assert age_in_words(seconds) == words
