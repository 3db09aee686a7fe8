"""What the checkpoints of tests/reference hold, made from torch alone, for both libraries.

Imported by the test, and by scripts that the reference's Python runs.
"""

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn


class Tied(nn.Module):
    """An embedding and an output layer with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(4, 3)
        self.head = nn.Linear(3, 4, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(tokens))


class Counter:
    """A registered object."""

    def __init__(self, value: int) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value, "history": torch.arange(float(self.value))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


def make(seed: int) -> SimpleNamespace:
    """Return two models that have trained a few steps, with all that belongs to them."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    models = [Tied(), nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))]
    inputs = [torch.randint(4, (5,)), torch.randn(5, 3)]
    optimizers = [
        torch.optim.AdamW(models[0].parameters(), lr=0.1),
        torch.optim.SGD(models[1].parameters(), lr=0.2, momentum=0.9),
    ]
    scheduler = torch.optim.lr_scheduler.StepLR(optimizers[0], 1, gamma=0.5)
    for _ in range(2 + seed):
        for model, optimizer, batch in zip(models, optimizers, inputs, strict=True):
            model(batch).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        scheduler.step()
    return SimpleNamespace(
        models=models,
        optimizers=optimizers,
        scheduler=scheduler,
        counters=[Counter(seed), Counter(seed + 10)],
    )


def describe(objects: SimpleNamespace) -> dict[str, Any]:
    """Return all that a checkpoint must bring back, as JSON can hold it, and draw the next random numbers."""
    return {
        "models": [_listed(model.state_dict()) for model in objects.models],
        "optimizers": [_listed(optimizer.state_dict()) for optimizer in objects.optimizers],
        "scheduler": {
            key: value for key, value in objects.scheduler.state_dict().items() if not key.startswith("_")
        },
        "counters": [counter.value for counter in objects.counters],
        "random": [random.random(), float(np.random.rand()), torch.rand(1).item()],
    }


def _listed(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {str(key): _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, (list, tuple)) else value
