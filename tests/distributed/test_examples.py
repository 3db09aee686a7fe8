"""The example trains, on two ranks and as a plain script, and its README says what is true of the data."""

import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "text_classification.py"


def load_example() -> ModuleType:
    spec = importlib.util.spec_from_file_location(EXAMPLE.stem, EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


def run_example(*arguments: str) -> tuple[float, float, str]:
    """Run the example on this rank; return accuracy, share of the majority class and what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        accuracy, majority = load_example().main(arguments)
    return accuracy, majority, printed.getvalue()


def accuracy_in_plain_torch(example: ModuleType, weights: Path) -> float:
    """Return the accuracy of the saved weights, found without the Accelerator."""
    model = example.SentenceClassifier()
    model.load_state_dict(load_file(weights))
    model.eval()
    _, loader = example.make_loaders(batch_size=32)
    with torch.no_grad():
        right = [model(ids).argmax(dim=-1) == labels for ids, labels in loader]
    return torch.cat(right).double().mean().item()


@pytest.fixture(scope="module")
def on_two_ranks(rank_pool, tmp_path_factory):
    folder = tmp_path_factory.mktemp("example")
    arguments = ("--epochs", "1", "--output_dir", str(folder))
    return folder, rank_pool.run(run_example, *arguments, num_ranks=2, timeout=120)


def test_two_ranks_learn_and_agree(on_two_ranks):
    _, results = on_two_ranks
    (accuracy, majority, printed), (other_accuracy, other_majority, nothing) = results
    assert accuracy > majority + 0.15  # after one epoch of three
    assert (other_accuracy, other_majority) == (accuracy, majority)
    assert f"accuracy {accuracy:.1%}, majority class {majority:.1%}, 2 process(es)" in printed
    assert "batch 100/149" in printed
    assert nothing == ""


def test_saved_weights_score_what_the_ranks_reported_together(on_two_ranks):
    folder, results = on_two_ranks
    alone = accuracy_in_plain_torch(load_example(), folder / "model" / "model.safetensors")
    # Two sentences of 1056 may change sides: padding to other lengths rounds otherwise.
    assert alone == pytest.approx(results[0][0], abs=2 / 1056)


def test_checkpoint_is_complete(on_two_ranks):
    folder, _ = on_two_ranks
    expected = {"model.safetensors", "optimizer.bin", "scheduler.bin"}
    expected |= {"random_states_0.pkl", "random_states_1.pkl"}
    assert expected <= {path.name for path in (folder / "checkpoint").iterdir()}


def test_plain_script_trains_alike(on_two_ranks, tmp_path):
    command = [sys.executable, "-W", "error", str(EXAMPLE), "--epochs", "1", "--output_dir", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=True)
    accuracy, majority = map(
        float, re.search(r"accuracy ([\d.]+)%, majority class ([\d.]+)%", done.stdout).groups()
    )
    assert "1 process(es)" in done.stdout
    assert accuracy > majority + 15
    assert accuracy == pytest.approx(100 * on_two_ranks[1][0][0], abs=4)  # three deviations of 1056 sentences
    assert done.stderr == ""


def test_five_lines_are_marked():
    source = EXAMPLE.read_text(encoding="utf-8")
    assert re.findall(r"# \((\d)\)$", source, flags=re.MULTILINE) == ["1", "2", "3", "4", "5"]
    assert len(source.splitlines()) <= 200


def test_readme_counts_the_data_right():
    readme = (EXAMPLE.parent / "data" / "README.md").read_text(encoding="utf-8")
    example = load_example()
    lines = example.SENTENCES.read_text(encoding="utf-8").splitlines()
    labels = Counter(label for _, label in example.read_examples())
    text = " ".join(readme.split())
    assert f"{len(lines):,} English sentences" in text
    assert f"{labels[0]:,} sentences are negative, {labels[1]:,} positive" in text
    assert f"the {len(lines) - labels.total()} rated exactly 0" in text
