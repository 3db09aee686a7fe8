"""The order of a sampler is read in blocks, and is the one that torch draws, from the same random numbers."""

import pytest
import torch
from torch.utils.data import RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler

from accelerate.data.order import OrderReader, as_list
from accelerate.data.samplers import SeedableRandomSampler


def seeded():
    return torch.Generator().manual_seed(4)


SAMPLERS = {
    "sequential": lambda: SequentialSampler(range(20)),
    "random": lambda: RandomSampler(range(20)),
    "generator": lambda: RandomSampler(range(20), generator=seeded()),
    "part": lambda: RandomSampler(range(20), num_samples=7, generator=seeded()),
    "more": lambda: RandomSampler(range(20), num_samples=50, generator=seeded()),
    "replacement": lambda: RandomSampler(range(20), replacement=True, num_samples=70),
    "subset": lambda: SubsetRandomSampler(range(5, 20), generator=seeded()),
    "weighted": lambda: WeightedRandomSampler([1.0] * 20, 30),
    "seedable": lambda: SeedableRandomSampler(range(20), data_seed=2),
    "seedable, replacement": lambda: SeedableRandomSampler(range(20), replacement=True, data_seed=2),
    "list": lambda: list(range(20)),
    "generator function": lambda: (index for index in range(20)),
}


def read(sampler, wanted):
    reader, samples = OrderReader(sampler), []
    while len(block := reader.more(wanted)):
        samples += as_list(block)
    return samples


def trace(sampler):
    """Return what drawing from a sampler has changed."""
    seeded_anew = isinstance(sampler, SeedableRandomSampler)
    generator = None if seeded_anew else getattr(sampler, "generator", None)
    state = None if generator is None else generator.get_state().tolist()
    return torch.get_rng_state().tolist(), state, getattr(sampler, "epoch", None)


@pytest.mark.parametrize("wanted", [1, 6, 100])
@pytest.mark.parametrize("kind", SAMPLERS)
def test_it_is_the_order_of_torch(kind, wanted):
    torch.manual_seed(0)
    sampler = SAMPLERS[kind]()
    expected = [*sampler], [*sampler]
    after = trace(sampler)
    torch.manual_seed(0)
    sampler = SAMPLERS[kind]()
    assert (read(sampler, wanted), read(sampler, wanted)) == expected
    assert trace(sampler) == after


@pytest.mark.parametrize("kind", SAMPLERS)
def test_leaving_out(kind):
    torch.manual_seed(0)
    whole = [*SAMPLERS[kind]()]
    for count in (0, 1, 5, len(whole) - 1, len(whole), len(whole) + 3):
        torch.manual_seed(0)
        reader = OrderReader(SAMPLERS[kind]())
        kept, beyond = reader.after(count, keep=4)
        assert kept == whole[: min(4, count)]
        assert [*as_list(beyond), *reader] == whole[count:]
