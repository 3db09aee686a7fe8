"""The examples train, on two ranks and as plain scripts, and the README says what is true of the data."""

import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file

FOLDER = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Example:
    """One example, and what a short training of it must come to."""

    name: str  # of the file, without its end
    model: str
    num_epochs: int
    num_unseen: int  # examples for testing
    margin: float  # accuracy beyond that of the majority class
    spread: float  # of the accuracy between runs on one and two ranks
    progress: str

    @property
    def file(self) -> Path:
        return FOLDER / f"{self.name}.py"

    def load(self) -> ModuleType:
        spec = importlib.util.spec_from_file_location(self.name, self.file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


EXAMPLES = [
    Example("text_classification", "SentenceClassifier", 1, 1056, 0.15, 0.04, "batch 100/149"),
    Example("image_classification", "DigitClassifier", 4, 359, 0.75, 0.06, "on 359 unseen digits"),
]


def run_example(example: Example, *arguments: str) -> tuple[float, float, str]:
    """Run an example on this rank; return accuracy, share of the majority class and what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        accuracy, majority = example.load().main(arguments)
    return accuracy, majority, printed.getvalue()


def accuracy_in_plain_torch(example: Example, weights: Path) -> float:
    """Return the accuracy of the saved weights, found without the Accelerator."""
    module = example.load()
    model = getattr(module, example.model)()
    model.load_state_dict(load_file(weights))
    model.eval()
    _, loader = module.make_loaders(batch_size=32)
    with torch.no_grad():
        right = [model(inputs).argmax(dim=-1) == labels for inputs, labels in loader]
    return torch.cat(right).double().mean().item()


@pytest.fixture(scope="module", params=EXAMPLES, ids=lambda example: example.name)
def on_two_ranks(request, rank_pool, tmp_path_factory):
    example = request.param
    folder = tmp_path_factory.mktemp(example.name)
    arguments = ("--epochs", str(example.num_epochs), "--output_dir", str(folder))
    return example, folder, rank_pool.run(run_example, example, *arguments, num_ranks=2, timeout=120)


def test_two_ranks_learn_and_agree(on_two_ranks):
    example, _, results = on_two_ranks
    (accuracy, majority, printed), (other_accuracy, other_majority, nothing) = results
    assert accuracy > majority + example.margin
    assert (other_accuracy, other_majority) == (accuracy, majority)
    assert f"accuracy {accuracy:.1%}, majority class {majority:.1%}, 2 process(es)" in printed
    assert example.progress in printed
    assert nothing == ""


def test_saved_weights_score_what_the_ranks_reported_together(on_two_ranks):
    example, folder, results = on_two_ranks
    alone = accuracy_in_plain_torch(example, folder / "model" / "model.safetensors")
    # Two may change sides: batches and padding of other lengths round otherwise.
    assert alone == pytest.approx(results[0][0], abs=2 / example.num_unseen)


def test_checkpoint_is_complete(on_two_ranks):
    _, folder, _ = on_two_ranks
    expected = {"model.safetensors", "optimizer.bin", "scheduler.bin"}
    expected |= {"random_states_0.pkl", "random_states_1.pkl"}
    assert expected <= {path.name for path in (folder / "checkpoint").iterdir()}


def test_plain_script_trains_alike(on_two_ranks, tmp_path):
    example, _, results = on_two_ranks
    arguments = ["--epochs", str(example.num_epochs), "--output_dir", str(tmp_path)]
    command = [sys.executable, "-W", "error", str(example.file), *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=True)
    accuracy, majority = map(
        float, re.search(r"accuracy ([\d.]+)%, majority class ([\d.]+)%", done.stdout).groups()
    )
    assert "1 process(es)" in done.stdout
    assert accuracy > majority + 100 * example.margin
    assert accuracy == pytest.approx(100 * results[0][0], abs=100 * example.spread)
    assert done.stderr == ""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_five_lines_are_marked(example):
    source = example.file.read_text(encoding="utf-8")
    assert re.findall(r"# \((\d)\)$", source, flags=re.MULTILINE) == ["1", "2", "3", "4", "5"]
    assert len(source.splitlines()) <= 200


def test_readme_counts_the_data_right():
    readme = (FOLDER / "data" / "README.md").read_text(encoding="utf-8")
    example = EXAMPLES[0].load()
    lines = example.SENTENCES.read_text(encoding="utf-8").splitlines()
    labels = Counter(label for _, label in example.read_examples())
    text = " ".join(readme.split())
    assert f"{len(lines):,} English sentences" in text
    assert f"{labels[0]:,} sentences are negative, {labels[1]:,} positive" in text
    assert f"the {len(lines) - labels.total()} rated exactly 0" in text
