"""Seed all random number generators, and make them alike on all processes. Called by users and loaders."""

import operator
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from accelerate.compat import env
from accelerate.devices.kinds import KINDS
from accelerate.devices.select import choose
from accelerate.errors import ConfigurationError
from accelerate.options.enums import RNGType
from accelerate.runtime.collectives import current_ranks
from accelerate.runtime.current import current

__all__ = ["set_seed", "synchronize_rng_state", "synchronize_rng_states"]

_LARGEST_SEED = 2**32 - 1  # numpy takes no larger one


def set_seed(seed: int, device_specific: bool = False, deterministic: bool = False) -> None:
    """Seed `random`, `numpy.random` and torch, on every device that this process sees.

    Called by every process for the same numbers everywhere; nothing is sent. Workers of a loader take their
    seeds from torch's, so that they follow.

    Args:
        seed: 0 to 2**32 - 1.
        device_specific: add the process index, so that processes draw different numbers; starts the current
            run where nobody has.
        deterministic: also make torch use deterministic implementations and refuse operations that have none,
            in this process, until `torch.use_deterministic_algorithms(False)`. On CUDA this sets
            CUBLAS_WORKSPACE_CONFIG, which matrix products then need, where it is not set.

    Raises:
        TypeError: `seed` is not an integer.
        ValueError: `seed` is out of range; nothing was seeded.

    Example:
        >>> set_seed(0)
        >>> first = torch.rand(2)
        >>> set_seed(0)
        >>> torch.equal(first, torch.rand(2))
        True
    """
    number = operator.index(seed) + (current.ensure().world.rank if device_specific else 0)
    if not 0 <= number <= _LARGEST_SEED:
        raise ValueError(
            f"`set_seed({seed}, {device_specific=})` means seed {number}: allowed are 0 to {_LARGEST_SEED}."
        )
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)
    kind = current.kind if current.started else choose(env.snapshot())
    kind.seed_all(number)  # torch does not know every vendor's devices
    if deterministic:
        torch.use_deterministic_algorithms(True)
        needed = kind.deterministic_environment
        env.put({name: value for name, value in needed.items() if env.get(name) is None})


@dataclass(frozen=True, kw_only=True)
class _Source:
    """One random number generator, by its state."""

    read: Callable[[], Tensor]
    write: Callable[[Tensor], object]


def synchronize_rng_states(
    rng_types: Sequence[str | RNGType | None], generator: torch.Generator | None = None
) -> None:
    """Give all processes the states that random number generators have on the main process.

    Called by every process; all states travel in one collective. With one process nothing changes.

    Args:
        rng_types: which: "torch" for its CPU generator, a kind of accelerator such as "cuda" for the
            generator of the current device, "generator" for the argument of that name.
        generator: needed for "generator".

    Raises:
        ValueError: there is no such generator, or none was given.

    Example:
        >>> synchronize_rng_states(["torch", "generator"], generator=torch.Generator())
    """
    sources = [_source(rng_type, generator) for rng_type in rng_types]
    ranks = current_ranks()
    if ranks.size == 1 or not sources:
        return
    states = ranks.broadcast([source.read() for source in sources])
    if ranks.rank != 0:
        for source, state in zip(sources, states, strict=True):
            source.write(state)


def synchronize_rng_state(
    rng_type: str | RNGType | None = None, generator: torch.Generator | None = None
) -> None:
    """Give all processes the state of one random number generator; see `synchronize_rng_states`.

    Raises:
        ValueError: there is no such generator, or none was given.

    Example:
        >>> synchronize_rng_state("torch")
    """
    synchronize_rng_states([rng_type], generator)


def _source(rng_type: str | RNGType | None, generator: torch.Generator | None) -> _Source:
    if rng_type not in RNGType:
        raise ConfigurationError(f"{rng_type=} is no generator: allowed are {', '.join(RNGType.list())}.")
    kind = RNGType(rng_type)
    if kind == RNGType.TORCH:
        return _Source(read=torch.get_rng_state, write=torch.set_rng_state)
    if kind == RNGType.GENERATOR:
        if generator is None:
            raise ConfigurationError('rng_type="generator" needs one: pass `generator=` a `torch.Generator`.')
        return _Source(read=generator.get_state, write=generator.set_state)
    return _source_of_device(kind)


def _source_of_device(rng_type: RNGType) -> _Source:
    kind = KINDS[rng_type.value]
    if not kind.is_available():
        raise ConfigurationError(
            f'rng_type="{rng_type.value}" means the current device of that kind, but there is none: leave it '
            "out of `rng_types`."
        )
    if rng_type == RNGType.XLA:  # its state is one integer, and no module of torch has it
        return _Source(
            read=lambda: torch.tensor(kind.rng_state()), write=lambda state: kind.set_rng_state(int(state))
        )
    module = torch.get_device_module(rng_type.value)
    return _Source(read=module.get_rng_state, write=module.set_rng_state)
