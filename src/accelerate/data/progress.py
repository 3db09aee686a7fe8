"""Where a prepared loader stands, and how to stand there again. Called by the prepared loaders.

[Note: places] A *place* is a pass and how many of its batches were seen, the one in hand among them. A pass
that is read to its end leaves the place at the start of the next one; a pass that is left early stays where
it was left until another begins, unless it was inside the pass of another loader that is still on. The order
of a pass is known from its *beginnings*: the seed of a seedable sampler, the state of a generator, or the
states of the global random number generators, whatever the order is drawn from. Seeds and generators are put
back when a place is loaded; global states only while the order of the next pass is drawn, since by then they
serve the training.
"""

import random
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from accelerate.data.samplers import (
    AroundBatchSampler,
    SeedableRandomSampler,
    index_sampler,
    sampler_chain,
)

__all__ = ["Place", "Progress", "beginnings", "own_generator", "restore_beginnings", "shielded"]

_GLOBAL = ("torch", "python", "numpy")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the next pass is to begin; see [Note: places]."""

    batches: int  # of this rank, already seen
    beginnings: Mapping[str, Any] = field(default_factory=dict)
    base_state: dict[str, Any] | None = None  # of torchdata's loader, if it goes there by itself


class Progress:
    """Where a loader stands; the loader of the rest of a pass shares that of the whole."""

    def __init__(self, epoch: int = 0) -> None:
        self._epoch = epoch
        self.batches = 0  # of this rank, seen in the pass that is on or was left
        self.beginnings: Mapping[str, Any] = {}  # of that pass
        self.loaded: Place | None = None  # what the next pass takes up
        self.is_on = False  # the pass has begun, and was neither finished nor left

    @property
    def epoch(self) -> int:
        """Number of passes that were read to their end."""
        return self._epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        if epoch != self._epoch:
            self.loaded = None  # it was a place in another pass
            self.batches = 0
        self._epoch = epoch

    def load(self, epoch: int, place: Place) -> None:
        """Let the next pass begin at a place."""
        self._epoch = epoch
        self.loaded = place if place.batches else None  # a pass from its start has nothing to take up
        self.batches, self.beginnings = place.batches, place.beginnings

    def begin(self, base: "DataLoader[Any]") -> Place | None:
        """Begin a pass of `base`; return the place that was loaded for it."""
        loaded, self.loaded = self.loaded, None
        self.beginnings = beginnings(base) if loaded is None else loaded.beginnings
        self.batches = 0
        self.is_on = True
        return loaded

    def finish(self) -> None:
        """End a pass that was read to its end."""
        self._epoch += 1
        self.batches = 0

    def leave(self) -> None:
        """End a pass, be it at its end or before."""
        self.is_on = False


def beginnings(loader: "DataLoader[Any]") -> dict[str, Any]:
    """Return what the order of the pass that would begin now depends on, besides data and epoch."""
    chain = sampler_chain(loader)
    for link in chain:
        if isinstance(link, SeedableRandomSampler):
            return {"seed": link.initial_seed}
    generator = own_generator(loader)
    if generator is not None:
        return {"generator": generator.get_state()}
    return {} if _is_fixed(loader, chain) else _global_states()


def own_generator(loader: "DataLoader[Any]") -> torch.Generator | None:
    """Return the generator that the samplers, or the dataset of a stream, draw the order from."""
    is_stream = isinstance(loader.dataset, IterableDataset)
    owners = [loader.dataset] if is_stream else list(reversed(sampler_chain(loader)))
    for owner in owners:
        generator = getattr(owner, "generator", None)
        if isinstance(generator, torch.Generator):
            return generator
    return None


def _is_fixed(loader: "DataLoader[Any]", chain: list[Any]) -> bool:
    """Return whether the order depends on the epoch at most."""
    if isinstance(loader.dataset, IterableDataset):
        return callable(getattr(loader.dataset, "set_epoch", None))
    cutting = all(isinstance(link, AroundBatchSampler) or type(link) is BatchSampler for link in chain[:-1])
    told = isinstance(chain[-1], DistributedSampler) or callable(getattr(chain[-1], "set_epoch", None))
    return cutting and (type(chain[-1]) is SequentialSampler or told)


def restore_beginnings(loader: "DataLoader[Any]", states: Mapping[str, Any], *, in_pass: bool) -> None:
    """Put seed or generator of a loader into the state that a pass began with.

    One of torch's samplers may have drawn from the global states then, and from a generator now or the other
    way round, since it has a generator on several ranks: it goes on with the same order.

    Args:
        loader: its sampler is changed.
        states: what the pass began with.
        in_pass: the pass is to go on in its middle, and not to begin.

    Warns where the order of the pass, or of all later ones, is lost.
    """
    innermost = sampler_chain(loader)[-1]
    seeds = [link for link in sampler_chain(loader) if isinstance(link, SeedableRandomSampler)]
    generator = None if seeds else own_generator(loader)
    drawn = isinstance(innermost, (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)) and not seeds
    if seeds and "seed" in states:
        for link in seeds:
            link.initial_seed = states["seed"]
    elif "generator" in states and (drawn or generator is not None):
        if generator is None:
            innermost.generator = generator = torch.Generator()
        generator.set_state(states["generator"].cpu())
    elif "torch" in states and drawn and generator is not None:
        _seed_as_drawn(generator, states, by_seed=isinstance(innermost, RandomSampler))
    elif "seed" in states or "generator" in states or (in_pass and (seeds or generator is not None)):
        warnings.warn(
            "The order of a data loader was not restored: when its state was saved it was drawn from "
            f"{_source(states)}, now {index_sampler(loader)!r} draws it otherwise. Prepare the loader with "
            "the same sampler and options as at the save.",
            stacklevel=4,
        )


def _seed_as_drawn(generator: torch.Generator, states: Mapping[str, Any], *, by_seed: bool) -> None:
    """Let a generator give what a sampler without one has drawn from the global states."""
    with shielded(states):
        torch.empty((), dtype=torch.int64).random_()  # torch draws a seed for workers first
        if by_seed:
            generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
        else:
            generator.set_state(torch.get_rng_state())


def _source(states: Mapping[str, Any]) -> str:
    kinds = {"seed": "a seed", "generator": "a generator"}
    return next((words for kind, words in kinds.items() if kind in states), "no generator")


def _global_states() -> dict[str, Any]:
    name, keys, *rest = np.random.get_state(legacy=True)
    return {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(np.array(keys)), *rest),
    }


def _set_global_states(states: Mapping[str, Any]) -> None:
    name, keys, *rest = states["numpy"]
    version, internal, gauss = states["python"]
    torch.set_rng_state(states["torch"].cpu())
    random.setstate((version, tuple(internal), gauss))
    np.random.set_state((name, keys.cpu().numpy(), *rest))


@contextmanager
def shielded(states: Mapping[str, Any] = {}) -> Iterator[bool]:  # it is only read
    """Give the global random number generators back what they had, whatever the block draws from them.

    Args:
        states: where they begin in the block, if those that a pass began with are among them.

    Yields:
        Whether they are.
    """
    replayed = all(kind in states for kind in _GLOBAL)
    before = _global_states()
    if replayed:
        _set_global_states(states)
    try:
        yield replayed
    finally:
        _set_global_states(before)
