"""A model and data small enough to train in a test: y = a x + b. Called by users' tests and the scripts."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

__all__ = [
    "RegressionDataset",
    "RegressionModel",
    "mocked_dataloaders",
    "mocked_dataloaders_for_autoregressive_models",
]

_NOISE = 0.1  # standard deviation
_VOCABULARY = 1000  # tokens; smaller than that of any model in use
_PADDING = 0
_LENGTHS = (8, 24)  # tokens per sequence, from and below
_NUM_SEQUENCES = {"train": 64, "eval": 32}

Item = dict[str, Any]


class RegressionDataset(Dataset[Item]):
    """Points near a line: items {"x": x, "y": a * x + b + noise}, as float32.

    Args:
        a: the slope.
        b: the value at 0.
        length: number of points.
        seed: makes x and noise the same each time; they differ where it is None.

    Example:
        >>> len(RegressionDataset(length=4)), sorted(RegressionDataset(length=4)[0])
        (4, ['x', 'y'])
    """

    def __init__(self, a: float = 2, b: float = 3, length: int = 64, seed: int | None = None) -> None:
        generator = np.random.default_rng(seed)
        self.length = length
        self.x = generator.normal(size=(length,)).astype(np.float32)
        noise = generator.normal(scale=_NOISE, size=(length,)).astype(np.float32)
        self.y = a * self.x + b + noise

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> Item:
        return {"x": self.x[i], "y": self.y[i]}


class RegressionModel(torch.nn.Module):
    """The line y = a x + b, with both numbers to be learned.

    Args:
        a: the slope to start from.
        b: the value at 0 to start from.
        double_output: part of the interface; it has no effect there and none here.

    Example:
        >>> RegressionModel(a=2, b=3)(torch.tensor([1.0])).item()
        5.0
    """

    def __init__(self, a: float = 0, b: float = 0, double_output: bool = False) -> None:
        super().__init__()
        self.a = torch.nn.Parameter(torch.tensor(a).float())
        self.b = torch.nn.Parameter(torch.tensor(b).float())

    def forward(self, x: torch.Tensor | None = None) -> torch.Tensor:
        """Return a x + b for every x."""
        if x is None:
            raise TypeError("RegressionModel()(x=None): pass the points, as in `model(batch['x'])`.")
        return x * self.a + self.b


def mocked_dataloaders(accelerator: Any, batch_size: int = 16) -> tuple["DataLoader[Any]", "DataLoader[Any]"]:
    """Return loaders for training and for evaluation of a model that classifies text, without any download.

    The sequences are made up: class 1 has large tokens, class 0 small ones, so that a model learns them.

    Args:
        accelerator: lets the main process go first, as a download would; every process calls this.
        batch_size: sequences per batch.

    Returns:
        Two loaders of {"input_ids", "token_type_ids", "attention_mask", "labels"}.

    Example:
        >>> from accelerate.accelerator import Accelerator
        >>> train, evaluation = mocked_dataloaders(Accelerator(), batch_size=8)
        >>> len(train), next(iter(train))["labels"].shape
        (8, torch.Size([8]))
    """
    return _loaders(accelerator, batch_size, _classified)


def mocked_dataloaders_for_autoregressive_models(
    accelerator: Any, batch_size: int = 16
) -> tuple["DataLoader[Any]", "DataLoader[Any]"]:
    """Return loaders for training and for evaluation of a model that continues text, without any download.

    Args:
        accelerator: lets the main process go first, as a download would; every process calls this.
        batch_size: sequences per batch.

    Returns:
        Two loaders of {"input_ids", "attention_mask", "labels"}; labels are the tokens, -100 where padded.
    """
    return _loaders(accelerator, batch_size, _continued)


def _loaders(
    accelerator: Any, batch_size: int, collate: Callable[[list[Item]], Item]
) -> tuple["DataLoader[Any]", "DataLoader[Any]"]:
    with accelerator.main_process_first():
        train, evaluation = (_sequences(number, seed) for seed, number in enumerate(_NUM_SEQUENCES.values()))
    return (
        DataLoader(train, batch_size=batch_size, shuffle=True, collate_fn=collate),  # type: ignore[arg-type]
        DataLoader(evaluation, batch_size=batch_size, collate_fn=collate),  # type: ignore[arg-type]
    )


def _sequences(number: int, seed: int) -> list[Item]:
    generator = torch.Generator().manual_seed(seed)
    items = []
    for index in range(number):
        label = index % 2
        length = int(torch.randint(*_LENGTHS, (), generator=generator))
        low, high = (_VOCABULARY // 2, _VOCABULARY) if label else (1, _VOCABULARY // 2)
        items.append({"tokens": torch.randint(low, high, (length,), generator=generator), "label": label})
    return items


def _padded(items: list[Item]) -> Item:
    tokens = [item["tokens"] for item in items]
    ids = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True, padding_value=_PADDING)
    return {"input_ids": ids, "attention_mask": (ids != _PADDING).long()}  # (batch, sequence)


def _classified(items: list[Item]) -> Item:
    padded = _padded(items)
    labels = torch.tensor([item["label"] for item in items])
    return {**padded, "token_type_ids": torch.zeros_like(padded["input_ids"]), "labels": labels}


def _continued(items: list[Item]) -> Item:
    padded = _padded(items)
    return {**padded, "labels": padded["input_ids"].masked_fill(padded["attention_mask"] == 0, -100)}
