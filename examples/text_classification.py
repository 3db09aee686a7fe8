"""Teach a small transformer to tell praise from blame in film reviews: a plain PyTorch loop and five lines.

The same file runs on one process, on several, or on the accelerators of the machine:

    python examples/text_classification.py
    accelerate launch --cpu --num_processes 2 examples/text_classification.py

Lines marked (1) to (5) are all that turns the plain training loop into a distributed one. Lines marked (+)
make evaluation, printing and saving right on several processes. Data: examples/data/README.md.
"""

import argparse
import re
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset, random_split

from accelerate import Accelerator  # (1)

SENTENCES = Path(__file__).parent / "data" / "movie_sentences.tsv"
NUM_LABELS = 2  # 0 is blame, 1 is praise
NUM_BUCKETS = 16384  # rows of the word embedding
MAX_WORDS = 64
PADDING = 0

Example = tuple[Tensor, int]  # (ids of the words, label)


def tokenize(sentence: str) -> Tensor:
    """Hash every word to a row of the word embedding: no vocabulary has to be built, shared or saved."""
    words = re.findall(r"[^\W_]+(?:'[^\W_]+)?|[!?]", sentence.lower())[:MAX_WORDS]
    return torch.tensor([1 + zlib.crc32(word.encode()) % (NUM_BUCKETS - 1) for word in words])


def read_examples() -> list[Example]:
    """Read the rated sentences; the sign of the rating is the label, sentences rated 0 are left out."""
    rows = (line.split("\t") for line in SENTENCES.read_text(encoding="utf-8").splitlines())
    return [(tokenize(sentence), int(float(rating) > 0)) for rating, sentence in rows if float(rating) != 0]


def collate(examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
    """Pad the sentences of one batch to the longest of them."""
    ids, labels = zip(*examples, strict=True)
    return pad_sequence(list(ids), batch_first=True, padding_value=PADDING), torch.tensor(labels)


class SentenceClassifier(nn.Module):
    """Word and position embeddings, a transformer encoder, the mean over the words, a linear layer."""

    def __init__(self, dim: int = 64, num_layers: int = 1, num_heads: int = 4, dropout: float = 0.3) -> None:
        super().__init__()
        self.words = nn.Embedding(NUM_BUCKETS, dim, padding_idx=PADDING)
        self.positions = nn.Embedding(MAX_WORDS, dim)
        self.dropout = nn.Dropout(dropout)
        block = nn.TransformerEncoderLayer(
            dim, num_heads, dim_feedforward=2 * dim, dropout=dropout, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(block, num_layers, enable_nested_tensor=False)
        self.head = nn.Linear(dim, NUM_LABELS)
        # Small weights to begin with: a rare word is met a few times only, and must not be louder than that.
        nn.init.normal_(self.words.weight, std=0.1)
        nn.init.normal_(self.positions.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:  # (batch, words) -> (batch, labels)
        is_padding = ids == PADDING
        position = torch.arange(ids.shape[1], device=ids.device)
        hidden = self.dropout(self.words(ids) + self.positions(position))  # (batch, words, dim)
        hidden = self.encoder(hidden, src_key_padding_mask=is_padding)
        hidden = hidden.masked_fill(is_padding.unsqueeze(-1), 0.0)
        mean = hidden.sum(dim=1) / (~is_padding).sum(dim=1, keepdim=True)
        return self.head(self.dropout(mean))


def make_loaders(batch_size: int) -> tuple[DataLoader, DataLoader]:
    """Split the examples nine to one, alike for every seed and on every process."""
    train_set: Dataset[Example]
    test_set: Dataset[Example]
    train_set, test_set = random_split(
        read_examples(), [0.9, 0.1], generator=torch.Generator().manual_seed(0)
    )
    train_loader = DataLoader(train_set, batch_size, shuffle=True, collate_fn=collate)
    return train_loader, DataLoader(test_set, batch_size, collate_fn=collate)


def make_scheduler(optimizer: Optimizer, num_steps: int) -> LambdaLR:
    """Raise the learning rate over the first tenth of the steps, then lower it in a straight line to 0."""
    num_warmup_steps = max(1, num_steps // 10)

    def factor(step: int) -> float:
        if step < num_warmup_steps:
            return (step + 1) / num_warmup_steps
        return max(0.0, (num_steps - step) / (num_steps - num_warmup_steps + 1))

    return LambdaLR(optimizer, factor)


def evaluate(accelerator: Accelerator, model: nn.Module, loader: DataLoader) -> tuple[float, float, int]:
    """Return accuracy, share of the majority class and number of sentences, over all processes."""
    model.eval()
    num_right, num_praise, num_seen = 0, 0, 0
    for ids, labels in loader:
        with torch.no_grad():
            predictions = model(ids).argmax(dim=-1)
        # Every process saw its own part; sentences that only filled up the last batch are dropped again.
        predictions, labels = accelerator.gather_for_metrics((predictions, labels))  # (+)
        num_right += int((predictions == labels).sum())
        num_praise += int(labels.sum())
        num_seen += len(labels)
    return num_right / num_seen, max(num_praise, num_seen - num_praise) / num_seen, num_seen


def main(argv: Sequence[str] | None = None) -> tuple[float, float]:
    """Train, report and save; return the accuracy on unseen sentences and the share of the majority class."""
    args = parse_arguments(argv)
    start = time.perf_counter()
    torch.manual_seed(args.seed)
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)  # (2)

    train_loader, test_loader = make_loaders(args.batch_size)
    model = SentenceClassifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    # Counted for one process. With N processes an epoch has N times fewer steps, and in each of them the
    # prepared scheduler moves N times as far.
    scheduler = make_scheduler(optimizer, args.epochs * len(train_loader) // args.gradient_accumulation_steps)
    model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(  # (3)
        model, optimizer, train_loader, test_loader, scheduler
    )

    for epoch in range(1, args.epochs + 1):
        model.train()
        for batch, (ids, labels) in enumerate(train_loader, start=1):
            with accelerator.accumulate(model):  # (4)
                loss = nn.functional.cross_entropy(model(ids), labels)
                accelerator.backward(loss)  # (5)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if batch % 50 == 0:
                where = f"epoch {epoch}/{args.epochs}  batch {batch:3}/{len(train_loader)}"
                accelerator.print(f"{where}  loss {loss.item():.3f}")  # (+)
        accuracy, majority, num_sentences = evaluate(accelerator, model, test_loader)
        accelerator.print(
            f"epoch {epoch}/{args.epochs}  accuracy {accuracy:.1%} on {num_sentences} unseen sentences"
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
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=32, help="sentences per process and batch")
    parser.add_argument(
        "--gradient_accumulation_steps", type=int, default=1, help="batches per optimizer step"
    )
    parser.add_argument("--lr", type=float, default=2e-3, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights, the order and the dropout")
    parser.add_argument("--output_dir", type=Path, default=Path("demo-output"))
    args = parser.parse_args(argv)
    if args.epochs < 1:
        parser.error("--epochs must be at least 1")
    return args


if __name__ == "__main__":
    main()
