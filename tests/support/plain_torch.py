"""Training as anyone would write it in plain PyTorch, without this package. The measure of test_equivalence.

Two writings of the same run: `train_one_process` goes over the global batches, `train_ddp` is
hand-written DistributedDataParallel, called on every rank.

[Note: global batch] A *batch* is what one rank sees in one forward pass. A *global batch* is the batches of
all ranks in the same forward pass, in rank order. With several ranks the order of the samples is continued
from its own beginning until it fills a whole number of global batches, so that all ranks get equally many,
equally large batches; the mean over ranks of the batches' mean gradients is then the mean gradient of the
global batch. On one rank nothing is filled up: the last batch is short.

[Note: window] A *window* is the batches of one optimizer step: `num_accumulation` of them, fewer at the end
of an epoch, where a step is always taken. Each loss is divided by `num_accumulation`, in a short window too.
"""

import itertools
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader

NUM_FEATURES, NUM_TARGETS = 12, 5
TIMEOUT = timedelta(seconds=30)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is trained, and how."""

    num_ranks: int = 1
    num_accumulation: int = 1
    optimizer: str = "sgd"
    num_examples: int = 53  # prime: the last batch is short whatever the number of ranks
    batch_size: int = 4  # per rank
    num_steps: int = 20
    shuffle: bool = False
    scheduled: bool = False
    drop_last: bool = False
    bucket_cap_mb: float = 25  # MiB of gradients reduced together, DistributedDataParallel's default
    seed: int = 1
    precision: str = "no"
    max_norm: float | None = None  # gradients are clipped to it
    init_scale: float = 2.0**16  # of the gradient scaler, in fp16
    growth_interval: int = 2000

    @property
    def dtype(self) -> torch.dtype | None:
        """What operations compute in; None leaves it to them."""
        return {"no": None, "bf16": torch.bfloat16, "fp16": torch.float16}[self.precision]


@dataclass(frozen=True)
class Outcome:
    """What training left behind, as seen by one rank."""

    weights: dict[str, Tensor]
    losses: list[Tensor]  # one a batch, as the model's output gives it
    skipped: list[bool] = field(default_factory=list)  # one a step: gradients had overflowed
    scaler: dict[str, float] = field(default_factory=dict)  # state of the gradient scaler, in fp16


def make_data(recipe: Recipe) -> tuple[Tensor, Tensor]:
    """Return inputs (examples, features) and targets (examples, targets) of a noisy regression."""
    generator = torch.Generator().manual_seed(recipe.seed)
    inputs = torch.randn(recipe.num_examples, NUM_FEATURES, generator=generator)
    mixing = torch.randn(NUM_FEATURES, NUM_TARGETS, generator=generator)
    noise = torch.randn(recipe.num_examples, NUM_TARGETS, generator=generator)
    return inputs, torch.tanh(inputs @ mixing) + 0.1 * noise


def make_model(recipe: Recipe, rank: int = 0) -> nn.Module:
    """Return a network without parameters whose true gradient is zero; other ranks start from other weights.

    They must not matter: rank 0's are broadcast when training starts.
    """
    torch.manual_seed(recipe.seed + rank)
    return nn.Sequential(
        nn.Linear(NUM_FEATURES, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, NUM_TARGETS)
    )


def make_optimizer(recipe: Recipe, model: nn.Module) -> torch.optim.Optimizer:
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def make_scheduler(optimizer: torch.optim.Optimizer) -> LambdaLR:
    """Return a schedule that never reaches 0, so that each of its steps shows in the weights."""
    return LambdaLR(optimizer, lambda step: 1 / (1 + 0.1 * step))


def make_sample_generator(recipe: Recipe, rank: int = 0) -> torch.Generator:
    """Return the source of the samples' order; rank 0's is the one that counts."""
    return torch.Generator().manual_seed(recipe.seed + 100 + rank)


def global_batches(order: list[int], recipe: Recipe) -> list[list[int]]:
    """Cut one epoch's order of samples into global batches, see [Note: global batch]."""
    size = recipe.batch_size * recipe.num_ranks
    num_whole, rest = divmod(len(order), size)
    if recipe.drop_last:
        order = order[: num_whole * size]
    elif rest and recipe.num_ranks > 1:
        order = list(itertools.islice(itertools.cycle(order), (num_whole + 1) * size))
    return [order[start : start + size] for start in range(0, len(order), size)]


