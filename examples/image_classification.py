"""Teach a small convolutional network to read handwritten digits: a plain PyTorch loop and five lines.

The same file runs on one process, on several, or on the accelerators of the machine:

    python examples/image_classification.py
    accelerate launch --cpu --num_processes 2 examples/image_classification.py

Lines marked (1) to (5) are all that turns the plain training loop into a distributed one. Lines marked (+)
make evaluation, printing and saving right on several processes. Data: 1,797 digits of 8 x 8 pixels, which
come with scikit-learn (`pip install scikit-learn`).
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split

from accelerate import Accelerator  # (1)

NUM_LABELS = 10


def read_examples() -> TensorDataset:
    """Return the digits as images (example, channel, row, column) with values from 0 to 1, and labels."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    return TensorDataset(images, torch.tensor(digits.target))


class DigitClassifier(nn.Module):
    """Two convolutions, each halving the image, and a linear layer."""

    def __init__(self, num_channels: int = 32, dropout: float = 0.3) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, num_channels, kernel_size=3, padding=1),  # 8 x 8
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(num_channels, 2 * num_channels, kernel_size=3, padding=1),  # 4 x 4
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),  # 2 x 2
            nn.Dropout(dropout),
            nn.Linear(8 * num_channels, NUM_LABELS),
        )

    def forward(self, images: Tensor) -> Tensor:  # (batch, 1, 8, 8) -> (batch, labels)
        return self.layers(images)


def make_loaders(batch_size: int) -> tuple[DataLoader, DataLoader]:
    """Split the examples four to one, alike for every seed and on every process."""
    train_set: Dataset[tuple[Tensor, ...]]
    test_set: Dataset[tuple[Tensor, ...]]
    train_set, test_set = random_split(
        read_examples(), [0.8, 0.2], generator=torch.Generator().manual_seed(0)
    )
    return DataLoader(train_set, batch_size, shuffle=True), DataLoader(test_set, batch_size)


def evaluate(accelerator: Accelerator, model: nn.Module, loader: DataLoader) -> tuple[float, float, int]:
    """Return accuracy, share of the commonest digit and number of images, over all processes."""
    model.eval()
    num_right, counts = 0, torch.zeros(NUM_LABELS, dtype=torch.int64)
    for images, labels in loader:
        with torch.no_grad():
            predictions = model(images).argmax(dim=-1)
        # Every process saw its own part; images that only filled up the last batch are dropped again.
        predictions, labels = accelerator.gather_for_metrics((predictions, labels))  # (+)
        num_right += int((predictions == labels).sum())
        counts += torch.bincount(labels.cpu(), minlength=NUM_LABELS)
    num_seen = int(counts.sum())
    return num_right / num_seen, int(counts.max()) / num_seen, num_seen


def main(argv: Sequence[str] | None = None) -> tuple[float, float]:
    """Train, report and save; return the accuracy on unseen digits and the share of the commonest."""
    args = parse_arguments(argv)
    start = time.perf_counter()
    torch.manual_seed(args.seed)
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)  # (2)

    train_loader, test_loader = make_loaders(args.batch_size)
    model = DigitClassifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    # Counted for one process. With N processes an epoch has N times fewer steps, and in each of them the
    # prepared scheduler moves N times as far.
    num_steps = args.epochs * len(train_loader) // args.gradient_accumulation_steps
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, total_iters=num_steps)
    model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(  # (3)
        model, optimizer, train_loader, test_loader, scheduler
    )

    for epoch in range(1, args.epochs + 1):
        model.train()
        for images, labels in train_loader:
            with accelerator.accumulate(model):  # (4)
                loss = nn.functional.cross_entropy(model(images), labels)
                accelerator.backward(loss)  # (5)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        accuracy, majority, num_images = evaluate(accelerator, model, test_loader)
        accelerator.print(  # (+)
            f"epoch {epoch}/{args.epochs}  loss {loss.item():.3f}  "
            f"accuracy {accuracy:.1%} on {num_images} unseen digits"
        )

    accelerator.save_state(args.output_dir / "checkpoint")  # (+) all that is needed to go on training
    accelerator.save_model(model, args.output_dir / "model")  # (+) the weights alone
    accelerator.print(
        f"accuracy {accuracy:.1%}, majority class {majority:.1%}, {accelerator.num_processes} process(es), "
        f"{time.perf_counter() - start:.0f} s, saved to {args.output_dir}"
    )
    accelerator.end_training()  # (+)
    return accuracy, majority


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch_size", type=int, default=32, help="images per process and batch")
    parser.add_argument(
        "--gradient_accumulation_steps", type=int, default=1, help="batches per optimizer step"
    )
    parser.add_argument("--lr", type=float, default=5e-3, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights, the order and the dropout")
    parser.add_argument("--output_dir", type=Path, default=Path("demo-output/images"))
    args = parser.parse_args(argv)
    if args.epochs < 1:
        parser.error("--epochs must be at least 1")
    return args


if __name__ == "__main__":
    main()
