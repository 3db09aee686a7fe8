"""What a type checker knows of the facade: `prepare()` gives back the types it was given."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SCRIPT = """
import torch
from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset
from typing_extensions import assert_type

from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.scheduler import AcceleratedScheduler

accelerator = Accelerator(gradient_accumulation_steps=2)
bare = nn.Linear(1, 1)
adamw = AdamW(bare.parameters())
steps = StepLR(adamw, 1)
plain: DataLoader[tuple[torch.Tensor, ...]] = DataLoader(TensorDataset(torch.ones(2, 1)))

assert_type(accelerator.prepare(bare), nn.Linear)
model, optimizer, loader, scheduler = accelerator.prepare(bare, adamw, plain, steps)
assert_type(model, nn.Linear)
assert_type(optimizer, AdamW)
assert_type(loader, DataLoader[tuple[torch.Tensor, ...]])
assert_type(scheduler, StepLR)
assert_type(accelerator.prepare(bare, adamw, device_placement=[True, None]), tuple[nn.Linear, AdamW])
assert_type(
    accelerator.prepare(bare, adamw, plain, plain, steps, "other"),
    tuple[
        nn.Linear,
        AdamW,
        DataLoader[tuple[torch.Tensor, ...]],
        DataLoader[tuple[torch.Tensor, ...]],
        StepLR,
        str,
    ],
)
assert_type(accelerator.prepare_model(bare, evaluation_mode=True), nn.Linear)
assert_type(accelerator.prepare_optimizer(adamw), AcceleratedOptimizer)
assert_type(accelerator.prepare_scheduler(steps), AcceleratedScheduler)
assert_type(accelerator.prepare_data_loader(plain), DataLoader[tuple[torch.Tensor, ...]])
assert_type(accelerator.unwrap_model(model), nn.Linear)
for (inputs,) in loader:
    with accelerator.accumulate(model):
        accelerator.backward(model(inputs).mean())
        assert_type(accelerator.clip_grad_norm_(model.parameters(), 1.0), torch.Tensor)
        optimizer.step()
        scheduler.step()
        accelerator.backward(model(inputs).sum(), num_items=len(inputs))
"""

# A type checker holds a name to the type of its first value: were `prepare` to say that an optimizer comes
# back as another class, it would find an error in the loop that everybody writes.
USUAL = """
from torch import nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader

from accelerate import Accelerator


def main(loader: DataLoader[int]) -> None:
    accelerator = Accelerator()
    model = nn.Linear(1, 1)
    optimizer = AdamW(model.parameters())
    scheduler = StepLR(optimizer, 1)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
"""


def check(script: Path) -> subprocess.CompletedProcess[str]:
    # The cache is that of `make lint`: cold, reading torch takes ten seconds.
    settings = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    return subprocess.run(
        [sys.executable, "-m", "mypy", *settings, str(script)],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=script.parent,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
    )


@pytest.fixture(scope="module", autouse=True)
def mypy() -> None:
    pytest.importorskip("mypy")


def test_a_training_script_is_typed_as_if_nothing_was_prepared(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    result = check(script)
    assert result.stdout.startswith("Success"), result.stdout + result.stderr


def test_the_usual_names_may_be_used_again(tmp_path):
    script = tmp_path / "usual.py"
    script.write_text(USUAL)
    result = check(script)
    assert result.stdout.startswith("Success"), result.stdout + result.stderr


def test_a_wrong_type_is_found(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + "assert_type(optimizer, torch.optim.SGD)\n")
    result = check(script)
    assert 'Expression is of type "AdamW", not "SGD"' in result.stdout