def ends_window(index: int, num_batches: int, recipe: Recipe) -> bool:
    """Return whether the optimizer steps after batch `index` of an epoch, see [Note: window]."""
    return (index + 1) % recipe.num_accumulation == 0 or index + 1 == num_batches


def train_one_process(recipe: Recipe) -> Outcome:
    """Train in this process over the global batches of `recipe.num_ranks` ranks."""
    return _train(recipe, make_model(recipe), rank=None)


def train_ddp(recipe: Recipe) -> Outcome:
    """Train with hand-written DistributedDataParallel; called on every rank, in a launcher's environment."""
    dist.init_process_group("gloo", timeout=TIMEOUT)
    try:
        rank = dist.get_rank()
        # The wrapper gets no name here, so that it is gone before the group: the last owner of a gloo group
        # joins its threads; a wrapper does so holding the interpreter's lock, for which they may be waiting.
        return _train(
            recipe,
            DistributedDataParallel(make_model(recipe, rank), bucket_cap_mb=recipe.bucket_cap_mb),
            rank,
        )
    finally:
        dist.destroy_process_group()


def _train(recipe: Recipe, model: nn.Module, rank: int | None) -> Outcome:
    inputs, targets = make_data(recipe)
    optimizer = make_optimizer(recipe, model)
    scheduler = make_scheduler(optimizer)
    scaler = torch.amp.GradScaler(
        "cpu",
        init_scale=recipe.init_scale,
        growth_interval=recipe.growth_interval,
        enabled=recipe.precision == "fp16",  # otherwise it passes everything on
    )
    losses, skipped = [], []
    for batch, is_end in _epochs(recipe, rank):
        with nullcontext() if is_end or rank is None else model.no_sync():
            with torch.autocast("cpu", recipe.dtype, enabled=recipe.dtype is not None):
                outputs = model(inputs[batch])
            loss = nn.functional.mse_loss(outputs.float(), targets[batch])
            scaler.scale(loss / recipe.num_accumulation).backward()
        losses.append(loss.detach())
        if is_end:
            skipped.append(_step(recipe, model, optimizer, scaler))
            if recipe.scheduled and not skipped[-1]:
                for _ in range(recipe.num_ranks):  # it counts the batches of all ranks
                    scheduler.step()
        if len(skipped) == recipe.num_steps:
            break
    bare = model if rank is None else model.module
    weights = {name: weight.detach() for name, weight in bare.named_parameters()}
    return Outcome(weights, losses, skipped, scaler.state_dict())


def _step(
    recipe: Recipe, model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler
) -> bool:
    """Step and drop the gradients; return whether the step was skipped."""
    if recipe.max_norm is not None:
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), recipe.max_norm)
    scaler.step(optimizer)
    scale = scaler.get_scale()
    scaler.update()
    optimizer.zero_grad()
    return scaler.get_scale() < scale


def _epochs(recipe: Recipe, rank: int | None) -> Iterator[tuple[list[int], bool]]:
    """Yield what `rank` (or one process for all) trains on, and whether the window ends with it; no end."""
    generator = make_sample_generator(recipe)
    while True:
        batches = global_batches(_draw_order(recipe, generator), recipe)
        for index, batch in enumerate(batches):
            if rank is not None:
                batch = batch[rank * recipe.batch_size : (rank + 1) * recipe.batch_size]
            yield batch, ends_window(index, len(batches), recipe)


def _draw_order(recipe: Recipe, generator: torch.Generator) -> list[int]:
    """Return one epoch's order of samples, as torch's own DataLoader has it in one process."""
    loader = DataLoader(range(recipe.num_examples), shuffle=recipe.shuffle, generator=generator)
    return [int(sample) for sample in loader]
