"""A loss over items trains what one process with all items of a window in one batch would train."""

import itertools

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from accelerate import Accelerator
from accelerate.options.accumulation import GradientAccumulationPlugin

VOCABULARY = 7
IGNORED = -100
GLOBAL_BATCH = 6  # samples of all ranks in a micro-batch
NUM_SAMPLES = 24  # four micro-batches: with an accumulation of 3 the last window is short


class Sentences(torch.utils.data.Dataset):
    """Token ids of very different lengths, the labels of some sentences all ignored."""

    def __len__(self):
        return NUM_SAMPLES

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        tokens = torch.randint(VOCABULARY, (10,), generator=generator)
        length = int(torch.randint(0, 10, (1,), generator=generator)) if index % 5 else 0
        return tokens, torch.where(torch.arange(10) < length, tokens, IGNORED)


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Embedding(VOCABULARY, 5), nn.Tanh(), nn.Linear(5, VOCABULARY))


def summed(logits, labels):
    return nn.functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )


def flat(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def reference(num_steps, max_norm):
    """Train in plain torch, a window a batch; return the weights and every norm before clipping."""
    model, norms = network(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    data = Sentences()
    for start in range(0, NUM_SAMPLES, GLOBAL_BATCH * num_steps):
        rows = [data[index] for index in range(start, min(start + GLOBAL_BATCH * num_steps, NUM_SAMPLES))]
        tokens, labels = (torch.stack(column) for column in zip(*rows, strict=True))
        (summed(model(tokens), labels) / (labels != IGNORED).sum()).backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), max_norm))
        optimizer.step()
        optimizer.zero_grad()
    return flat(model), torch.stack(norms)


def train(plugin, precision, max_norm):
    accelerator = Accelerator(cpu=True, gradient_accumulation_plugin=plugin, mixed_precision=precision)
    model, norms = network(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    loader = DataLoader(Sentences(), batch_size=GLOBAL_BATCH // accelerator.num_processes)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for tokens, labels in loader:
        with accelerator.accumulate(model):
            loss = summed(model(tokens), labels)
            accelerator.backward(loss, num_items=(labels != IGNORED).sum())
            if accelerator.sync_gradients:
                norms.append(accelerator.clip_grad_norm_(model.parameters(), max_norm))
            optimizer.step()
            optimizer.zero_grad()
    return flat(accelerator.unwrap_model(model)), torch.stack(norms)


@pytest.mark.parametrize(
    ("num_ranks", "num_steps", "each"),
    [*itertools.product((1, 2, 3), (1, 3), (False,)), (1, 3, True), (2, 3, True), (3, 3, True)],
)
def test_it_equals_one_process_with_the_window_in_one_batch(rank_pool, num_ranks, num_steps, each):
    plugin = GradientAccumulationPlugin(num_steps=num_steps, sync_each_batch=each)
    weights, norms = reference(num_steps, max_norm=1.0)
    assert len(norms) == (4 if num_steps == 1 else 2)
    for rank_weights, rank_norms in rank_pool.run(train, plugin, "no", 1.0, num_ranks=num_ranks):
        torch.testing.assert_close(rank_weights, weights, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(rank_norms, norms, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_it_does_so_in_half_precision(rank_pool, precision):
    plugin = GradientAccumulationPlugin(num_steps=3)
    weights, norms = reference(3, max_norm=1.0)
    for rank_weights, rank_norms in rank_pool.run(train, plugin, precision, 1.0, num_ranks=2):
        torch.testing.assert_close(rank_weights, weights, rtol=0.02, atol=0.02)
        torch.testing.assert_close(rank_norms, norms, rtol=0.02, atol=0.02)


def mean_of_means():
    """Return the weights of the loop that averages means, as the loop without `num_items` does."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    loader = DataLoader(Sentences(), batch_size=GLOBAL_BATCH // accelerator.num_processes)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for tokens, labels in loader:
        with accelerator.accumulate(model):
            num_items = (labels != IGNORED).sum().clamp(min=1)
            accelerator.backward(summed(model(tokens), labels) / num_items)
            optimizer.step()
            optimizer.zero_grad()
    return flat(accelerator.unwrap_model(model))


def test_averaging_means_is_something_else(rank_pool):
    weights, _ = reference(3, max_norm=1e9)
    assert (rank_pool.run(mean_of_means)[0] - weights).abs().max() > 0.05
