"""States of this rank's random number generators, as a checkpoint holds them. Called by checkpointing.

The keys are the interface's. Every rank has its own states, in a file of its own.
"""

import random
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from accelerate.devices.base import Device

__all__ = ["collect", "restore"]

STEP = "step"

# What a generator raises for a state that it cannot take: another type, shape, length or version.
_REFUSALS = (TypeError, ValueError, RuntimeError, LookupError, AttributeError, OverflowError)


def collect(step: int, device: Device) -> dict[str, Any]:
    """Return the states of all generators of this rank, beside the Accelerator's step.

    Args:
        step: the counter of the Accelerator, 0 <= step.
        device: the kind of hardware whose generators are asked, all devices of it that this rank sees.
    """
    states: dict[str, Any] = {
        STEP: step,
        "random_state": random.getstate(),
        "numpy_random_seed": np.random.get_state(),
        "torch_manual_seed": torch.get_rng_state(),
    }
    if device.type != "cpu":
        states[_device_key(device)] = device.rng_state()
    return states


def restore(states: Mapping[str, Any], device: Device, *, source: str) -> None:
    """Put every generator of this rank into the state it had, and warn by name of those that could not be.

    Args:
        states: what `collect` gave, here or in the interface.
        device: the kind of hardware of this rank.
        source: where the states are from, for the warning.
    """
    setters: dict[str, Callable[[Any], None]] = {
        "random_state": random.setstate,
        "numpy_random_seed": np.random.set_state,
        "torch_manual_seed": torch.set_rng_state,
    }
    if device.type != "cpu":
        setters[_device_key(device)] = device.set_rng_state
    lost = {name: "this run has no such generator" for name in states if name not in (STEP, *setters)}
    for name, set_state in setters.items():
        if name not in states:
            lost[name] = "it was not saved"
            continue
        try:
            set_state(states[name])
        except _REFUSALS as error:
            lost[name] = f"{type(error).__name__}: {error}"
    if lost:
        reasons = "; ".join(f"{name} ({reason})" for name, reason in lost.items())
        warnings.warn(
            f"Random states not restored from {source}: {reasons}. The run goes on with other random numbers "
            "than the one that was saved.",
            stacklevel=2,
        )


def _device_key(device: Device) -> str:
    return "xm_seed" if device.type == "xla" else f"torch_{device.type}_manual_seed"
